package alarm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// TestWaitingDeliveriesMakeRoom has deliveries that wait, up to a bound of their
// own, and takes all of them back: then as many as ever may be out.
func TestWaitingDeliveriesMakeRoom(t *testing.T) {
	for _, atBoot := range []bool{false, true} {
		t.Run(fmt.Sprint("at boot ", atBoot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rooms = 4
				x := newIndex()
				for i := range 200 {
					due := time.Now().Add(-time.Minute)
					if atBoot {
						due = time.Now().Add(100 * time.Hour)
					}
					x.set(fmt.Sprintf("n%03d", i), due, func(s *objectstore.Slot) { s.AtBoot = atBoot })
				}
				c := Config{Concurrency: rooms}
				if atBoot {
					c = Config{Group: rooms}
				}
				s := x.start(c)
				s.Start()
				synctest.Wait()
				out := 0
				next := func(want int, what string) []objectstore.Alarm {
					t.Helper()
					synctest.Wait()
					x.mu.Lock()
					defer x.mu.Unlock()
					fresh := x.delivered[out:]
					if out += len(fresh); len(fresh) != want {
						t.Fatalf("%d %s, want %d", len(fresh), what, want)
					}
					return fresh
				}
				first := next(rooms, "at first")
				for range 2 { // twice counts once
					for _, a := range first {
						s.Waits(a)
					}
				}
				second := next(rooms, "more, once those wait")
				for _, a := range append(first, second...) {
					x.done(a, false)
				}
				third := next(rooms, "once all are back")
				for _, a := range third[:rooms/2] {
					x.done(a, false)
				}
				next(rooms/2, "once half of them are back")
				s.Stop()
			})
		})
	}
}

// TestAllThatAreOutAreBounded has every delivery wait at once.
func TestAllThatAreOutAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		for i := range 200 {
			x.set(fmt.Sprintf("n%03d", i), time.Now().Add(-time.Minute), nil)
		}
		s := x.start(Config{Concurrency: 4})
		x.onDeliver = func(a objectstore.Alarm) { s.Waits(a) }
		s.Start()
		synctest.Wait()
		if n := len(x.names()); n != 16*4 {
			t.Errorf("%d are out", n)
		}
		s.Stop()
	})
}

// TestALateCountIsAskedForUntilItIsDone has a delivery cut off before it could count
// its run, and after.
func TestALateCountIsAskedForUntilItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []bool
		a := objectstore.Alarm{ID: id("n"), Due: time.Now().Add(-time.Minute), Generation: 1}
		s := NewScheduler(t.Context(), Config{
			Window: func(context.Context, objectstore.AlarmPos, int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
				return []objectstore.Alarm{a}, a.Pos(), nil
			},
			Unclean: true,
			Raise: func(context.Context, []objectstore.Alarm, bool) ([]Delivery, []objectstore.ID) {
				return []Delivery{{Alarm: a, Raise: true}}, nil
			},
			Deliver: func(d Delivery) { asked = append(asked, d.Raise) },
		})
		s.Start()
		for i := range 4 {
			synctest.Wait()
			if i == 2 {
				s.Counted(a)
			}
			s.Done(a, true)
			time.Sleep(time.Minute)
		}
		s.Stop()
		if want := []bool{true, true, true, false, false}; !slices.Equal(asked, want) {
			t.Errorf("asked %v, want %v", asked, want)
		}
	})
}

// TestOneAlarmThatCannotBeCountedHoldsUpNoOthers has one such among the others, and
// one among the suspects.
func TestOneAlarmThatCannotBeCountedHoldsUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIndex()
		due := time.Now().Add(-time.Minute)
		for _, n := range []string{"a", "c", "z"} {
			x.set(n, due, nil)
		}
		x.set("bad", due, nil)
		x.set("bad suspect", due, raised)
		x.set("suspect", due, raised)
		s := x.start(Config{Unclean: true})
		s.cfg.Raise = func(ctx context.Context, as []objectstore.Alarm, suspects bool) (ds []Delivery, failed []objectstore.ID) {
			for _, a := range as {
				if strings.HasPrefix(a.ID.Name, "bad") && (suspects || a.ID.Name == "bad") {
					failed = append(failed, a.ID)
					continue
				}
				d, _ := x.raise(ctx, []objectstore.Alarm{a}, suspects)
				ds = append(ds, d...)
			}
			return ds, failed
		}
		x.onDeliver = func(a objectstore.Alarm) { go x.done(a, false) }
		s.Start()
		time.Sleep(time.Hour)
		s.Stop()
		got := x.names()
		if last := len(got) - 1; last != 3 || got[last] != "suspect" || !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "c", "suspect", "z"}) {
			t.Errorf("delivered %v", got)
		}
		time.Sleep(time.Minute)
	})
}
