package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// ReviveAlarm makes a parked alarm of the object due now, clears its counts of failures,
// and reports whether it was parked. It returns when the change is durable. It does not
// wake an object that is not in memory: the constructor may be the reason why the alarm is
// parked.
//
// Errors: the cause of ctx; an *Error with ErrNoClass, ErrElsewhere or ErrClosed, or if the object is in
// use and did not run the event that revives the alarm.
func (h *Host) ReviveAlarm(ctx context.Context, id ID) (revived bool, err error) {
	const op = "revive alarm"
	c, err := h.classOf(id)
	if err != nil {
		return false, refusal(id, op, err)
	}
	if err := id.Validate(); err != nil {
		return false, refusal(id, op, err)
	}
	h.active.Add(1) // so that Close waits for it
	defer h.decrement(&h.active)
	for h.phase.Load() == phaseOpen {
		o := c.objectOf(id.Name)
		switch err := o.claimCold(); err {
		case nil:
			return o.reviveBetween(ctx)
		case errInUse:
			return h.reviveInTurn(ctx, id, op)
		}
		c.forget(o)
	}
	return false, refusal(id, op, ErrClosed)
}

// reviveInTurn revives the alarm of an object that is in use, as an event of it.
func (h *Host) reviveInTurn(ctx context.Context, id ID, op string) (revived bool, err error) {
	var did bool // owned by the event until it has answered: the event may outlast this call
	err = h.Do(ctx, id, Call{Op: op, Handler: Func(func(ctx context.Context, _ any) (err error) {
		did, err = stateOf(ctx).reviveAlarm(ctx)
		return err
	})})
	if err != nil {
		return false, err
	}
	return did, nil
}

func (s *State) reviveAlarm(ctx context.Context) (revived bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return false, err
	}
	defer t.done()
	return s.incarnation().obj.revive(s.incarnation().batch)
}

// errInUse means that an object has an incarnation, or events.
var errInUse = errors.New("dohost: object is in use")

// claimCold keeps the next incarnation of an object that has none, and no events, from
// beginning until endClaim. Errors: errInUse, errGone.
func (o *object) claimCold() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.state == objectRemoved:
		return errGone
	case o.state != objectCold || o.count > 0 || o.deferredSlots != nil:
		return errInUse
	}
	if o.rng == nil {
		o.rng = o.host().store.Range(o.id())
	}
	o.transitionLocked(objectReviving)
	return nil
}

// reviveBetween revives the alarm of an object that the caller has claimed.
func (o *object) reviveBetween(ctx context.Context) (revived bool, err error) {
	durable := make(durableResult, 1)
	o.writeBetween(durable, func(batch *objectstore.Batch) error {
		revived, err = o.revive(batch)
		return err
	})
	o.endClaim()
	select {
	case err := <-durable:
		return err == nil && revived, err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// revive writes the revived slot, if the alarm is parked.
func (o *object) revive(batch *objectstore.Batch) (revived bool, err error) {
	slot, ok, err := batch.Slot()
	if err != nil || !ok || slot.Parked == objectstore.NotParked {
		return false, err
	}
	batch.SetSlot(alarm.Revive(slot, time.Now(), o.host().store.NewAlarmGeneration()))
	return true, nil
}
