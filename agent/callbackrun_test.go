package agent

import (
	"errors"
	"testing"
	"time"
)

func TestScheduleStateAfterRun(t *testing.T) {
	now := time.Date(2026, 3, 29, 0, 59, 59, 0, time.UTC)
	late := now.Add(-72 * time.Hour)
	running := run{Incarnation: "a", Number: 7, Started: now.Add(-time.Minute), Starts: 3}
	for _, tt := range []struct {
		name  string
		job   scheduleRow
		due   time.Time
		stays bool
		fails bool
	}{
		{"delayed", scheduleRow{Kind: KindDelayed}, time.Time{}, false, false},
		{"at", scheduleRow{Kind: KindAt}, time.Time{}, false, false},
		{"interval", scheduleRow{Kind: KindInterval, Every: time.Minute, Due: late}, now.Add(time.Minute), true, false},
		{"cron", scheduleRow{Kind: KindCron, Cron: "@hourly", Due: late}, now.Add(time.Second), true, false},
		{"zone", scheduleRow{Kind: KindCron, Cron: "30 2 * * *", Zone: "Europe/Berlin"}, now.Add(time.Second), true, false},
		{"zone that is gone", scheduleRow{Kind: KindCron, Cron: "@hourly", Zone: "Mars/Phobos"}, now.Add(time.Hour), true, true},
	} {
		tt.job.Run, tt.job.StuckAt = running, now
		next, stays, err := tt.job.ended(now)
		if stays != tt.stays || (err != nil) != tt.fails {
			t.Errorf("%s: stays %t, %v", tt.name, stays, err)
		}
		if stays && (!next.Due.Equal(tt.due) || next.Run != run{} || !next.StuckAt.IsZero()) {
			t.Errorf("%s: %+v, want due %v", tt.name, next, tt.due)
		}
	}
}

func TestQueueItemStateAfterRun(t *testing.T) {
	started := item{Version: 2, Run: run{Incarnation: "a", Number: 7}}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name   string
		now    item
		failed error
		want   itemOutcome
	}{
		{"done", started, nil, itemDone},
		{"dead", started, broken, itemDead},
		{"superseded", item{Version: 3, Run: started.Run}, nil, itemReplaced},
		{"superseded and failed", item{Version: 3, Run: started.Run}, broken, itemReplaced},
		{"taken out", item{Version: 2, Run: started.Run, Gone: true}, broken, itemCancelled},
		{"another run", item{Version: 2, Run: run{Incarnation: "a", Number: 8}}, nil, itemSuperseded},
		{"another incarnation", item{Version: 2, Run: run{Incarnation: "b", Number: 7}}, nil, itemSuperseded},
		{"not running", item{Version: 2}, nil, itemSuperseded},
	} {
		if got := tt.now.outcome(started, tt.failed); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestJobRunExhaustedByInterruptions(t *testing.T) {
	for _, tt := range []struct {
		run   run
		limit int
		want  bool
	}{
		{run{Incarnation: "before", Starts: 5}, 5, true},
		{run{Incarnation: "before", Starts: 4}, 5, false},
		{run{Incarnation: "before", Starts: 500}, -1, false},
		{run{Incarnation: "now", Starts: 5}, 5, false}, // it is running
		{run{Starts: 5}, 5, false},
	} {
		if got := tt.run.exhausted("now", tt.limit); got != tt.want {
			t.Errorf("%+v of %d: %t", tt.run, tt.limit, got)
		}
	}
}

// TestCronJobRunsOnceWhenTheClockIsSetBack ends a run after the clock was set back to before the run's due
// time.
func TestCronJobRunsOnceWhenTheClockIsSetBack(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	j := scheduleRow{Kind: KindCron, Cron: "0 12 * * *", Due: noon, Run: run{Incarnation: "a", Started: noon}}
	for _, back := range []time.Duration{-time.Second, 0, 2 * time.Second, 11 * time.Hour, 30 * time.Hour} {
		next, stays, err := j.ended(noon.Add(-back))
		if want := noon.Add(24 * time.Hour); err != nil || !stays || !next.Due.Equal(want) {
			t.Errorf("set back by %v: due at %v, %v, %v; want %v", back, next.Due, stays, err, want)
		}
	}
}
