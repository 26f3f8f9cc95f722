package runtime

import (
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// A run that may end the process is charged to the alarm's slot, durably, before it begins:
// see alarm.CrashLoop, which decides. The slot names the host that has charged it, so that a delivery that
// is cut off and repeated is not charged again.

// chargeSlot returns the slot with the coming run charged, and the decision about that run. durable reports
// that the slot is durable.
func (h *Host) chargeSlot(slot objectstore.Slot, handlerBegins, durable bool) (objectstore.Slot, alarm.ChargeResult) {
	return h.crashLoop.Charge(slot, alarm.Run{
		HandlerBegins: handlerBegins, Durable: durable, Now: time.Now(), NewGeneration: h.store.NewAlarmGeneration,
	})
}

// durableResult is an output for a caller that waits until it is durable. It has room for one.
type durableResult chan error

// Release sends the outcome.
func (l durableResult) Release(err error) { l <- err }

// chargeBetween charges the run of a queued delivery between two incarnations. If there is
// no run, or the charge fails, it takes the delivery out of the queue.
func (o *object) chargeBetween(ev *event) {
	var next objectstore.Slot
	var result alarm.ChargeResult
	durable := make(durableResult, 1)
	o.writeBetween(durable, func(batch *objectstore.Batch) error {
		if next, result = o.host().chargeSlot(ev.slot, false, false); next != ev.slot {
			o.setSlot(batch, next)
		}
		return nil
	})
	err := <-durable // also waits for the charge that an earlier delivery has committed
	ev.slot, ev.charged = next, err == nil
	if (err != nil || !result.Runs()) && o.takeOut(ev) {
		ev.endDelivery(err != nil)
	}
}

// chargeInTurn charges a run immediately before its handler: the run of an object that was
// in memory, or of a suspect, which is charged separately for its constructor and for its
// handler. It waits for the disk, and returns the charged slot.
func (o *object) chargeInTurn(ev *event, slot objectstore.Slot) (next objectstore.Slot, runs bool) {
	next, result := o.host().chargeSlot(slot, true, ev.charged)
	if next != slot {
		o.setSlot(ev.incarnation.batch, next)
	}
	if result == alarm.MayRunWhenDurable {
		if err := ev.turn.sync(); err != nil {
			ev.err = err
			ev.endDelivery(true)
			return next, false
		}
	}
	return next, result.Runs() // if there is no run, the end of the event commits the slot
}
