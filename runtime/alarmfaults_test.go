package runtime

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// unclean returns the disk after a power cut, of a store where the named objects have an
// alarm that is due by now.
func unclean(t *testing.T, class Class, names ...string) *objectstore.FS {
	t.Helper()
	fs := objectstore.NewMemFS()
	h := open(t, fs, Options{}, class)
	for _, name := range names {
		setAlarm(t, h, name, time.Minute)
	}
	cut := fs.Crash(0, 1)
	h.store.Abandon() // so that it delivers none itself
	_ = h.Close()
	time.Sleep(2 * time.Minute)
	return cut
}

// TestAlarmOfABusyObjectDelaysNoOtherAlarm charges the runs of three alarms, as a
// host does after an unclean end, while one of the objects is in use.
func TestAlarmOfABusyObjectDelaysNoOtherAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		fs := unclean(t, class, "a", "b", "busy")
		h := open(t, fs, Options{Limits: Limits{Turn: -1}}, class)
		var before atomic.Int64 // runs before the call, which the alarm may have superseded
		go do(t.Context(), h, "busy", "long", func(context.Context, *counter) error {
			before.Store(int64(len(log.of("busy"))))
			time.Sleep(10 * time.Minute)
			return nil
		})
		time.Sleep(time.Minute)
		if len(log.of("a")) != 1 || len(log.of("b")) != 1 || int64(len(log.of("busy"))) != before.Load() {
			t.Errorf("after a minute: runs %v", log.runs)
		}
		time.Sleep(10 * time.Minute)
		if rs := log.of("busy"); len(rs) != 1 || rs[0].attempt != 0 {
			t.Errorf("runs %v", rs)
		}
	})
}

// TestAlarmAttemptOfABusyObjectIsCountedBeforeItRuns ends the process in every run, of an object
// that is in use whenever the host starts.
func TestAlarmAttemptOfABusyObjectIsCountedBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		died := make(chan struct{}, 1)
		class := log.class(func(ctx context.Context, c *counter, _ alarm.Info) error {
			died <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		fs := unclean(t, class, "a", "z")
		starts := 0
		for ; starts < 20; starts++ {
			h := open(t, fs, Options{Grace: -1}, class)
			hold := make(chan struct{})
			go do(t.Context(), h, "a", "use", func(context.Context, *counter) error { <-hold; return nil })
			time.Sleep(time.Minute)
			close(hold)
			time.Sleep(time.Minute)
			select {
			case <-died:
			default:
			}
			fs = fs.Crash(0, 1)
			h.store.Abandon()
			_ = h.Close()
			synctest.Wait()
		}
		for _, name := range []string{"a", "z"} {
			if n := len(log.of(name)); n != alarm.MaxDeaths+1 {
				t.Errorf("%s ran %d times: %v", name, n, attempts(log.of(name)))
			}
		}
		t.Logf("%d starts", starts)
	})
}

// TestAlarmsWaitingInHandlersDelayNoOthers has more waiting alarms than may start at a time.
func TestAlarmsWaitingInHandlersDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var soon, late atomic.Int32
		class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
			if o.(*counter).s.ID().Name == "other" {
				soon.Add(1)
				return nil
			}
			defer late.Add(1)
			return Sleep(ctx, 10*time.Minute)
		}}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		for i := range 300 {
			setAlarm(t, h, fmt.Sprint("slow", i), time.Second)
		}
		setAlarm(t, h, "other", 2*time.Second)
		time.Sleep(3 * time.Second)
		if soon.Load() != 1 || late.Load() != 0 {
			t.Errorf("the other ran %d times after %d slow ones", soon.Load(), late.Load())
		}
		time.Sleep(time.Hour)
		if late.Load() != 300 {
			t.Errorf("%d slow ones ran", late.Load())
		}
	})
}

// TestAlarmWithAnUnreadableSlotIsRetried damages the slot: before the delivery, and
// in the handler. The handler's effects must not happen without the alarm's end.
func TestAlarmWithAnUnreadableSlotIsRetried(t *testing.T) {
	damage := func(ctx context.Context, c *counter) error { // writes the row that the slot is in
		return errors.Join(c.s.Put(ctx, objectstore.Space('m'), []byte("s"), []byte{99}, false), Sync(ctx))
	}
	for _, inside := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told atomic.Int32
			lis := Listener{EventEnded: func(e Event) {
				if e.Op == "alarm" && errors.Is(e.Err, objectstore.ErrFormat) {
					told.Add(1)
				}
			}}
			class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
				c := o.(*counter)
				err := damage(ctx, c)
				_, err2 := c.add(ctx, 1)
				return errors.Join(err, err2)
			}}
			h := open(t, objectstore.NewMemFS(), Options{Listener: lis}, class)
			setAlarm(t, h, "a", time.Minute)
			if !inside {
				if err := do(t.Context(), h, "a", "damage", damage); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Hour)
			if n, err := add(t.Context(), h, "a", 0); n != 0 || err != nil {
				t.Errorf("took effect %d times, %v", n, err)
			}
			if n := told.Load(); n < 100 || n > 4000 {
				t.Errorf("tried %d times in an hour", n)
			}
		})
	}
}

// TestAlarmSetByConstructorInheritsNothingFromAnUnreadableSlot has a constructor that sets the alarm again when its slot cannot be read.
// The handler gets the setting of that alarm, not of an alarm without a generation.
func TestAlarmSetByConstructorInheritsNothingFromAnUnreadableSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var infos []alarm.Info
		sets := false
		class := Class{
			Name: "counter",
			New: func(ctx context.Context, s *State) (any, error) {
				if sets {
					return &counter{s: s}, s.SetAlarm(ctx, time.Now().Add(time.Hour))
				}
				return &counter{s: s}, nil
			},
			Alarm: func(_ context.Context, _ any, i alarm.Info) error { infos = append(infos, i); return nil },
		}
		h := open(t, objectstore.NewMemFS(), Options{}, class)
		setAlarm(t, h, "a", time.Minute)
		if err := do(t.Context(), h, "a", "damage", func(ctx context.Context, c *counter) error {
			return errors.Join(c.s.Put(ctx, objectstore.Space('m'), []byte("s"), []byte{99}, false), Sync(ctx))
		}); err != nil {
			t.Fatal(err)
		}
		sets = true
		h.Evict(id("a"), eviction.EndFence)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(infos) != 1 || alarm.SettingOf(infos[0]).Generation == 0 {
			t.Errorf("runs %+v; want one, with the generation of its alarm", infos)
		}
	})
}

// TestAlarmSetByAFailingConstructorIsParked has a constructor that sets the alarm, makes it durable, and then fails. The
// failed runs count in the alarm that it has set.
func TestAlarmSetByAFailingConstructorIsParked(t *testing.T) {
	for how, fail := range map[string]func(context.Context) error{
		"error":          func(context.Context) error { return errors.New("no") },
		"panic":          func(context.Context) error { panic("no") },
		"goexit":         func(context.Context) error { goruntime.Goexit(); return nil },
		"takes too long": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		for _, in := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprint(how, ", set in ", in), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testConstructorThatSetsTheAlarmAndFails(t, in, fail) })
			})
		}
	}
}

func testConstructorThatSetsTheAlarmAndFails(t *testing.T, in time.Duration, fail func(context.Context) error) {
	log := newRunLog()
	var parked parkedLog
	var births atomic.Int32
	var broken atomic.Bool
	class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
	class.New = func(ctx context.Context, s *State) (any, error) {
		if !broken.Load() {
			return &counter{s: s}, nil
		}
		births.Add(1)
		if err := errors.Join(s.SetAlarm(ctx, time.Now().Add(in)), Sync(ctx)); err != nil {
			return nil, err
		}
		return nil, fail(ctx)
	}
	h := open(t, objectstore.NewMemFS(), Options{Listener: parked.listener()}, class)
	setAlarm(t, h, "a", time.Second)
	synctest.Wait()
	h.Evict(id("a"), eviction.EndFence)
	broken.Store(true)
	time.Sleep(time.Hour)
	synctest.Wait()
	ps := parked.all()
	if n := births.Load(); n != alarm.MaxRuns || len(ps) != 1 || ps[0].Reason != objectstore.ParkedConstructor || ps[0].Attempts != alarm.MaxRuns {
		t.Fatalf("%d constructors in an hour, parked %+v", n, ps)
	}
	broken.Store(false)
	if ok, err := h.ReviveAlarm(t.Context(), id("a")); !ok || err != nil {
		t.Fatalf("revived %t, %v", ok, err)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if rs := log.of("a"); len(rs) != 1 || rs[0].attempt != 0 {
		t.Errorf("runs %v after it was revived", rs)
	}
}

// TestAlarmAttemptOnAFullDiskIsNotCounted writes in the handler while there is no room, for longer
// than seven tries take.
func TestAlarmAttemptOnAFullDiskIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		fs.SetFree(1 << 40)
		class := Class{Name: "counter", New: newCounter, Alarm: func(ctx context.Context, o any, _ alarm.Info) error {
			_, err := o.(*counter).add(ctx, 1)
			return err
		}}
		h := open(t, fs, Options{}, class)
		setAlarm(t, h, "a", time.Minute)
		fs.SetFree(0)
		for n := 0; ; n++ { // until it is noticed
			time.Sleep(time.Second)
			if _, err := add(t.Context(), h, "b", 1); errors.Is(err, objectstore.ErrNoSpace) {
				break
			} else if err != nil || n > 100_000 {
				t.Fatalf("%d adds, %v", n, err)
			}
		}
		time.Sleep(time.Hour)
		fs.SetFree(1 << 40)
		time.Sleep(5 * time.Minute)
		if n, err := add(t.Context(), h, "a", 0); n != 1 || err != nil {
			t.Errorf("the alarm took effect %d times, %v", n, err)
		}
	})
}

// TestAlarmConstructorOnAFullDiskIsNotCounted writes in the constructor.
func TestAlarmConstructorOnAFullDiskIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		log := newRunLog()
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(ctx context.Context, s *State) (any, error) {
			c := &counter{s: s}
			return c, c.put(ctx, "woke", 1)
		}
		h := open(t, fs, Options{}, class)
		setAlarm(t, h, "a", time.Minute)
		h.Evict(id("a"), eviction.EndFence)
		fs.SetFree(0)
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) > 0 {
			t.Errorf("runs %v", rs)
		}
		fs.SetFree(1 << 40)
		time.Sleep(5 * time.Minute)
		if rs := log.of("a"); len(rs) != 1 || rs[0].attempt != 0 {
			t.Errorf("runs %v", rs)
		}
	})
}

// TestAlarmFailureIsRecordedBeforeTheNextIncarnation checks that the failed run is
// recorded when the Listener gets the end of the incarnation, so that the next incarnation
// cannot begin without it.
func TestAlarmFailureIsRecordedBeforeTheNextIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		tries := 0
		class := log.class(func(context.Context, *counter, alarm.Info) error { return nil })
		class.New = func(_ context.Context, s *State) (any, error) {
			if tries++; tries == 2 {
				return nil, errors.New("no")
			}
			return &counter{s: s}, nil
		}
		var h *Host
		h = open(t, objectstore.NewMemFS(), Options{Listener: Listener{Fenced: func(e Ended) {
			if e.Cause.Reason != ReasonConstructor {
				return
			}
			o := h.lookup(id("a"))
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.deferredSlots == nil {
				t.Error("the next incarnation may begin, and the alarm's failure is not noted")
			}
		}}}, class)
		setAlarm(t, h, "a", time.Minute)
		h.Evict(id("a"), eviction.EndFence)
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) != 1 || rs[0].attempt != 1 {
			t.Errorf("runs %v", rs)
		}
	})
}

func TestSetAlarmRefusesTimesOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newRunLog()
		h := open(t, objectstore.NewMemFS(), Options{}, log.class(func(context.Context, *counter, alarm.Info) error { return nil }))
		for at, ok := range map[time.Time]bool{
			{}:                                 false,
			time.Unix(-1, 0):                   false,
			time.Unix(1<<62, 0):                false,
			time.Unix(1<<64/1000+2_000_000, 0): false, // its milliseconds do not fit
			time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC): false,
			time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC):  true,
		} {
			err := do(t.Context(), h, "a", "set", func(ctx context.Context, c *counter) error { return c.s.SetAlarm(ctx, at) })
			if ok != (err == nil) {
				t.Errorf("%v: %v", at, err)
			}
		}
		time.Sleep(time.Hour)
		if rs := log.of("a"); len(rs) > 0 {
			t.Errorf("runs %v", rs)
		}
	})
}

// TestAlarmThatReturnsAtItsLimitIsCounted lets the handler return between the mark of the fence and the end of the delivery.
func TestAlarmThatReturnsAtItsLimitIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, late := newRunLog(), make(chan struct{}, 1)
		class := log.class(func(ctx context.Context, _ *counter, i alarm.Info) error {
			if i.Attempt > 0 {
				return nil
			}
			return Wait(ctx, func(context.Context) error {
				<-late
				return nil
			})
		})
		h := open(t, objectstore.NewMemFS(), Options{Grace: -1, Listener: Listener{Fenced: func(e Ended) {
			if e.Cause.Reason == ReasonAlarm {
				late <- struct{}{}
				time.Sleep(time.Second) // in this time the handler returns
			}
		}}}, class)
		setAlarm(t, h, "a", time.Minute)
		time.Sleep(time.Hour)
		if got := fmt.Sprint(attempts(log.of("a"))); got != "[0 1]" {
			t.Errorf("the attempts are %s, want [0 1]", got)
		}
	})
}
