package runtime

import (
	"context"
	"errors"
	"fmt"
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

// parkedLog collects the reports of parked alarms.
type parkedLog struct {
	mu      sync.Mutex
	reports []ParkedAlarm
}

func (l *parkedLog) listener() Listener {
	return Listener{AlarmParked: func(p ParkedAlarm) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reports = append(l.reports, p)
	}}
}

// all returns the reports, after synctest.Wait.
func (l *parkedLog) all() []ParkedAlarm {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]ParkedAlarm(nil), l.reports...)
}

// slotOf returns the durable slot of an object.
func slotOf(t *testing.T, h *Host, name string) (objectstore.Slot, bool) {
	t.Helper()
	sn, err := h.store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	slot, ok, err := sn.Slot(id(name))
	if err != nil {
		t.Fatal(err)
	}
	return slot, ok
}

// die ends a host as the end of its process does, and returns its disk.
func die(h *Host, fs *objectstore.FS) *objectstore.FS {
	cut := fs.Crash(100, 1)
	h.Abandon()
	return cut
}

// TestAlarmSurvivesHostsThatDieBeforeItsHandlerBegins kills hosts ten seconds after their
// start, before the constructor of the object, which takes 20 s, has finished.
func TestAlarmSurvivesHostsThatDieBeforeItsHandlerBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var slow atomic.Bool
		var parked parkedLog
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(ctx context.Context, s *State) (any, error) {
			if slow.Load() {
				if err := Sleep(ctx, 20*time.Second); err != nil {
					return nil, err
				}
			}
			return &counter{s: s}, nil
		}
		fs := unclean(t, class, "a")
		slow.Store(true)
		for range 30 {
			h := open(t, fs, Options{Listener: parked.listener()}, class)
			time.Sleep(10 * time.Second)
			fs = die(h, fs)
		}
		h := open(t, fs, Options{Listener: parked.listener()}, class)
		slot, ok := slotOf(t, h, "a")
		if c := slot.Charge; !ok || slot.Parked != 0 || c.Deaths != 0 || c.Lost < 5 {
			t.Errorf("after 30 deaths: slot %+v, %v", slot, ok)
		}
		slow.Store(false)
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) != 1 || rs[0].attempt != 0 {
			t.Errorf("runs %v", rs)
		}
		if _, ok := slotOf(t, h, "a"); ok || len(parked.all()) > 0 {
			t.Errorf("still set: %v; parked %v", ok, parked.all())
		}
	})
}

// TestAlarmWhoseConstructorEndsTheProcessBacksOff starts the host again whenever the
// constructor has ended it, for a day. The other alarm runs in the first of these hosts.
func TestAlarmWhoseConstructorEndsTheProcessBacksOff(t *testing.T) {
	for name, before := range map[string]func(context.Context, *State) error{
		"immediately": func(context.Context, *State) error { return nil },
		"after it has set the alarm durably": func(ctx context.Context, s *State) error {
			return errors.Join(s.SetAlarm(ctx, time.Now()), Sync(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testConstructorThatEndsTheProcess(t, before) })
		})
	}
}

func testConstructorThatEndsTheProcess(t *testing.T, before func(context.Context, *State) error) {
	log := newRunLog()
	var died chan struct{}
	var parked parkedLog
	bad := false
	class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
	class.New = func(ctx context.Context, s *State) (any, error) {
		if bad && s.ID().Name == "poison" {
			if err := before(ctx, s); err != nil {
				return nil, err
			}
			close(died)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &counter{s: s}, nil
	}
	fs := unclean(t, class, "good", "poison")
	bad = true
	start, deaths := time.Now(), 0
	for time.Since(start) < 24*time.Hour {
		died = make(chan struct{})
		h := open(t, fs, Options{Listener: parked.listener()}, class)
		<-died
		synctest.Wait()
		if deaths++; deaths > 1000 {
			t.Fatal("it does not back off")
		}
		fs = die(h, fs)
	}
	if n := len(log.of("good")); n != 1 {
		t.Errorf("the other ran %d times", n)
	}
	if deaths > 24*4+20 || len(parked.all()) > 0 {
		t.Errorf("%d deaths in a day, parked %v", deaths, parked.all())
	}
	bad = false
	h := open(t, fs, Options{}, class)
	time.Sleep(time.Hour)
	if n := len(log.of("poison")); n != 1 {
		t.Errorf("it ran %d times in the end", n)
	}
	if _, ok := slotOf(t, h, "poison"); ok {
		t.Error("it is still set")
	}
}

// TestAlarmParkedIsKeptReportedAndRevived parks an alarm in each possible way, and revives
// it.
func TestAlarmParkedIsKeptReportedAndRevived(t *testing.T) {
	long := strings.Repeat("long ", 200)
	for name, c := range map[string]struct {
		handle    func(ctx context.Context, c *counter) error
		construct error
		unhandled bool
		runs      int
		want      ParkedAlarm
	}{
		"error": {
			handle: func(context.Context, *counter) error { return errors.New(long) },
			runs:   alarm.MaxRuns, want: ParkedAlarm{Reason: objectstore.ParkedFailed, Attempts: 7, Err: long[:512]},
		},
		"panic": {
			handle: func(context.Context, *counter) error { panic("no") },
			runs:   alarm.MaxRuns, want: ParkedAlarm{Reason: objectstore.ParkedFailed, Attempts: 7, Err: "panic: no"},
		},
		"limit": {
			handle: func(ctx context.Context, _ *counter) error { return Sleep(ctx, time.Hour) },
			runs:   alarm.MaxRuns, want: ParkedAlarm{
				Reason: objectstore.ParkedFailed, Attempts: 7, Err: "dohost: incarnation fenced: alarm handler took too long",
			},
		},
		"abort": {
			handle: func(ctx context.Context, c *counter) error { return c.s.Abort(ctx, errors.New("enough"), false) },
			runs:   alarm.MaxRuns, want: ParkedAlarm{Reason: objectstore.ParkedFailed, Attempts: 7, Err: "enough"},
		},
		"constructor": {
			construct: errors.New("the other service is down"),
			want:      ParkedAlarm{Reason: objectstore.ParkedConstructor, Attempts: 7, Err: "the other service is down"},
		},
		"no handler": {
			unhandled: true, want: ParkedAlarm{Reason: objectstore.ParkedNoHandler, Err: ErrNoAlarmHandler.Error()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, bad := newRunLog(), false
				var parked parkedLog
				class := log.class(func(ctx context.Context, co *counter, _ alarm.Info) error {
					if bad && c.handle != nil {
						return c.handle(ctx, co)
					}
					return nil
				})
				class.New = func(_ context.Context, s *State) (any, error) {
					if bad && c.construct != nil {
						return nil, c.construct
					}
					return &counter{s: s}, nil
				}
				fs := objectstore.NewMemFS()
				h := open(t, fs, Options{Grace: -1}, class)
				setAlarm(t, h, "a", time.Minute)
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
				bad = true
				broken := class
				if c.unhandled {
					broken.Alarm = nil
				}
				h = open(t, fs, Options{Listener: parked.listener(), Grace: -1}, broken)
				time.Sleep(24 * time.Hour)
				reports := parked.all()
				c.want.ID = id("a")
				if len(reports) != 1 {
					t.Fatalf("parked %+v", reports)
				}
				if c.want.Scheduled = reports[0].Scheduled; reports[0] != c.want || time.Since(c.want.Scheduled) > 24*time.Hour {
					t.Errorf("parked %+v, want %+v", reports[0], c.want)
				}
				if rs := log.of("a"); len(rs) != c.runs {
					t.Errorf("runs %v", rs)
				}
				bad = false
				h.Evict(id("a"), eviction.EndFence)
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}

				// It is parked in the next host too, for the object and for operators.
				h = open(t, fs, Options{}, class)
				time.Sleep(24 * time.Hour)
				if _, ok := getAlarm(t, h, "a"); ok {
					t.Error("GetAlarm returns the parked alarm")
				}
				err := do(t.Context(), h, "a", "see", func(ctx context.Context, co *counter) error {
					p, ok, err := co.s.ParkedAlarm(ctx)
					if p != c.want || !ok {
						t.Errorf("the object sees %+v, %v; want %+v", p, ok, c.want)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
				var listed []ParkedAlarm
				for p, err := range h.ParkedAlarms(t.Context(), "", ID{}) {
					if listed = append(listed, p); err != nil {
						t.Error(err)
					}
				}
				if len(listed) != 1 || listed[0] != c.want {
					t.Errorf("listed %+v, want %+v", listed, c.want)
				}
				before := len(log.of("a"))
				if ok, err := h.ReviveAlarm(t.Context(), id("a")); !ok || err != nil {
					t.Errorf("revived: %v, %v", ok, err)
				}
				if rs := log.of("a"); len(rs) != before+1 || rs[before].attempt != 0 {
					t.Errorf("after reviving: runs %v", rs)
				}
				if ok, err := h.ReviveAlarm(t.Context(), id("a")); ok || err != nil {
					t.Errorf("revived again: %v, %v", ok, err)
				}
				if _, ok := slotOf(t, h, "a"); ok {
					t.Error("it is still set")
				}
			})
		})
	}
}

// TestAlarmParkedIsReplacedByItsObject sets and deletes alarms that are parked.
func TestAlarmParkedIsReplacedByItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var good atomic.Bool
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(context.Context, *counter, alarm.Info) error {
			if !good.Load() {
				return errors.New("no")
			}
			return nil
		}))
		for _, name := range []string{"set", "deleted", "left"} {
			setAlarm(t, h, name, time.Second)
		}
		time.Sleep(time.Hour)
		good.Store(true)
		setAlarm(t, h, "set", time.Second)
		err := do(t.Context(), h, "deleted", "delete", func(ctx context.Context, c *counter) error { return c.s.DeleteAlarm(ctx) })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for name, runs := range map[string]int{"set": 8, "deleted": 7, "left": 7} {
			if rs := log.of(name); len(rs) != runs {
				t.Errorf("%s: runs %v", name, attempts(rs))
			}
			if slot, ok := slotOf(t, h, name); ok != (name == "left") {
				t.Errorf("%s: slot %+v, %v", name, slot, ok)
			}
		}
	})
}

// TestAlarmRevivalDoesNotWakeAColdObject revives alarms of an object that is out of
// memory and has a failing constructor, and of one that is busy.
func TestAlarmRevivalDoesNotWakeAColdObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		var bad atomic.Bool
		var births atomic.Int64
		bad.Store(true)
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(_ context.Context, s *State) (any, error) {
			if births.Add(1) > 2 && bad.Load() {
				return nil, errors.New("no")
			}
			return &counter{s: s}, nil
		}
		h := open(t, objectstore.NewMemFS(), Options{Limits: Limits{Turn: -1}}, class)
		for _, name := range []string{"cold", "busy"} {
			setAlarm(t, h, name, time.Second)
			h.Evict(id(name), eviction.EndFence)
		}
		time.Sleep(time.Hour)
		bad.Store(false)
		hold := make(chan struct{})
		goDo(t.Context(), h, "busy", "hold", func(context.Context, *counter) error { <-hold; return nil })
		synctest.Wait()
		before := births.Load()
		done := make(chan error, 1)
		go func() {
			ok, err := h.ReviveAlarm(t.Context(), id("busy"))
			if !ok && err == nil {
				err = errors.New("it was not parked")
			}
			done <- err
		}()
		bad.Store(true) // a wake by the revival would fail
		if ok, err := h.ReviveAlarm(t.Context(), id("cold")); !ok || err != nil {
			t.Errorf("cold: %v, %v", ok, err)
		}
		synctest.Wait()
		if n := births.Load() - before; n != 1 { // by the delivery
			t.Errorf("%d incarnations since", n)
		}
		bad.Store(false)
		close(hold)
		if err := <-done; err != nil {
			t.Errorf("busy: %v", err)
		}
		time.Sleep(time.Hour)
		if rs := log.of("cold"); len(rs) != 1 || rs[0].attempt != 1 {
			t.Errorf("cold: runs %v", rs)
		}
		if rs := log.of("busy"); len(rs) != 1 || rs[0].attempt != 0 {
			t.Errorf("busy: runs %v", rs)
		}
		if ok, err := h.ReviveAlarm(t.Context(), ID{Class: "none", Name: "a"}); ok || !errors.Is(err, ErrNoClass) {
			t.Errorf("no class: %v, %v", ok, err)
		}
	})
}

// TestAlarmBackoffSurvivesAConstructorThatSetsTheAlarm has a constructor that sets the
// alarm for now, and a handler that panics, which ends the incarnation.
func TestAlarmBackoffSurvivesAConstructorThatSetsTheAlarm(t *testing.T) {
	for _, in := range []time.Duration{0, 10 * time.Second} {
		t.Run(fmt.Sprint("in ", in), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, bad := newRunLog(), true
				var parked parkedLog
				class := log.class(func(context.Context, *counter, alarm.Info) error {
					if bad {
						panic("no")
					}
					return nil
				})
				class.New = func(ctx context.Context, s *State) (any, error) {
					return &counter{s: s}, s.SetAlarm(ctx, time.Now().Add(in))
				}
				h := open(t, objectstore.NewMemFS(), Options{Listener: parked.listener()}, class)
				if err := do(t.Context(), h, "a", "wake", func(context.Context, *counter) error { return nil }); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				rs := log.of("a")
				if len(rs) != alarm.MaxRuns || len(parked.all()) != 1 {
					t.Fatalf("%d runs, parked %v", len(rs), parked.all())
				}
				for i := 1; i < len(rs); i++ {
					least := 2 * time.Second << (i - 1)
					if i > 1 { // the first run did not wake the object
						least = max(least, in)
					}
					if gap := rs[i].at - rs[i-1].at; rs[i].attempt != i || gap < least || gap > least+least/4+time.Second {
						t.Errorf("attempt %d comes %v after the one before, want %v", rs[i].attempt, gap, least)
					}
				}
				// A run that succeeds leaves the alarm that the constructor has set, without its counts.
				bad = false
				h.Evict(id("a"), eviction.EndFence)
				if _, err := h.ReviveAlarm(t.Context(), id("a")); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				time.Sleep(in + time.Second)
				if rs := log.of("a"); len(rs) != alarm.MaxRuns+2 || rs[alarm.MaxRuns+1].attempt != 0 {
					t.Errorf("runs %v", rs)
				}
			})
		})
	}
}

// TestAlarmThatEndsEachProcessAndIsSetAgainIsParked has a handler that ends the process after its object has
// set the alarm: in the constructor, or in the handler, in a batch that becomes durable.
func TestAlarmThatEndsEachProcessAndIsSetAgainIsParked(t *testing.T) {
	for _, where := range []string{"constructor", "handler"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := newRunLog()
				var parked parkedLog
				var died chan struct{}
				dead := true
				class := log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
					if where == "handler" {
						if err := errors.Join(c.s.SetAlarm(ctx, time.Now()), Sync(ctx)); err != nil {
							return err
						}
					}
					close(died)
					<-ctx.Done()
					return ctx.Err()
				})
				class.New = func(ctx context.Context, s *State) (any, error) {
					if where == "constructor" && !dead {
						return &counter{s: s}, s.SetAlarm(ctx, time.Now())
					}
					return &counter{s: s}, nil
				}
				fs := unclean(t, class, "a")
				dead = false
				for deaths := 0; len(parked.all()) == 0; deaths++ {
					if deaths > 20 {
						slot, _ := slotOf(t, open(t, fs, Options{}, class), "a")
						t.Fatalf("it does not end: %+v", slot)
					}
					died = make(chan struct{})
					h := open(t, fs, Options{Listener: parked.listener()}, class)
					select {
					case <-died:
					case <-time.After(time.Hour):
					}
					fs = die(h, fs)
				}
				if p := parked.all()[0]; p.Reason != objectstore.ParkedDeaths || p.Deaths != alarm.MaxDeaths || p.Attempts != 0 {
					t.Errorf("parked %+v", p)
				}
				if n := len(log.of("a")); n > alarm.MaxDeaths+2 {
					t.Errorf("it ran %d times", n)
				}
			})
		})
	}
}

// TestAlarmsOfOneClassDoNotDelayAnotherClass has a thousand handlers that wait, without an
// Await, for 14 minutes, and one alarm of each of two other classes.
func TestAlarmsOfOneClassDoNotDelayAnotherClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		late := map[string]time.Duration{}
		class := func(name string, handle func(context.Context)) Class {
			return Class{Name: name, New: newCounter, Alarm: func(ctx context.Context, _ any, info alarm.Info) error {
				mu.Lock()
				late[name] = max(late[name], time.Since(info.Scheduled))
				mu.Unlock()
				handle(ctx)
				return nil
			}}
		}
		hang := func(ctx context.Context) {
			select {
			case <-time.After(14 * time.Minute):
			case <-ctx.Done():
			}
		}
		h := open(t, objectstore.NewMemFS(), Options{Limits: Limits{Turn: -1}},
			class("slow1", hang), class("slow2", hang), class("good", func(context.Context) {}))
		set := func(class, name string, at time.Time) {
			err := h.Do(t.Context(), ID{Class: class, Name: name}, Call{Op: "set", Handler: Func(func(ctx context.Context, o any) error {
				return o.(*counter).s.SetAlarm(ctx, at)
			})})
			if err != nil {
				t.Fatal(err)
			}
		}
		due := time.Now().Add(time.Minute)
		for i := range 600 {
			set("slow1", fmt.Sprint(i), due)
			set("slow2", fmt.Sprint(i), due)
		}
		for i := range 100 {
			set("good", fmt.Sprint(i), due.Add(time.Second))
		}
		time.Sleep(3 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if d, ran := late["good"]; !ran || d > time.Second {
			t.Errorf("an alarm of another class was %v late, ran: %v", d, ran)
		}
	})
}

// TestAlarmLatenessIsNeverNegative delivers an alarm when the host starts, long before it
// is due.
func TestAlarmLatenessIsNeverNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{}, class)
		err := do(t.Context(), h, "a", "set", func(ctx context.Context, c *counter) error {
			return c.s.SetStartAlarm(ctx, time.Now().Add(30*time.Second))
		})
		if err != nil {
			t.Fatal(err)
		}
		fs = die(h, fs)
		var late []time.Duration
		open(t, fs, Options{Listener: Listener{AlarmEnded: func(a Alarm) { late = append(late, a.Late) }}}, class)
		time.Sleep(time.Second)
		if synctest.Wait(); len(late) != 1 || late[0] < 0 || late[0] > time.Second {
			t.Errorf("late by %v", late)
		}
	})
}

// TestAlarmIsRevivedAfterItsObjectHasLeftTheTable revives an alarm when the table still has an object that was removed.
func TestAlarmIsRevivedAfterItsObjectHasLeftTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		c, err := h.classOf(id("a"))
		if err != nil {
			t.Fatal(err)
		}
		o := c.objectOf("a")
		o.mu.Lock()
		o.markRemovedLocked()
		o.mu.Unlock()
		if ok, err := h.ReviveAlarm(t.Context(), id("a")); ok || err != nil {
			t.Errorf("revived: %v, %v", ok, err)
		}
		if c.objectOf("a") == o {
			t.Error("the table still has the object")
		}
	})
}
