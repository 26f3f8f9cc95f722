package runtime

import (
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/objectstore"
)

// admit compares a queued delivery with the slot, before a constructor can change the
// alarm, and takes the delivery out of the queue if the slot has another alarm. If the slot
// cannot be read, the delivery stays. If the run is to be charged, admit charges it, and
// waits for the disk: the constructor may end the process, too.
func (o *object) admit(ev *event) {
	o.rng.Prefetch() // the slot is read again when the alarm is set or has ended, and other keys before that
	slot, ok, err := o.rng.NewBatch(objectstore.Epoch{}).Slot()
	if err == nil && !ev.isFor(slot, ok) {
		o.superseded(ev)
		return
	}
	ev.compared, ev.slot = true, slot
	if ok && err == nil && alarm.MustCharge(slot, ev.charge) {
		o.chargeBetween(ev)
	}
}

// isFor reports whether the delivery is for this slot.
func (d *delivery) isFor(slot objectstore.Slot, ok bool) bool {
	return ok && slot.Generation == d.alarm.Generation || d.moved && generation(slot, ok) == d.movedTo
}

// generation is that of a slot, or zero if none is set.
func generation(slot objectstore.Slot, ok bool) uint64 {
	if !ok {
		return 0
	}
	return slot.Generation
}

// isRepeatedBy reports whether a constructor has set the alarm of the slot during this delivery: see inheritCounts. A constructor
// that fails after the slot has become durable leaves it, and rememberSlot does not run.
func (d *delivery) isRepeatedBy(slot objectstore.Slot) bool {
	return d.slot.Generation != 0 && slot.First == d.slot.Setting()
}

// deliveredLocked returns the delivery that was queued when inc began, or nil. It is nil if inc has ended: then the delivery belongs to the
// next incarnation.
func (o *object) deliveredLocked(inc *incarnation) *delivery {
	invariants.Held(&o.mu)
	if o.alarm == nil || o.incarnation != inc || !o.alarm.compared {
		return nil
	}
	return o.alarm.delivery
}

// inheritCounts returns the slot of an alarm that the constructor of inc sets. The slot has the counts and the mark of the delivered alarm
// from the moment it is set, since the constructor may make the slot durable and then end the process. It inherits nothing if the delivered
// slot could not be read, or an earlier constructor has deleted the alarm.
func (inc *incarnation) inheritCounts(slot objectstore.Slot) objectstore.Slot {
	o := inc.obj
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.deliveredLocked(inc); d != nil && d.slot.Generation != 0 {
		slot = alarm.SetByConstructor(slot, d.slot)
	}
	return slot
}

// rememberSlot stores the generation of the slot after the constructor that the delivery woke.
// Otherwise a constructor that sets the alarm again would postpone it forever.
func (o *object) rememberSlot(inc *incarnation) {
	o.mu.Lock()
	delivered := o.deliveredLocked(inc)
	o.mu.Unlock()
	if delivered == nil {
		return
	}
	slot, ok, err := inc.batch.Slot()
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.deliveredLocked(inc); err == nil && d == delivered { // inc has not ended while the slot was read
		d.moved, d.movedTo = true, generation(slot, ok)
	}
}

// slotEdit is a write of the alarm slot that is due between two incarnations: the outcome
// of a delivery that ended its incarnation by its own fault. With a replacement it is that instead.
type slotEdit struct {
	replacement *replacement
	delivery    *delivery
	drop        bool   // the alarm is to be removed
	constructor bool   // the constructor failed, and the handler did not begin
	text        string // of the error
	next        *slotEdit
}

// deferSlotWrite queues a slot write for the time between two incarnations, and requests a runner
// for it.
func (o *object) deferSlotWrite(e *slotEdit) {
	o.mu.Lock()
	e.next, o.deferredSlots = o.deferredSlots, e // of different deliveries: their order does not matter
	o.releaseLocked(o.wakeLocked())
}

// writeDeferred makes deferred writes: those of slots first, since they are of deliveries of the present state.
func (o *object) writeDeferred(edits *slotEdit) {
	for e := edits; e != nil; e = e.next {
		if e.replacement == nil {
			o.writeDeferredSlot(e)
		}
	}
	for e := edits; e != nil; e = e.next {
		if e.replacement != nil {
			o.runReplacement(e.replacement)
		}
	}
}

// deliveryEnd is the output that ends a delivery. If the writes committed before it are
// lost, the slot is unchanged, and the scheduler delivers again.
type deliveryEnd struct {
	host  *Host
	alarm objectstore.Alarm
}

// Release ends the delivery.
func (d *deliveryEnd) Release(err error) { d.host.scheduler.Done(d.alarm, err != nil) }

// writeDeferredSlot writes the outcome of a delivery that ended its incarnation by its own fault: a counted
// failure, or a dropped alarm. It runs between incarnations, in an epoch of its own.
func (o *object) writeDeferredSlot(e *slotEdit) {
	o.writeBetween(&deliveryEnd{o.host(), e.delivery.alarm}, func(batch *objectstore.Batch) error {
		slot, ok, err := batch.Slot()
		switch {
		case err != nil || !ok:
		case e.drop && slot.Generation == e.delivery.alarm.Generation:
			batch.ClearSlot()
		case !e.drop && (e.delivery.isFor(slot, ok) || e.constructor && e.delivery.isRepeatedBy(slot)):
			o.failRun(batch, slot, e.delivery, e.text, e.constructor)
		default:
			o.clearCounts(batch, slot)
		}
		return err
	})
}

// superseded ends a delivery of an alarm that has changed since. It waits until the change is durable: a
// power failure that undid the change would restore an alarm that the scheduler no longer has.
func (o *object) superseded(ev *event) {
	if !o.takeOut(ev) {
		return
	}
	o.host().lis.alarmStale(ev.alarm)
	if ev.ended.CompareAndSwap(false, true) {
		o.writeBetween(&deliveryEnd{o.host(), ev.alarm}, func(*objectstore.Batch) error { return nil })
	}
}

// writeBetween commits a batch between two incarnations, with an output that is released when
// it is durable, or with an error if write fails.
func (o *object) writeBetween(out objectstore.Output, write func(*objectstore.Batch) error) {
	epoch := o.host().store.NewEpoch()
	o.rng.Begin(epoch)
	batch := o.rng.NewBatch(epoch)
	err := write(batch)
	if err == nil {
		batch.Emit(out)
		err = o.rng.Commit(batch)
	}
	o.rng.Fence()
	if err != nil {
		out.Release(err)
	}
}

// failRun writes a failed run into the slot: the next attempt, or the parked alarm. text is that
// of the error.
func (o *object) failRun(batch *objectstore.Batch, slot objectstore.Slot, d *delivery, text string, constructor bool) {
	o.setSlot(batch, alarm.Failed(slot, alarm.Failure{
		Now: time.Now(), Generation: o.host().store.NewAlarmGeneration(), Jitter: jitter(o.id(), slot), Error: text,
		Constructor: constructor, Moved: slot.Generation != d.alarm.Generation,
	}))
}

// clearCounts clears the counts of a run that has ended, in an alarm that was set during that run.
func (o *object) clearCounts(batch *objectstore.Batch, slot objectstore.Slot) {
	if fresh := alarm.ClearCounts(slot, o.host().store.NewAlarmGeneration); fresh != slot {
		batch.SetSlot(fresh)
	}
}

// setSlot writes a slot. If that parks the alarm, the Listener is called when it is durable.
func (o *object) setSlot(batch *objectstore.Batch, slot objectstore.Slot) {
	batch.SetSlot(slot)
	slot, _, _ = batch.Slot() // as the batch stores it
	if p, ok := ParkedAlarmOf(o.id(), slot); ok {
		batch.Emit(&parkedReport{o.host(), p})
	}
}
