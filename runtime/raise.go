package runtime

import (
	"context"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// raise counts the coming run of alarms that were due when the host started after
// an unclean end, durably, before any of them runs: one of them may be what ended
// it. Those that were so raised before are left for the end (suspects), and then
// raised again, one at a time. It returns those to deliver; if there is an error,
// the others are to be tried again.
func (h *Host) raise(ctx context.Context, due []objectstore.Alarm, suspects bool) (deliver []objectstore.Alarm, err error) {
	raises := make([]*raising, len(due))
	for i, a := range due {
		if c := h.classes[a.ID.Class]; c != nil {
			raises[i] = &raising{alarm: a, suspect: suspects, landed: make(chan error, 1)}
			h.raiseOne(raises[i], c)
		}
	}
	for i, r := range raises {
		if r == nil {
			continue
		}
		select {
		case rerr := <-r.landed:
			switch {
			case rerr != nil:
				err = rerr
			case r.raised:
				deliver = append(deliver, due[i])
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return deliver, err
}

// raising is the raising of one alarm.
type raising struct {
	alarm   objectstore.Alarm
	suspect bool       // it is one that was raised before
	raised  bool       // it is to be delivered; set before landed gets its one value
	landed  chan error // capacity 1
}

// Release says that the raised slot is durable, or lost.
func (r *raising) Release(err error) { r.landed <- err }

func (h *Host) raiseOne(r *raising, c *class) {
	for {
		o := h.objectOf(r.alarm.ID, c)
		if o.raise(r) {
			return
		}
		h.forget(o)
	}
}

// raise writes the raised slot as a hand-over of its own or, if the object is in
// use already, as an event. It returns false if the object has left memory.
func (o *object) raise(r *raising) bool {
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return false
	}
	if o.life != nil || o.waking || o.count > 0 {
		o.mu.Unlock()
		return o.raiseInside(r)
	}
	if o.rng == nil {
		o.rng = o.host.store.Range(o.id)
	}
	o.waking = true
	o.mu.Unlock()
	epoch := o.host.store.NewEpoch()
	o.rng.Begin(epoch)
	seg := o.rng.NewSegment(epoch)
	err := r.write(seg)
	if err == nil {
		seg.Emit(r)
		err = o.rng.HandOver(seg)
	}
	o.rng.Fence()
	if err != nil {
		r.Release(err)
	}
	o.mu.Lock()
	o.waking = false
	o.releaseLocked(o.wakeLocked())
	return true
}

// raiseInside raises by an event, whose answer is the end of it.
func (o *object) raiseInside(r *raising) bool {
	ev := &event{op: "alarm count", kind: kindInternal, done: r.landed}
	ev.turn.ev = ev
	ev.fn = func(context.Context, any) error { return r.write(ev.life.segment) }
	err := o.enqueue(ev, true)
	if err != nil && err != errGone {
		r.Release(err)
	}
	return err != errGone
}

// write raises the slot, if it is that of the alarm and is to be raised now. An
// alarm whose runs are used up is dropped.
func (r *raising) write(seg *objectstore.Segment) error {
	slot, ok, err := seg.Slot()
	if err != nil || !ok || slot.Generation != r.alarm.Generation || slot.Raised != r.suspect {
		return err
	}
	next, again := alarm.Raise(slot)
	if !again {
		seg.ClearSlot()
		return nil
	}
	seg.SetSlot(next)
	r.raised = true
	return nil
}
