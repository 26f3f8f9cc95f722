package runtime

import (
	"context"
	"fmt"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// raise counts the coming run of alarms that were due when the host started after
// an unclean end, durably, before any of them runs: one of them may be what ended
// it. Those that were so raised before are left for the end (suspects), and then
// raised again, one at a time. It returns those to deliver, and those to be tried
// again. It does not wait for an object that is in use: the delivery, which does,
// counts its own run.
func (h *Host) raise(ctx context.Context, due []objectstore.Alarm, suspects bool) (deliver []alarm.Delivery, failed []objectstore.ID) {
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
				failed = append(failed, due[i].ID)
				h.lis.failed(fmt.Errorf("dohost: counting a run of the alarm of %v: %w", due[i].ID, rerr))
			case r.raised:
				deliver = append(deliver, alarm.Delivery{Alarm: due[i], Raise: r.late, Suspects: suspects})
			}
		case <-ctx.Done():
			return nil, nil // nobody delivers any more
		}
	}
	return deliver, failed
}

// raising is the raising of one alarm.
type raising struct {
	alarm   objectstore.Alarm
	suspect bool       // it is one that was raised before
	raised  bool       // it is to be delivered; set before landed gets its one value
	late    bool       // and raised then; set likewise
	landed  chan error // capacity 1
}

// Release says that the raised slot is durable, or lost.
func (r *raising) Release(err error) { r.landed <- err }

func (h *Host) raiseOne(r *raising, c *class) {
	for {
		o := c.objectOf(r.alarm.ID.Name)
		if o.raise(r) {
			return
		}
		c.forget(o)
	}
}

// raise writes the raised slot as a hand-over of its own, unless the object is in
// use. It returns false if the object has left memory.
func (o *object) raise(r *raising) bool {
	o.mu.Lock()
	if o.gone {
		o.mu.Unlock()
		return false
	}
	if o.life != nil || o.waking || o.count > 0 {
		o.mu.Unlock()
		r.raised, r.late = true, true
		r.Release(nil)
		return true
	}
	if o.rng == nil {
		o.rng = o.host().store.Range(o.id())
	}
	o.waking = true
	o.mu.Unlock()
	epoch := o.host().store.NewEpoch()
	o.rng.Begin(epoch)
	seg := o.rng.NewSegment(epoch)
	var err error
	if r.raised, err = raiseSlot(seg, r.alarm, r.suspect); err == nil {
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

// raiseSlot raises the slot, if it is that of the alarm and is to be raised now, and
// says whether the alarm is to run. One whose runs are used up is dropped.
func raiseSlot(seg *objectstore.Segment, a objectstore.Alarm, suspect bool) (runs bool, err error) {
	slot, ok, err := seg.Slot()
	if err != nil || !ok || slot.Generation != a.Generation || slot.Raised != suspect {
		return false, err
	}
	next, again := alarm.Raise(slot)
	if !again {
		seg.ClearSlot()
		return false, nil
	}
	seg.SetSlot(next)
	return true, nil
}
