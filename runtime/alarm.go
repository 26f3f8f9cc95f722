package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/objectstore"
)

// deliver enqueues the delivery of an alarm. The scheduler calls it, and has at most one
// delivery of an object in progress.
func (h *Host) deliver(d alarm.Delivery) {
	a := d.Alarm
	if h.store.Err() != nil {
		return // the next host delivers it: this one closes itself, and the scheduler stops
	}
	ev := &event{op: "alarm", kind: kindAlarm, delivery: &delivery{alarm: a, from: d.From, charge: d.Charge}}
	ev.turn.ev = ev
	if err := h.send(a.ID, ev); err != nil {
		foreign := errors.Is(err, ErrNoClass) || errors.Is(err, ErrElsewhere)
		if foreign {
			h.lis.alarmEnded(a, newAlarmRun(ev.delivery, 0), err) // stays in the store for a host that has the class, and the object
		}
		h.scheduler.Done(a, !foreign)
	}
}

// alarmRun describes a run for the Listener.
type alarmRun struct {
	attempt int
	late    time.Duration
}

// newAlarmRun describes a run that begins now. If the clock was set back, the run counts as
// on time.
func newAlarmRun(d *delivery, attempt int) *alarmRun {
	return &alarmRun{attempt: attempt, late: max(0, time.Since(d.from))}
}

// handleAlarm runs the class's alarm handler, if the slot still has the alarm of the
// delivery, and writes the outcome into the handler's last batch.
func (o *object) handleAlarm(ev *event) {
	inc := ev.incarnation
	slot, ok, err := inc.batch.Slot()
	if err != nil {
		ev.err = err
		ev.endDelivery(true) // the slot may have an alarm
		return
	}
	if !ev.isFor(slot, ok) {
		o.host().lis.alarmStale(ev.alarm)
		return
	}
	if ok && alarm.MustCharge(slot, ev.charge) {
		var runs bool
		if slot, runs = o.chargeInTurn(ev, slot); !runs {
			return
		}
	}
	ev.run = newAlarmRun(ev.delivery, slot.Attempt)
	if o.class.Alarm == nil {
		ev.err = ErrNoAlarmHandler
		if ok {
			o.setSlot(inc.batch, alarm.NoHandler(slot, ev.err, o.host().store.NewAlarmGeneration()))
		}
		return
	}
	ev.running = slot.Charge
	inc.delivering = ev.delivery
	ev.err = o.class.Alarm((*eventCtx)(ev), inc.instance, alarm.NewInfo(ev.alarm.Due, ev.run.attempt, slot.Setting()))
	o.at(ev, eviction.PlaceOutcome)
	ev.end()
	inc.delivering = nil
	if !inc.dead.Load() {
		o.recordOutcome(ev)
	}
}

// recordOutcome writes the outcome of a run into the slot.
func (o *object) recordOutcome(ev *event) {
	inc := ev.incarnation
	slot, ok, err := inc.batch.Slot()
	own := ok && ev.isFor(slot, ok)
	switch {
	case err != nil:
		// The handler's writes must not become durable without the end of the alarm.
		ev.err = err
		o.fence(inc, &Fenced{Reason: ReasonStore, Err: err}, eviction.EndFence)
	case own && ev.err != nil && guard.Is(ev.err, objectstore.ErrNoSpace):
		ev.endDelivery(true) // no fault of its own: it is delivered again
	case own && ev.err != nil:
		o.failRun(inc.batch, slot, ev.delivery, guard.Text(ev.err), false)
	case ok && slot.Generation == ev.alarm.Generation:
		inc.batch.ClearSlot()
	case ok:
		o.clearCounts(inc.batch, slot) // set by the constructor, or later: that alarm is kept
	}
}

// endDelivery reports the end of the delivery to the scheduler, once: a delivery that was
// cut off may still try to commit a batch, which the range refuses.
func (ev *event) endDelivery(again bool) {
	if ev.ended.CompareAndSwap(false, true) {
		ev.host().scheduler.Done(ev.alarm, again)
	}
}

// alarmFenced ends a delivery whose run was cut off: by its own fault, which
// counts, or by something else, which does not.
func (o *object) alarmFenced(ev *event, why *Fenced) {
	if why.by != ev {
		ev.endDelivery(true)
		return
	}
	if ev.ended.CompareAndSwap(false, true) { // the slot's writing ends the delivery
		o.deferSlotWrite(&slotEdit{delivery: ev.delivery, drop: ev.dropAlarm, text: guard.Text(why.cause())})
	}
}

// jitter is a share of the retry delay, 0 to 25 %, derived from the slot.
func jitter(id ID, s objectstore.Slot) float64 {
	return backoff.Share(id.Class, id.Name, fmt.Sprintf("%d %d", s.Due.UnixMilli(), s.Attempt))
}

// alarmClasses reads the classes that have alarms, for the scheduler. If a damaged block may hide a
// class, it returns all bound classes, too: the block does not have all indexes.
func (h *Host) alarmClasses(ctx context.Context) ([]string, error) {
	sn, err := h.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer sn.Close()
	classes, err := sn.AlarmClasses()
	if errors.Is(err, objectstore.ErrDamaged) {
		for _, c := range h.bound {
			classes = append(classes, c.Name)
		}
		return classes, nil
	}
	return classes, err
}

// alarmWindow reads the durable index of a class, or of the suspects, for the scheduler.
func (h *Host) alarmWindow(ctx context.Context, class string, after objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
	sn, err := h.store.Snapshot(ctx)
	if err != nil {
		return nil, after, err
	}
	defer sn.Close()
	return sn.Alarms(class, after, limit)
}

func (h *Host) startAlarms(ctx context.Context, class, after string, limit int) ([]objectstore.Alarm, error) {
	sn, err := h.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer sn.Close()
	return sn.StartAlarms(class, after, limit)
}
