package runtime

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
)

// TestAlarmRunEndedWhileItIsChargedIsNotCounted ends the incarnation of an object at each place
// that a delivery passes while it charges its run, because the object was in use when the
// host started after an unclean end. No run has failed, so none may count.
func TestAlarmRunEndedWhileItIsChargedIsNotCounted(t *testing.T) {
	var cut [3]int
	for place := range eviction.PlaceEnd + 1 {
		for mode := eviction.EndFence; mode <= eviction.EndCrash; mode++ {
			for visit := int32(1); visit <= 2; visit++ {
				synctest.Test(t, func(t *testing.T) {
					log := newRunLog()
					class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
					fs := unclean(t, class, "a")
					var visits atomic.Int32
					h := open(t, fs, Options{Policy: Policy{At: func(p Point) eviction.EndMode {
						if (p.Op == "alarm" || p.Op == "record") && p.Place == place && visits.Add(1) == visit {
							return mode
						}
						return eviction.EndNone
					}}}, class)
					hold := make(chan struct{})
					go do(t.Context(), h, "a", "use", func(context.Context, *counter) error { <-hold; return nil })
					time.Sleep(time.Minute)
					close(hold)
					time.Sleep(time.Hour)
					rs := log.of("a")
					if len(rs) == 0 || len(rs) > 2 {
						t.Errorf("mode %d at %v, visit %d: it ran %d times", mode, place, visit, len(rs))
					}
					for _, r := range rs {
						if r.attempt != 0 {
							t.Errorf("mode %d at %v, visit %d: attempts %v", mode, place, visit, attempts(rs))
						}
					}
					if visits.Load() >= visit {
						cut[visit]++
					}
				})
			}
		}
	}
	// Ten places are reached. The Go scheduler decides whether the recording goroutine
	// waits for the turn and gets it.
	if cut[1] < 27 {
		t.Errorf("only %d incarnations were ended at a first visit", cut[1])
	}
	t.Logf("%d incarnations were ended at a first visit, %d at a second", cut[1], cut[2])
}

// TestAlarmRunDoesNotBeginAfterFailedCharge ends an incarnation while the alarm of a suspect waits for the durable charge of its run. A process
// has ended before, in the constructor for that alarm. The handler begins once, in the next incarnation.
func TestAlarmRunDoesNotBeginAfterFailedCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var slow atomic.Bool
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(ctx context.Context, s *State) (any, error) {
			if slow.Load() {
				if err := Sleep(ctx, time.Minute); err != nil {
					return nil, err
				}
			}
			return &counter{s: s}, nil
		}
		fs := unclean(t, class, "a")
		slow.Store(true)
		h := open(t, fs, Options{}, class)
		time.Sleep(time.Second)
		fs = die(h, fs)
		slow.Store(false)
		var waits atomic.Int32
		open(t, fs, Options{Policy: Policy{At: func(p Point) eviction.EndMode {
			if p.Op == "alarm" && p.Place == eviction.PlaceResume && waits.Add(1) == 1 {
				return eviction.EndFence
			}
			return eviction.EndNone
		}}}, class)
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) != 1 || rs[0].attempt != 0 || waits.Load() == 0 {
			t.Errorf("the handler ran in the attempts %v, after %d waits for the charge", attempts(rs), waits.Load())
		}
	})
}
