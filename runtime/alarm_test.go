package runtime

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// run is a recorded run of an alarm handler.
type run struct {
	name    string
	attempt int
	at      time.Duration // since the log began
}

// runLog records the runs of alarm handlers.
type runLog struct {
	start time.Time
	mu    sync.Mutex
	runs  []run
}

func newRunLog() *runLog { return &runLog{start: time.Now()} }

func (l *runLog) note(c *counter, i alarm.Info) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, run{c.s.ID().Name, i.Attempt, time.Since(l.start)})
}

// of lists the runs of an object, after synctest.Wait.
func (l *runLog) of(name string) []run {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	var own []run
	for _, r := range l.runs {
		if r.name == name {
			own = append(own, r)
		}
	}
	return own
}

func attempts(rs []run) (as []int) {
	for _, r := range rs {
		as = append(as, r.attempt)
	}
	return as
}

// class returns a class with an alarm handler that records each run, and then calls handle.
func (l *runLog) class(handle func(ctx context.Context, c *counter, i alarm.Info) error) Class {
	return Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, i alarm.Info) error {
		l.note(o.(*counter), i)
		return handle(ctx, o.(*counter), i)
	}}
}

func setAlarm(t *testing.T, h *Host, name string, in time.Duration) {
	t.Helper()
	err := do(t.Context(), h, name, "set", func(ctx context.Context, c *counter) error {
		return c.s.SetAlarm(ctx, time.Now().Add(in))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func getAlarm(t *testing.T, h *Host, name string) (in time.Duration, ok bool) {
	t.Helper()
	err := do(t.Context(), h, name, "get", func(ctx context.Context, c *counter) error {
		at, set, err := c.s.GetAlarm(ctx)
		ok, in = set, time.Until(at)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return in, ok
}

func TestAlarmSetForNowInItsOwnHandlerIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		left := 5
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
			if left--; left == 0 {
				return nil
			}
			return c.s.SetAlarm(ctx, time.Now())
		}))
		setAlarm(t, h, "a", 0)
		time.Sleep(time.Minute)
		if got := attempts(log.of("a")); !slices.Equal(got, make([]int, 5)) {
			t.Errorf("attempts %v", got)
		}
		if _, ok := getAlarm(t, h, "a"); ok {
			t.Error("a slot is left")
		}
	})
}

// An alarm for now is due immediately, also between two milliseconds; a later one is never early.
func TestAlarmSetForNowDoesNotWaitForTheNextMillisecond(t *testing.T) {
	for _, c := range []struct{ in, want time.Duration }{
		{-time.Hour, 0}, {-time.Nanosecond, 0}, {0, 0},
		{time.Nanosecond, 700 * time.Microsecond}, {700 * time.Microsecond, 700 * time.Microsecond}, {time.Millisecond, 1700 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(300 * time.Microsecond)
			log := newRunLog()
			h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(_ context.Context, _ *counter, i alarm.Info) error {
				if early := time.Until(i.Scheduled); early > 0 {
					t.Errorf("in %v: the alarm runs %v early", c.in, early)
				}
				return nil
			}))
			setAlarm(t, h, "a", c.in)
			time.Sleep(time.Second)
			if got := log.of("a"); !slices.Equal(got, []run{{"a", 0, c.want}}) {
				t.Errorf("in %v: the runs are %v, want one after %v", c.in, got, c.want)
			}
		})
	}
}

// A handler that does not give up the turn takes effect exactly once, at every power
// failure. Unsynced writes may be lost or found.
func TestAlarmTakesEffectOnceWhereverThePowerFails(t *testing.T) {
	for _, percent := range []int{0, 100} {
		crashed := 0
		for k := int64(1); ; k++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				class := log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
					_, err := c.add(ctx, 1)
					return err
				})
				fs := objectstore.NewMemFS()
				// Time for the committer between two commits, if there are two.
				pause := Policy{At: func(p Point) eviction.EndMode {
					if p.Place == eviction.PlaceCommit {
						time.Sleep(time.Millisecond)
					}
					return eviction.EndNone
				}}
				h := open(t, fs, Options{Policy: pause}, class)
				setAlarm(t, h, "a", time.Minute)
				var cut *objectstore.FS
				var mu sync.Mutex
				fs.OnWrite(func(_, _ string, n int64) error {
					if n == k {
						mu.Lock()
						defer mu.Unlock()
						cut = fs.Crash(percent, uint64(k))
					}
					return nil
				})
				time.Sleep(time.Hour)
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
				if reached = cut != nil; !reached {
					cut = fs
				}
				crashed++
				h = open(t, cut, Options{}, class)
				time.Sleep(time.Hour)
				if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1 {
					t.Fatalf("power cut at write %d, %d%% of the rest survives: the alarm took effect %d times, %v", k, percent, n, err)
				}
				if _, ok := getAlarm(t, h, "a"); ok {
					t.Fatalf("power cut at write %d: the alarm is still set", k)
				}
			})
			if !reached {
				break
			}
		}
		if crashed < 5 {
			t.Errorf("only %d places to crash at", crashed)
		}
	}
}

func TestAlarmSetInConstructorIsNotPostponedByItsOwnWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(ctx context.Context, s *State) (any, error) {
			return &counter{s: s}, s.SetAlarm(ctx, time.Now().Add(time.Hour))
		}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			synctest.Wait()
			h.Evict(id("a"), eviction.EndFence) // so that the alarm's own wake runs the constructor
			time.Sleep(time.Hour + time.Second)
		}
		if rs := log.of("a"); len(rs) != 5 {
			t.Errorf("%d runs in 5 hours: %v", len(rs), rs)
		}
	})
}

// A change of the alarm by another event counts, although the delivery is on its way.
func TestAlarmDeliverySupersededByAnEarlierEvent(t *testing.T) {
	for what, change := range map[string]func(context.Context, *State) error{
		"deleted":   func(ctx context.Context, s *State) error { return s.DeleteAlarm(ctx) },
		"moved":     func(ctx context.Context, s *State) error { return s.SetAlarm(ctx, time.Now().Add(time.Hour)) },
		"wiped":     func(ctx context.Context, s *State) error { return s.DeleteAll(ctx) },
		"unchanged": func(context.Context, *State) error { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
				h := open(t, objectstore.NewMemFS(), Options{}, class)
				setAlarm(t, h, "a", 10*time.Second)
				goDo(t.Context(), h, "a", "hold", func(ctx context.Context, c *counter) error { <-ctx.Done(); return nil })
				synctest.Wait()
				goDo(t.Context(), h, "a", "change", func(ctx context.Context, c *counter) error { return change(ctx, c.s) })
				time.Sleep(20 * time.Second)        // the delivery queues after these events
				h.Evict(id("a"), eviction.EndFence) // and moves with it
				time.Sleep(time.Second)
				want := 0
				if what == "unchanged" {
					want = 1
				}
				if rs := log.of("a"); len(rs) != want {
					t.Errorf("runs %v", rs)
				}
				time.Sleep(2 * time.Hour)
				if what == "moved" {
					want = 1
				}
				if rs := log.of("a"); len(rs) != want {
					t.Errorf("runs %v", rs)
				}
			})
		})
	}
}

func TestAlarmDeletedInItsHandlerIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
			return errors.Join(c.s.DeleteAlarm(ctx), errors.New("no"))
		}))
		setAlarm(t, h, "a", 0)
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) != 1 {
			t.Errorf("runs %v", rs)
		}
	})
}

// Failed runs are counted, over restarts too; the seventh is the last, and an alarm that
// the handler has set stays.
func TestAlarmAttemptsAreCountedAcrossRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		class := log.class(func(ctx context.Context, c *counter, i alarm.Info) error {
			if len(log.runs) == alarm.MaxRuns {
				return errors.Join(errors.New("last"), c.s.SetAlarm(ctx, time.Now().Add(24*time.Hour)))
			}
			if i.Attempt%2 == 1 {
				panic("odd")
			}
			return errors.New("no")
		})
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{}, class)
		setAlarm(t, h, "a", 0)
		for range 10 {
			time.Sleep(10 * time.Second)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = open(t, fs, Options{}, class)
		}
		time.Sleep(time.Hour)
		if got := attempts(log.of("a")); !slices.Equal(got, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("attempts %v", got)
		}
		if in, ok := getAlarm(t, h, "a"); !ok || in < 20*time.Hour {
			t.Errorf("the newer alarm: in %v, %v", in, ok)
		}
		time.Sleep(24 * time.Hour)
		if got := attempts(log.of("a")); len(got) < 8 || got[7] != 0 {
			t.Errorf("attempts %v", got)
		}
	})
}

func TestGetAlarmHidesTheRunningAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var inside []bool
		see := func(ctx context.Context, c *counter) error {
			_, ok, err := c.s.GetAlarm(ctx)
			inside = append(inside, ok)
			return err
		}
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, i alarm.Info) error {
			err := see(ctx, c) // none
			if i.Attempt == 0 {
				return errors.Join(err, errors.New("no"))
			}
			err = errors.Join(err, c.s.SetAlarm(ctx, time.Now().Add(time.Hour)), see(ctx, c)) // the handler's own alarm
			return errors.Join(err, c.s.DeleteAlarm(ctx))
		}))
		setAlarm(t, h, "a", time.Second)
		time.Sleep(1500 * time.Millisecond)
		if in, ok := getAlarm(t, h, "a"); !ok || in < time.Second || in > 3*time.Second {
			t.Errorf("between a failure and its retry: in %v, %v", in, ok)
		}
		time.Sleep(time.Minute)
		if _, ok := getAlarm(t, h, "a"); ok || !slices.Equal(inside, []bool{false, false, true}) {
			t.Errorf("seen inside the handler: %v; after: %v", inside, ok)
		}
	})
}

func TestAlarmHandlerHasFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, i alarm.Info) error {
			if i.Attempt > 0 {
				return nil
			}
			_, err := c.add(ctx, 1)
			return errors.Join(err, Sleep(ctx, time.Hour))
		}))
		setAlarm(t, h, "a", 0)
		time.Sleep(time.Hour)
		rs := log.of("a")
		if !slices.Equal(attempts(rs), []int{0, 1}) {
			t.Fatalf("runs %v", rs)
		}
		if gap := rs[1].at - rs[0].at; gap < 15*time.Minute || gap > 15*time.Minute+5*time.Second {
			t.Errorf("cut off and retried after %v", gap)
		}
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1 {
			t.Errorf("what it handed over: %d, %v", n, err)
		}
	})
}

// A run that was cut off without a fault of its own is not counted.
func TestAlarmRunEndedByEvictionOrOtherEventIsNotCounted(t *testing.T) {
	for what, cut := range map[string]func(h *Host){
		"fence":   func(h *Host) { h.Evict(id("a"), eviction.EndFence) },
		"restart": func(h *Host) { h.Evict(id("a"), eviction.EndRestart) },
		"crash":   func(h *Host) { h.Evict(id("a"), eviction.EndCrash) },
		"panic of another event": func(h *Host) {
			_ = do(context.Background(), h, "a", "bad", func(context.Context, *counter) error { panic("oh") })
		},
		"abort by another event": func(h *Host) {
			_ = do(context.Background(), h, "a", "bad", func(ctx context.Context, c *counter) error {
				return c.s.Abort(ctx, errors.New("enough"), true)
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
					err := Sleep(ctx, time.Minute)
					if err != nil {
						return err
					}
					_, err = c.add(ctx, 1)
					return err
				}))
				setAlarm(t, h, "a", 0)
				for range 10 {
					time.Sleep(10 * time.Second)
					cut(h)
				}
				time.Sleep(time.Hour)
				if got := attempts(log.of("a")); !slices.Equal(got, make([]int, 11)) {
					t.Errorf("attempts %v", got)
				}
				if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1 {
					t.Errorf("%d, %v", n, err)
				}
			})
		})
	}
}

func TestAlarmIsRetriedOrDroppedAfterAbort(t *testing.T) {
	for _, drop := range []bool{false, true} {
		for _, newer := range []bool{false, true} {
			t.Run(fmt.Sprintf("drop %v, newer alarm %v", drop, newer), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log := newRunLog()
					h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(ctx context.Context, c *counter, i alarm.Info) error {
						if len(log.runs) > 1 {
							return nil
						}
						if newer {
							if err := errors.Join(c.s.SetAlarm(ctx, time.Now().Add(time.Hour)), Sync(ctx)); err != nil {
								return err
							}
						}
						if _, err := c.add(ctx, 1); err != nil {
							return err
						}
						return c.s.Abort(ctx, errors.New("enough"), drop)
					}))
					setAlarm(t, h, "a", 0)
					time.Sleep(3 * time.Hour)
					rs := log.of("a")
					switch {
					case newer:
						if len(rs) != 2 || rs[1].attempt != 0 || rs[1].at < time.Hour {
							t.Errorf("runs %v: the newer alarm stays", rs)
						}
					case drop:
						if len(rs) != 1 {
							t.Errorf("runs %v of a dropped alarm", rs)
						}
					default:
						if len(rs) != 2 || rs[1].attempt != 1 || rs[1].at > 3*time.Second {
							t.Errorf("runs %v", rs)
						}
					}
					if n, err := add(t.Context(), h, "a", 0); err != nil || n != 0 {
						t.Errorf("the aborted batch: %d, %v", n, err)
					}
				})
			})
		}
	}
}

// A constructor that fails is a failed run of the alarm that woke the object.
func TestAlarmAttemptCountsAFailingConstructor(t *testing.T) {
	for what, fail := range map[string]func(context.Context) error{
		"error": func(context.Context) error { return errors.New("no") },
		"panic": func(context.Context) error { panic("no") },
		"takes too long": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				var births []time.Duration
				var broken atomic.Bool
				class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
				class.New = func(ctx context.Context, s *State) (any, error) {
					if !broken.Load() {
						return &counter{s: s}, nil
					}
					births = append(births, time.Since(log.start))
					return nil, fail(ctx)
				}
				h := open(t, objectstore.NewMemFS(), Options{}, class)
				setAlarm(t, h, "a", time.Second)
				synctest.Wait()
				h.Evict(id("a"), eviction.EndFence)
				broken.Store(true)
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(births) != alarm.MaxRuns {
					t.Errorf("%d constructors for the alarm: %v", len(births), births)
				}
				broken.Store(false)
				if _, ok := getAlarm(t, h, "a"); ok {
					t.Error("the alarm is still set after its last run")
				}
				if len(log.of("a")) > 0 {
					t.Error("the handler ran without an object")
				}
			})
		})
	}
}

// badError is an error with methods that do not return.
type badError struct{ end func() }

func (e badError) Error() string   { e.end(); return "bad" }
func (e badError) Is(error) bool   { e.end(); return true }
func (e badError) As(any) bool     { e.end(); return true }
func (e badError) Unwrap() []error { e.end(); return nil }

// An error with methods that do not return fails the run like any other, and ends nothing else.
func TestAlarmFailsWithAnErrorWhoseMethodsDoNotReturn(t *testing.T) {
	for how, end := range map[string]func(){
		"panic": func() { panic("bad") }, "goexit": goruntime.Goexit, "hang": func() { time.Sleep(2 * time.Second) },
	} {
		for _, where := range []string{"constructor", "abort", "handler"} {
			t.Run(how+" in the "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					log, bad := newRunLog(), badError{end}
					var broken atomic.Bool
					class := log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
						if where == "abort" {
							return c.s.Abort(ctx, bad, false)
						}
						return bad
					})
					class.New = func(_ context.Context, s *State) (any, error) {
						if where == "constructor" && broken.Load() {
							return nil, bad
						}
						return &counter{s: s}, nil
					}
					h := open(t, objectstore.NewMemFS(), Options{}, class)
					setAlarm(t, h, "a", time.Second)
					h.Evict(id("a"), eviction.EndFence)
					broken.Store(true)
					time.Sleep(time.Hour)
					synctest.Wait()
					broken.Store(false)
					time.Sleep(time.Minute) // the constructor's delay
					var parked ParkedAlarm
					if err := do(t.Context(), h, "a", "parked", func(ctx context.Context, c *counter) (err error) {
						parked, _, err = c.s.ParkedAlarm(ctx)
						return err
					}); err != nil {
						t.Fatal(err)
					}
					if parked.Attempts != alarm.MaxRuns || !strings.Contains(parked.Err, "runtime.badError, whose text cannot be read: ") {
						t.Errorf("the parked alarm: %+v", parked)
					}
				})
			})
		}
	}
}

func TestAlarmDeliveryThatIsStaleRunsNoConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var births, stale atomic.Int32
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(_ context.Context, s *State) (any, error) {
			births.Add(1)
			return &counter{s: s}, nil
		}
		h := open(t, objectstore.NewMemFS(), Options{Listener: Listener{AlarmStale: func(ID) { stale.Add(1) }}}, class)
		setAlarm(t, h, "a", time.Hour)
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		h.deliver(alarm.Delivery{Alarm: objectstore.Alarm{ID: id("a"), Due: time.Now(), Generation: 1}})
		h.deliver(alarm.Delivery{Alarm: objectstore.Alarm{ID: id("never"), Due: time.Now(), Generation: 1}})
		time.Sleep(10 * time.Second)
		if births.Load() != 1 || stale.Load() != 2 || len(log.of("a")) > 0 {
			t.Errorf("%d constructors, %d stale, runs %v", births.Load(), stale.Load(), log.of("a"))
		}
		if h.lookup(id("never")) != nil {
			t.Error("an object that was only asked after stays in the table")
		}
		if in, ok := getAlarm(t, h, "a"); !ok || in < 59*time.Minute {
			t.Errorf("the alarm is set in %v, %v", in, ok)
		}
	})
}

// A delivery is superseded by a change that then is lost: the alarm is as before, and must
// fire.
func TestAlarmFiresAfterTheChangeThatSupersededItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		fs := objectstore.NewMemFS()
		// The sweeper would end an incarnation that waits for the disk during its check.
		h := open(t, fs, Options{Limits: Limits{Stall: -1}}, log.class(func(context.Context, *counter, alarm.Info) error { return nil }))
		setAlarm(t, h, "a", 10*time.Second)
		release := fs.HoldSyncs()
		goDo(t.Context(), h, "b", "in flight", func(ctx context.Context, c *counter) error { _, err := c.add(ctx, 1); return err })
		synctest.Wait()
		moved := goDo(t.Context(), h, "a", "move", func(ctx context.Context, c *counter) error {
			return c.s.SetAlarm(ctx, time.Now().Add(1000*time.Hour))
		})
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		time.Sleep(time.Minute) // the delivery finds the object cold, and the alarm moved
		goDo(t.Context(), h, "a", "look", func(ctx context.Context, c *counter) error { return nil })
		synctest.Wait()
		h.Evict(id("a"), eviction.EndCrash)
		if !moved.ended() || !errors.Is(moved.err, ErrFenced) {
			t.Fatalf("the change was not lost: %v", moved.err)
		}
		release()
		time.Sleep(time.Minute)
		if rs := log.of("a"); len(rs) != 1 {
			t.Errorf("runs %v", rs)
		}
	})
}

// An alarm with a handler that kills the process every time ends after MaxRuns, and its
// neighbours get their runs, at any position among them.
func TestAlarmThatEndsEachProcessIsParkedAndOthersRun(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("objects in use at the start: %v", busy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				var died chan struct{}
				var dying atomic.Bool
				class := log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
					if c.s.ID().Name == "poison" && !dying.Swap(true) {
						close(died)
						<-ctx.Done()
						return ctx.Err()
					}
					if dying.Load() {
						<-ctx.Done() // nothing happens in a process that has died
						return ctx.Err()
					}
					_, err := c.add(ctx, 1)
					return err
				})
				fs := objectstore.NewMemFS()
				h := open(t, fs, Options{}, class)
				names := []string{"poison"}
				for i := range 20 {
					names = append(names, fmt.Sprint("good", i))
				}
				for _, name := range names {
					setAlarm(t, h, name, time.Minute)
				}
				fs = fs.Crash(0, 1) // dies before they are due
				h.Close()
				time.Sleep(time.Hour)
				starts := 0
				for ended := false; !ended; starts++ {
					if starts > 3*alarm.MaxRuns {
						t.Fatal("the poison does not end")
					}
					died = make(chan struct{})
					dying.Store(false)
					h := open(t, fs, Options{Grace: -1}, class)
					if busy {
						goDo(t.Context(), h, "poison", "use", func(ctx context.Context, c *counter) error { return Sleep(ctx, time.Hour) })
					}
					select {
					case <-died:
						fs = fs.Crash(0, uint64(starts))
					case <-time.After(time.Hour):
						ended = true
					}
					h.Close()
				}
				if n := len(log.of("poison")); n != alarm.MaxRuns {
					t.Errorf("the poison ran %d times", n)
				}
				h = open(t, fs, Options{}, class)
				for _, name := range names {
					if _, ok := getAlarm(t, h, name); ok {
						t.Errorf("the alarm of %s is still set", name)
					}
					if n, err := add(t.Context(), h, name, 0); err != nil || (n != 1) != (name == "poison") {
						t.Errorf("%s took effect %d times, %v", name, n, err)
					}
				}
			})
		})
	}
}

func TestAlarmsDueAtOneInstantRunWithBoundedConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		var runs, inside, most atomic.Int32
		class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
			runs.Add(1)
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			return Sleep(ctx, 10*time.Millisecond)
		}}
		h := open(t, objectstore.NewMemFS(), Options{Policy: Policy{Idle: func(_ ID, _, _ uint64) time.Duration { return time.Second }}}, class)
		at := time.Now().Add(time.Hour)
		var wg sync.WaitGroup
		for w := range 100 {
			wg.Go(func() {
				for i := w; i < n; i += 100 {
					err := do(t.Context(), h, fmt.Sprint(i), "set", func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, at) })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(30 * time.Minute)
		if waiting, _ := h.scheduler.Pending(); waiting > 8192 || h.Live() > 0 {
			t.Errorf("%d alarms in memory, %d objects", waiting, h.Live())
		}
		time.Sleep(time.Hour)
		if runs.Load() != n || most.Load() > 16*256 {
			t.Errorf("%d runs, %d at once", runs.Load(), most.Load())
		}
	})
}

// TestConstructorOfAnEndedIncarnationDoesNotMoveADelivery ends an incarnation while its constructor runs and an alarm is queued. Each
// constructor sets the alarm again. The first one returns when the second one has: the alarm of the second one is delivered.
func TestConstructorOfAnEndedIncarnationDoesNotMoveADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, handler := make(chan bool), make(chan bool)
		var began, delivered atomic.Int32
		h := open(t, objectstore.NewMemFS(), Options{}, Class{
			Name: "counter",
			New: func(ctx context.Context, s *State) (any, error) {
				n := began.Add(1) - 1
				if n > 0 {
					if err := s.SetAlarm(ctx, time.Now().Add(time.Duration(n)*time.Hour)); err != nil {
						return nil, err
					}
				}
				if n == 1 {
					<-first
				}
				return &counter{s: s}, nil
			},
			Alarm: func(context.Context, any, alarm.Info) error { delivered.Add(1); return nil },
		})
		setAlarm(t, h, "a", time.Second)
		h.Evict(id("a"), eviction.EndFence)
		go func() {
			_ = do(t.Context(), h, "a", "wait", func(context.Context, *counter) error { <-handler; return nil })
		}()
		time.Sleep(2 * time.Second) // the constructor waits, and the delivery is queued
		h.Evict(id("a"), eviction.EndFence)
		synctest.Wait()
		close(first)
		synctest.Wait()
		close(handler)
		synctest.Wait()
		if began.Load() != 3 || delivered.Load() != 1 {
			t.Errorf("%d constructors, %d runs of the alarm; want 3 and 1", began.Load(), delivered.Load())
		}
	})
}
