package runtime

import (
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// compare says whether a delivery is for the alarm that is set, before any
// constructor could move that. What cannot be read is not out of date.
func (o *object) compare(ev *event) bool {
	o.rng.Prefetch() // its slot is read again when the alarm is set or has ended, and more before
	slot, ok, err := o.rng.NewSegment(objectstore.Epoch{}).Slot()
	if err == nil && !ev.isFor(slot, ok) {
		return false
	}
	ev.compared = true
	return true
}

// isFor says whether the delivery is for this slot.
func (ev *event) isFor(slot objectstore.Slot, ok bool) bool {
	return ok && slot.Generation == ev.alarm.Generation || ev.moved && generation(slot, ok) == ev.movedTo
}

// generation is that of a slot, or zero if none is set.
func generation(slot objectstore.Slot, ok bool) uint64 {
	if !ok {
		return 0
	}
	return slot.Generation
}

// noteSlot notes where the constructor left the alarm whose delivery woke the
// object. A constructor that sets the alarm anew would otherwise push it out for
// ever.
func (o *object) noteSlot(l *life) {
	o.mu.Lock()
	ev := o.alarm
	o.mu.Unlock()
	if ev == nil || !ev.compared {
		return
	}
	if slot, ok, err := l.segment.Slot(); err == nil {
		ev.moved, ev.movedTo = true, generation(slot, ok)
	}
}

// slotEdit is a write of the alarm slot that is due between two lives: the
// outcome of a delivery whose life ended by its own fault.
type slotEdit struct {
	delivered objectstore.Alarm
	drop      bool
	next      *slotEdit
}

// spoil notes a slot write for the time between two lives, and sees to it that
// there is a runner then.
func (o *object) spoil(e *slotEdit) {
	o.mu.Lock()
	e.next, o.repairs = o.repairs, e // of different deliveries: their order means nothing
	o.releaseLocked(o.wakeLocked())
}

// deliveryEnd is the output that ends a delivery: if what was handed over before
// is lost, the slot is as it was, and the delivery comes again.
type deliveryEnd struct {
	host  *Host
	alarm objectstore.Alarm
}

// Release ends the delivery.
func (d *deliveryEnd) Release(err error) { d.host.scheduler.Done(d.alarm, err != nil) }

// repair writes the outcome of a delivery whose life ended by its own fault: a
// counted failure, or a dropped alarm. It runs between lives, in an epoch of its own.
func (o *object) repair(e *slotEdit) {
	o.between(e.delivered, func(seg *objectstore.Segment) error {
		slot, ok, err := seg.Slot()
		if err == nil && ok && slot.Generation == e.delivered.Generation {
			o.settle(seg, slot, e.drop)
		}
		return err
	})
}

// overtaken ends a delivery whose alarm was changed. It waits for that change to
// be durable: a power cut that takes it back would leave an alarm that nobody knows.
func (o *object) overtaken(ev *event) {
	if !o.takeOut(ev) {
		return
	}
	o.host().lis.alarmStale(ev.alarm)
	if ev.ended.CompareAndSwap(false, true) {
		o.between(ev.alarm, func(*objectstore.Segment) error { return nil })
	}
}

// between hands a segment over between two lives, with the end of a delivery as
// its output.
func (o *object) between(delivered objectstore.Alarm, write func(*objectstore.Segment) error) {
	epoch := o.host().store.NewEpoch()
	o.rng.Begin(epoch)
	seg := o.rng.NewSegment(epoch)
	out := &deliveryEnd{o.host(), delivered}
	err := write(seg)
	if err == nil {
		seg.Emit(out)
		err = o.rng.HandOver(seg)
	}
	o.rng.Fence()
	if err != nil {
		out.Release(err)
	}
}

// settle writes a failed run into the slot: the next attempt, or the end of it.
func (o *object) settle(seg *objectstore.Segment, slot objectstore.Slot, drop bool) {
	next, again := alarm.Failed(slot, time.Now(), jitter(o.id(), slot), o.host().store.NewAlarmGeneration())
	if again && !drop {
		seg.SetSlot(next)
	} else {
		seg.ClearSlot()
	}
}
