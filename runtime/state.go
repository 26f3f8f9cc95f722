package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// ID names an object: class and name.
type ID = objectstore.ID

// State is the access of an incarnation's code to its object: identity, storage, alarm and
// background tasks. It ends with the incarnation. Unless they say otherwise, methods with a
// context require the turn of this incarnation in it. They return ErrNoTurn, ErrTurnBusy or
// an error that errors.Is matches with ErrFenced. State must not be copied.
type State incarnation

func (s *State) incarnation() *incarnation { return (*incarnation)(s) }

// ID returns the object's class and name.
func (s *State) ID() ID { return s.incarnation().obj.id() }

// Epoch returns the number of this incarnation. Any goroutine.
func (s *State) Epoch() objectstore.Epoch { return s.incarnation().epoch() }

// Host returns the host of the object. Any goroutine.
func (s *State) Host() *Host { return s.incarnation().host() }

// access claims the turn for one operation.
func (s *State) access(ctx context.Context) (*turn, error) {
	t := turnOf(ctx)
	if t == nil || t.ev.incarnation != s.incarnation() {
		if err := s.incarnation().cause(); err != nil {
			return nil, err
		}
		return nil, ErrNoTurn
	}
	if err := t.use(); err != nil {
		return nil, err
	}
	return t, nil
}

// storage is access for an operation on storage, which is a point.
func (s *State) storage(ctx context.Context) (*turn, error) {
	t, err := s.access(ctx)
	if err != nil {
		return nil, err
	}
	if t.ev.points != nil {
		t.visitStorage()
	}
	if err := s.incarnation().cause(); err != nil {
		t.done()
		return nil, err
	}
	return t, nil
}

// visitStorage is the point of a storage operation, with the turn in use. If the policy
// ends this goroutine, the turn is no longer in use.
func (t *turn) visitStorage() {
	returned := false
	defer func() {
		if !returned {
			t.done()
		}
	}()
	t.ev.obj.at(t.ev, eviction.PlaceStorage)
	returned = true
}

// SetAlarm sets the object's one alarm, in place of the one that was set or is parked.
// A time that is not in the future means now: the alarm is due when it is durable, and
// Info.Scheduled is the time of this call, rounded down to a millisecond. A later time is
// rounded up. Like a write the alarm is part of the batch, and waits as Put does.
//
// Errors: ErrNoAlarmHandler; an error for a time outside the years 1970 to 9999.
func (s *State) SetAlarm(ctx context.Context, at time.Time) error { return s.setAlarm(ctx, at, false) }

// SetStartAlarm is SetAlarm for an alarm that is also delivered when the host starts.
func (s *State) SetStartAlarm(ctx context.Context, at time.Time) error {
	return s.setAlarm(ctx, at, true)
}

func (s *State) setAlarm(ctx context.Context, at time.Time, onStart bool) error {
	if err := checkAlarmTime(at); err != nil {
		return err
	}
	if s.incarnation().class().Alarm == nil {
		return fmt.Errorf("%w: %q", ErrNoAlarmHandler, s.ID().Class)
	}
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	if now := time.Now(); !at.After(now) {
		at = now.Truncate(time.Millisecond) // rounded up, it would not be due before the next millisecond
	}
	if err := s.write(ctx, (*objectstore.Batch).Reserve); err != nil {
		return err
	}
	slot := objectstore.Slot{Due: at, Generation: s.Host().store.NewAlarmGeneration(), AtStart: onStart}
	if d := s.incarnation().delivering; d != nil {
		slot = alarm.SetByHandler(slot, d.running) // until the handler has ended: see recordOutcome
	} else if t.ev.kind == kindConstruct {
		slot = s.incarnation().inheritCounts(slot)
	}
	s.incarnation().batch.SetSlot(slot)
	return nil
}

func checkAlarmTime(at time.Time) error {
	if y := at.UTC().Year(); y < 1970 || y > 9999 {
		return fmt.Errorf("dohost: alarm time %v is not in the years 1970 to 9999", at)
	}
	return nil
}

// DeleteAlarm removes the alarm, if one is set or parked; otherwise it only reads the slot. A running handler continues; if
// it deleted its own alarm and fails, it is not retried.
func (s *State) DeleteAlarm(ctx context.Context) error {
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	batch := s.incarnation().batch
	if _, ok, err := batch.Slot(); err == nil && !ok {
		return nil // otherwise the batch would be a record without content
	}
	if err := s.write(ctx, (*objectstore.Batch).Reserve); err != nil {
		return err
	}
	batch.ClearSlot()
	return nil
}

// GetAlarm returns the time when the alarm is due. While its handler runs no alarm is set,
// unless one was set since the handler began; between a failure and its retry one is set. A
// parked alarm is not set: ParkedAlarm returns it.
func (s *State) GetAlarm(ctx context.Context) (at time.Time, ok bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	defer t.done()
	slot, ok, err := s.incarnation().batch.Slot()
	if err != nil || !ok || slot.Parked != objectstore.NotParked {
		return time.Time{}, false, err
	}
	if d := s.incarnation().delivering; d != nil && slot.Generation == d.alarm.Generation {
		return time.Time{}, false, nil
	}
	return slot.Due, true, nil
}

// Go runs fn as an event of its own, once the writes of this batch are durable; if they
// are rolled back or lost, fn does not run. fn holds the turn like a handler, keeps the
// object in memory until fn ends, and ends with the incarnation. Its error goes to the
// Listener. It corresponds to waitUntil of Durable Objects.
//
// Errors: ErrOverloaded, if the object has Options.MaxEvents tasks.
func (s *State) Go(ctx context.Context, op string, fn func(context.Context) error) error {
	return s.task(ctx, op, fn, func(ev *event) error {
		s.Host().active.Add(1) // so that Close waits for it to begin
		s.incarnation().batch.Emit((*taskStart)(ev))
		return nil
	})
}

// GoImmediately is Go, but fn does not wait for the disk. fn begins when the turn is free, even
// if a Transaction around this call is rolled back. Its outputs are released after the
// writes of this batch are durable.
//
// Errors: the errors of Go, ErrClosed, and ErrFenced.
func (s *State) GoImmediately(ctx context.Context, op string, fn func(context.Context) error) error {
	return s.task(ctx, op, fn, func(ev *event) error { return s.incarnation().obj.enqueue(ev, true) })
}

// task makes an event of the object's own, and starts it by begin.
func (s *State) task(ctx context.Context, op string, fn func(context.Context) error, begin func(*event) error) error {
	t, err := s.access(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	if limit := s.Host().opts.MaxEvents; s.incarnation().tasks.Add(1) > int64(limit) {
		s.incarnation().tasks.Add(-1)
		return fmt.Errorf("%w: the limit is %d background tasks per object", ErrOverloaded, limit)
	}
	ev := &event{op: op, kind: kindBackground, only: s.incarnation()}
	ev.turn.ev = ev
	ev.handler = Func(func(ctx context.Context, _ any) error { return fn(ctx) })
	if err := begin(ev); err != nil {
		s.incarnation().tasks.Add(-1)
		return err
	}
	return nil
}

// taskStart is the output that starts a background task.
type taskStart event

// Release enqueues the task, unless the incarnation has ended.
func (s *taskStart) Release(err error) {
	ev, h := (*event)(s), s.only.obj.host()
	if err == nil {
		// It fails if the incarnation or the host has ended. No caller waits for the error.
		err = s.only.obj.enqueue(ev, true)
	}
	if err != nil {
		s.only.tasks.Add(-1)
	}
	h.decrement(&h.active)
}

// Abort ends this incarnation. The current batch is dropped, its callers get ErrFenced
// with err as the cause, and the next event begins a new incarnation. Inside an alarm
// handler the run counts as failed and is retried, unless dropAlarm is set; an alarm set
// since the handler began stays. Abort returns the error for the handler to return. It
// corresponds to ctx.abort of workerd (api/actor-state.c++).
func (s *State) Abort(ctx context.Context, err error, dropAlarm bool) error {
	ev, inc := eventOf(ctx), s.incarnation()
	if ev == nil || ev.incarnation != inc {
		if cause := inc.cause(); cause != nil {
			return cause
		}
		return ErrNoTurn
	}
	o := inc.obj
	o.mu.Lock()
	ev.dropAlarm = dropAlarm
	o.mu.Unlock()
	why := &Fenced{Reason: ReasonAborted, Err: err, by: ev}
	if ev.kind == kindConstruct {
		o.failConstructor(inc, why) // with back-off: a plain fence would retry immediately
	} else {
		o.fence(inc, why, eviction.EndFence)
	}
	return inc.cause()
}

// Pin keeps the object from being evicted for idleness or memory until release is
// called or the incarnation ends. Release may be called any number of times, from
// any goroutine.
func (s *State) Pin(reason string) (release func()) {
	return s.incarnation().pin(reason)
}
