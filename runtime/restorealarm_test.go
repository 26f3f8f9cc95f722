package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// TestSlotWritesThatAreDeferredPrecedeAReplacement restores an alarm that has failed, while a slot write of another alarm is due.
func TestSlotWritesThatAreDeferredPrecedeAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS(), Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error {
			return errors.New("failed")
		}})
		setAlarm(t, h, "a", time.Second)
		time.Sleep(1100 * time.Millisecond) // the next attempt is two seconds after the first
		failed := objectstore.RestorePoint{Record: h.Store().Stats().Ship.Record}
		if err := do(t.Context(), h, "a", "delete", func(ctx context.Context, c *counter) error { return c.s.DeleteAlarm(ctx) }); err != nil {
			t.Fatal(err)
		}
		h.Evict(id("a"), eviction.EndFence)
		synctest.Wait() // the event is counted until its goroutine has ended
		o := h.classes["counter"].objectOf("a")
		if ok, err := o.claim(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		o.mu.Lock()
		o.deferredSlots = &slotEdit{delivery: &delivery{alarm: objectstore.Alarm{ID: o.id()}}}
		o.mu.Unlock()
		restored := make(chan error, 1)
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), failed); restored <- err }()
		time.Sleep(1200 * time.Millisecond) // the archive has it
		o.endClaim()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		sn, err := h.Store().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer sn.Close()
		if slot, ok, err := sn.Slot(id("a")); !ok || err != nil || slot.Attempt != 1 {
			t.Errorf("the restored alarm is %+v, %v, %v", slot, ok, err)
		}
	})
}

// alarmCounter has a constructor that deletes the alarm, if its name says so, and counts its alarms.
func alarmCounter(fired *[]string) Class {
	return Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
		c := &counter{s: s}
		if strings.HasPrefix(s.ID().Name, "deletes") {
			if n, err := c.get(ctx, "wakes"); err != nil || n > 0 {
				return c, errors.Join(err, s.DeleteAlarm(ctx))
			}
		}
		return c, nil
	}, Alarm: func(_ context.Context, o any, _ alarm.Info) error {
		*fired = append(*fired, o.(*counter).s.ID().Name)
		return nil
	}}
}

// TestAlarmsAfterARestore restores alarms that are due, and removes alarms by a restore while their delivery waits.
func TestAlarmsAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired []string
		h := shipping(t, objectstore.NewMemFS(), alarmCounter(&fired))
		wantFired := func(when string, names ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if fmt.Sprint(fired) != fmt.Sprint(names) {
				t.Errorf("%s: the alarms of %q have fired, want %q", when, fired, names)
			}
		}
		without := bookmark(t, h, "a")
		setAlarm(t, h, "a", 10*time.Second)
		with := bookmark(t, h, "a")
		time.Sleep(time.Minute)
		wantFired("when it is due", "a")
		for range 2 {
			if _, err := h.RestoreObject(t.Context(), id("a"), with); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		wantFired("after two restores", "a", "a", "a")
		setAlarm(t, h, "a", 10*time.Second)
		if _, err := h.RestoreObject(t.Context(), id("a"), without); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantFired("after a restore without an alarm", "a", "a", "a")

		fired = nil
		for _, name := range []string{"b", "deletes b"} {
			without := bookmark(t, h, name)
			if _, err := add(t.Context(), h, name, 1); err != nil {
				t.Fatal(err)
			}
			err := do(t.Context(), h, name, "wakes", func(ctx context.Context, c *counter) error {
				return c.s.Put(ctx, kv, []byte("wakes"), []byte{0, 0, 0, 0, 0, 0, 0, 1}, false)
			})
			if err != nil {
				t.Fatal(err)
			}
			setAlarm(t, h, name, 5*time.Second)
			ended := make(chan error, 2)
			for range 2 { // one that runs, and one that waits
				go func() {
					ended <- do(t.Context(), h, name, "wait", func(ctx context.Context, _ *counter) error { <-ctx.Done(); return context.Cause(ctx) })
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Second) // the delivery waits, too
			h.Evict(id(name), eviction.EndFence)
			synctest.Wait() // the second one runs, and the delivery waits in its incarnation
			if _, err := h.RestoreObject(t.Context(), id(name), without); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-ended, <-ended); !errors.Is(err, ErrFenced) {
				t.Error(err)
			}
			wantFired("after a restore of " + name)
			wantTotal(t, h, name, 0)
		}
	})
}

// TestDeliveryDuringAReplacementIsComparedBeforeAConstructor replaces an alarm that becomes due while the disk does not answer: no
// incarnation begins for its delivery.
func TestDeliveryDuringAReplacementIsComparedBeforeAConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var constructed atomic.Int32
		h := shipping(t, fs, Class{
			Name:  "counter",
			New:   func(ctx context.Context, s *State) (any, error) { constructed.Add(1); return newCounter(ctx, s) },
			Alarm: func(context.Context, any, alarm.Info) error { t.Error("the replaced alarm fired"); return nil },
		})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		setAlarm(t, h, "a", 10*time.Second)
		state, err := h.store.ArchivedState(t.Context(), id("a"), earlier)
		if err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		restored := make(chan error, 1)
		go func() {
			r := &replacement{state: state, done: make(chan struct{})}
			err := h.lookup(id("a")).deferReplacement(t.Context(), r, nil)
			restored <- errors.Join(err, r.wait(t.Context()))
		}()
		time.Sleep(10 * time.Second)
		if len(restored) > 0 {
			t.Error("the restore did not wait for the disk")
		}
		release()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := constructed.Load(); n != 1 {
			t.Errorf("%d incarnations began, want 1", n)
		}
	})
}
