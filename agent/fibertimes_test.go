package agent

import (
	"testing"
	"time"

	"github.com/dohost/dohost/internal/work"
)

func TestFiberTimesOpenRows(t *testing.T) {
	delayed := &fiberRow{Item: work.Item{NotBefore: 1}}
	for _, c := range []struct {
		name        string
		before      fiberTimes
		event       func(*fiberTimes)
		want        openFibers
		takeResumed bool // after the event
	}{
		{"written after none", fiberTimes{open: openNone}, (*fiberTimes).written, openUnknown, false},
		{"written after resumed", fiberTimes{open: openResumed}, (*fiberTimes).written, openResumed, true},
		{"written", fiberTimes{}, (*fiberTimes).written, openUnknown, false},
		{"resumed, and another is delayed", fiberTimes{open: openResumed}, func(x *fiberTimes) { x.delay(delayed) }, openResumed, false},
		{"resumed, and another is not delayed", fiberTimes{open: openResumed}, func(x *fiberTimes) { x.delay(&fiberRow{}) }, openResumed, true},
		{"delayed, and another is not", fiberTimes{open: openResumed, delayed: true}, func(x *fiberTimes) { x.delay(&fiberRow{}) }, openResumed, false},
		{"none", fiberTimes{open: openNone}, func(*fiberTimes) {}, openNone, false},
	} {
		x := c.before
		c.event(&x)
		if x.open != c.want {
			t.Errorf("%s: open is %d, want %d", c.name, x.open, c.want)
		}
		if got := x.takeResumed(); got != c.takeResumed {
			t.Errorf("%s: takeResumed is %v, want %v", c.name, got, c.takeResumed)
		}
		if x.takeResumed() {
			t.Errorf("%s: takeResumed is true twice", c.name)
		}
	}
}

func TestFiberTimesExpireKeepsTheFirst(t *testing.T) {
	var x fiberTimes
	for _, c := range []struct{ expires, want int64 }{{0, 0}, {30, 30}, {40, 30}, {20, 20}, {0, 20}} {
		x.expire(&fiberRow{Item: work.Item{Expires: c.expires}})
		if x.expiry != c.want {
			t.Errorf("after a row that expires at %d: %d, want %d", c.expires, x.expiry, c.want)
		}
	}
}

func TestFiberTimesPostponeAfterFullDisk(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	var x fiberTimes
	x.full(now)
	for _, c := range []struct {
		name     string
		at, want time.Time
	}{
		{"never", time.Time{}, time.Time{}},
		{"due", now.Add(-time.Hour), now.Add(time.Second)},
		{"later than the retry", now.Add(time.Minute), now.Add(time.Minute)},
	} {
		if got := x.postpone(wakeup{at: c.at, atStart: true}); !got.at.Equal(c.want) || !got.atStart {
			t.Errorf("%s: %v, at start %v; want %v, true", c.name, got.at, got.atStart, c.want)
		}
	}
}
