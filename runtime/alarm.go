package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/objectstore"
)

// deliver enqueues a delivery of an alarm. It is called by the scheduler, which
// has at most one delivery of an object out.
func (h *Host) deliver(a objectstore.Alarm) {
	ev := &event{op: "alarm", kind: kindAlarm, alarm: a}
	ev.turn.ev = ev
	if err := h.send(a.ID, ev); err != nil {
		if errors.Is(err, ErrNoClass) {
			h.lis.alarmEnded(a, 0, time.Since(a.Due), err) // stays in the store for a host that has the class
		}
		h.scheduler.Done(a, !errors.Is(err, ErrNoClass))
	}
}

// handleAlarm runs the class's alarm handler for a delivery whose generation is
// still that of the slot, and writes the outcome into the handler's last segment.
func (o *object) handleAlarm(ev *event) {
	l := ev.life
	slot, ok, err := l.segment.Slot()
	if err != nil {
		ev.err = err
		return
	}
	if !ev.verified && (!ok || slot.Generation != ev.alarm.Generation) {
		o.host.lis.alarmStale(ev.alarm)
		return
	}
	late := time.Since(ev.alarm.Due)
	attempt := 0
	if ok && slot.Generation == ev.alarm.Generation {
		attempt = slot.Attempt
		if slot.Raised {
			attempt--
		}
	}
	if o.class.Alarm == nil {
		l.segment.ClearSlot()
		o.host.lis.alarmEnded(ev.alarm, attempt, late, ErrNoAlarmHandler)
		return
	}
	l.ringing = ev.alarm.Generation
	ev.err = o.class.Alarm((*eventCtx)(ev), l.instance, alarm.Info{Scheduled: ev.alarm.Due, Attempt: attempt})
	l.ringing = 0
	o.host.lis.alarmEnded(ev.alarm, attempt, late, ev.err)
	if l.dead.Load() {
		return
	}
	now, ok, err := l.segment.Slot()
	if err != nil || !ok || now.Generation != ev.alarm.Generation {
		return // set or deleted meanwhile: that stands
	}
	if ev.err == nil {
		l.segment.ClearSlot()
	} else {
		o.host.settle(l.segment, now, false)
	}
}

// alarmReleased ends a delivery whose last segment is durable, or lost.
func (o *object) alarmReleased(ev *event, err error) {
	ev.endDelivery(err != nil)
}

// endDelivery tells the scheduler, once: a delivery that was cut off may still hand
// a segment over, and be refused.
func (ev *event) endDelivery(again bool) {
	if ev.ended.CompareAndSwap(false, true) {
		ev.obj.host.scheduler.Done(ev.alarm, again)
	}
}

// alarmFenced ends a delivery whose run was cut off: by the object's own fault,
// which counts, or by an eviction, which does not.
func (o *object) alarmFenced(ev *event, why *Fenced) {
	switch why.Reason {
	case ReasonPanic, ReasonAborted, ReasonAlarm, ReasonExclusive:
		if ev.ended.CompareAndSwap(false, true) { // the slot's writing ends the delivery
			o.spoil(slotEdit{delivered: ev.alarm, drop: ev.dropAlarm})
		}
	default:
		ev.endDelivery(true)
	}
}

// raise counts the coming run of alarms that were due when the host started after
// an unclean end, durably, before any of them runs: one of them may be what ended
// it. Those that were so raised before are left for the end (suspects), and then
// raised again, one at a time.
func (h *Host) raise(ctx context.Context, due []objectstore.Alarm, suspects bool) ([]objectstore.Alarm, error) {
	var deliver []objectstore.Alarm
	landed := make(chan error, len(due))
	raised := 0
	for _, a := range due {
		class := h.classes[a.ID.Class]
		if class == nil {
			continue
		}
		ok, err := h.objectOf(a.ID, class).raise(a, suspects, landed)
		if err != nil {
			return nil, err
		}
		if ok {
			raised++
			deliver = append(deliver, a)
		}
	}
	for range raised {
		select {
		case err := <-landed:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return deliver, nil
}

// raise writes the raised slot as a hand-over of its own, unless the object is in
// use already: then its own run decides.
func (o *object) raise(a objectstore.Alarm, suspects bool, landed chan<- error) (bool, error) {
	o.mu.Lock()
	if o.life != nil || o.waking || o.gone {
		o.mu.Unlock()
		landed <- nil
		return true, nil
	}
	if o.rng == nil {
		o.rng = o.host.store.Range(o.id)
	}
	o.waking = true
	o.mu.Unlock()
	again, err := o.raiseSlot(a, suspects, landed)
	o.mu.Lock()
	o.waking = false
	run := o.wakeLocked()
	o.mu.Unlock()
	if run != nil {
		run()
	}
	return again, err
}

func (o *object) raiseSlot(a objectstore.Alarm, suspects bool, landed chan<- error) (bool, error) {
	epoch := o.host.store.NewEpoch()
	o.rng.Begin(epoch)
	seg := o.rng.NewSegment(epoch)
	slot, ok, err := seg.Slot()
	if err != nil || !ok || slot.Generation != a.Generation || slot.Raised != suspects {
		return false, err
	}
	next, again := alarm.Raise(slot)
	if again {
		seg.SetSlot(next)
		seg.Emit(emission(func(err error) { landed <- err }))
	} else {
		seg.ClearSlot()
	}
	return again, o.rng.HandOver(seg)
}

// jitter is a share of the retry delay, 0 to 25 %.
func (h *Host) jitter() float64 { return rand.Float64() / 4 }

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
