package runtime

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// deliver enqueues a delivery of an alarm. It is called by the scheduler, which
// has at most one delivery of an object out.
func (h *Host) deliver(d alarm.Delivery) {
	a := d.Alarm
	ev := &event{op: "alarm", kind: kindAlarm, delivery: &delivery{alarm: a, raise: d.Raise, suspect: d.Suspects}}
	ev.turn.ev = ev
	if err := h.send(a.ID, ev); err != nil {
		if errors.Is(err, ErrNoClass) {
			h.lis.alarmEnded(a, &alarmRun{late: time.Since(a.Due)}, err) // stays in the store for a host that has the class
		}
		h.scheduler.Done(a, !errors.Is(err, ErrNoClass))
	}
}

// alarmRun is what the Listener will hear of a run.
type alarmRun struct {
	attempt int
	late    time.Duration
}

// handleAlarm runs the class's alarm handler for a delivery whose generation is
// still that of the slot, and writes the outcome into the handler's last segment.
func (o *object) handleAlarm(ev *event) {
	l := ev.life
	slot, ok, err := l.segment.Slot()
	if err != nil {
		ev.err = err
		ev.endDelivery(true) // it may be set
		return
	}
	if !ev.isFor(slot, ok) {
		o.host().lis.alarmStale(ev.alarm)
		return
	}
	if ev.raise && slot.Generation == ev.alarm.Generation {
		runs, err := raiseSlot(l.segment, ev.alarm, ev.suspect)
		if err == nil && runs {
			ev.raising.Store(raisingUnderway)
			l.segment.Emit((*raisedRun)(ev))
			err = ev.turn.sync()
		}
		if err != nil {
			ev.err = err
			ev.cutOff()
		}
		if err != nil || !runs {
			return
		}
		slot.Attempt++
		slot.Raised = true
	}
	ev.run = &alarmRun{late: time.Since(ev.alarm.Due)}
	if ok && slot.Generation == ev.alarm.Generation {
		ev.run.attempt = slot.Attempt
		if slot.Raised {
			ev.run.attempt--
		}
	}
	if o.class.Alarm == nil {
		l.segment.ClearSlot()
		ev.err = ErrNoAlarmHandler
		return
	}
	l.ringing = ev.alarm.Generation
	ev.err = o.class.Alarm((*eventCtx)(ev), l.instance, alarm.Info{Scheduled: ev.alarm.Due, Attempt: ev.run.attempt})
	o.at(ev, PlaceSettle)
	ev.end()
	l.ringing = 0
	if !l.dead.Load() {
		o.settleRun(ev)
	}
}

// settleRun writes the outcome of a run into the slot.
func (o *object) settleRun(ev *event) {
	l := ev.life
	now, ok, err := l.segment.Slot()
	switch {
	case err != nil:
		// What the handler did must not happen without the alarm's end.
		ev.err = err
		o.fence(l, &Fenced{Reason: ReasonStore, Err: err}, StyleFence)
	case !ok || now.Generation != ev.alarm.Generation:
		// Set or deleted meanwhile: that stands.
	case ev.err == nil:
		l.segment.ClearSlot()
	case errors.Is(ev.err, objectstore.ErrNoSpace):
		ev.endDelivery(true) // no fault of its own: it comes again
	default:
		o.settle(l.segment, now, false)
	}
}

// endDelivery tells the scheduler, once: a delivery that was cut off may still hand
// a segment over, and be refused.
func (ev *event) endDelivery(again bool) {
	if ev.ended.CompareAndSwap(false, true) {
		ev.obj.host().scheduler.Done(ev.alarm, again)
	}
}

// What becomes of a run that a delivery counts itself.
const (
	raisingNot      int32 = iota // nothing, or it is known
	raisingUnderway              // it is on its way to the disk
	raisingCutOff                // and the delivery was cut off meanwhile
)

// cutOff ends a delivery that was cut off by no fault of its own. If it has counted its
// run, and the count is on its way, the delivery ends when that is known: the next one
// must not count the same run again.
func (ev *event) cutOff() {
	if !ev.raising.CompareAndSwap(raisingUnderway, raisingCutOff) && ev.raising.Load() == raisingNot {
		ev.endDelivery(true)
	}
}

// raisedRun is the output of the segment that counts a delivery's run.
type raisedRun event

// Release says that the run is counted durably, or that it is not counted.
func (r *raisedRun) Release(err error) {
	ev := (*event)(r)
	if err == nil {
		ev.obj.host().scheduler.Counted(ev.alarm)
	}
	if ev.raising.Swap(raisingNot) == raisingCutOff {
		ev.endDelivery(true)
	}
}

// alarmFenced ends a delivery whose run was cut off: by its own fault, which
// counts, or by something else, which does not.
func (o *object) alarmFenced(ev *event, why *Fenced) {
	if why.by != ev {
		ev.cutOff()
		return
	}
	if ev.ended.CompareAndSwap(false, true) { // the slot's writing ends the delivery
		o.spoil(&slotEdit{delivered: ev.alarm, drop: ev.dropAlarm})
	}
}

// jitter is a share of the retry delay, 0 to 25 %. It is drawn from the slot, so that
// objects whose alarms fail together come apart, and a test finds the same again.
func jitter(id ID, s objectstore.Slot) float64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d %d", id.Class, id.Name, s.Due.UnixMilli(), s.Attempt)
	return rand.New(rand.NewPCG(h.Sum64(), 0)).Float64() / 4
}

// alarmWindow reads the durable index for the scheduler.
func (h *Host) alarmWindow(ctx context.Context, after objectstore.AlarmPos, limit int) ([]objectstore.Alarm, objectstore.AlarmPos, error) {
	sn, err := h.store.Snapshot(ctx)
	if err != nil {
		return nil, after, err
	}
	defer sn.Close()
	return sn.Alarms(after, limit)
}

func (h *Host) bootAlarms(ctx context.Context, after ID, limit int) ([]objectstore.Alarm, error) {
	sn, err := h.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer sn.Close()
	return sn.BootAlarms(after, limit)
}
