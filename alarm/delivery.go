package alarm

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Delivery is an alarm to deliver.
type Delivery struct {
	objectstore.Alarm
	// From is the due time of the delivery: the due time of the alarm or, for a delivery at the start, the start of the host.
	From time.Time
	// Charge reports whether the run must be charged: see MustCharge.
	Charge bool
}

// delivery is an alarm that is out.
type delivery struct {
	*alarmEntry
	suspended bool
	next      *objectstore.AlarmChange // the newest change since it went out
}

// MarkSuspended notes that a delivery waits for something other than its object, possibly for long. Such a delivery
// does not count against the limits of the others.
func (s *Scheduler) MarkSuspended(a objectstore.Alarm) { s.post(message{suspended: &a}) }

// markSuspended marks a delivery as waiting.
func (s *Scheduler) markSuspended(a objectstore.Alarm) {
	d := s.outstanding[a.ID]
	if d == nil || d.Generation != a.Generation || d.suspended {
		return
	}
	d.suspended = true
	s.waiting++
	d.queue.waiting++
	if d.atStart {
		d.queue.startPass.suspended++
	}
}

// send delivers an entry.
func (s *Scheduler) send(e *alarmEntry) {
	s.outstanding[e.ID] = &delivery{alarmEntry: e}
	e.queue.outstanding++
	s.cfg.Deliver(Delivery{
		Alarm: e.Alarm, From: e.at, Charge: s.cfg.CrashLoop.chargesDelivery(e.Due, s.start),
	})
}

// removeDelivery removes a delivery from those that are out.
func (s *Scheduler) removeDelivery(d *delivery) {
	delete(s.outstanding, d.ID)
	d.queue.outstanding--
	if d.suspended {
		s.waiting--
		d.queue.waiting--
		if d.atStart {
			d.queue.startPass.suspended--
		}
	}
}

// suspendedFactor is the limit of all deliveries that are out, as a multiple of the limit of those that do not wait.
const suspendedFactor = 16

// freePlaces returns how many more deliveries of a queue may go out. A queue with fewer than Reserve deliveries out does not wait for
// other queues. Beyond that it waits while HostConcurrency deliveries of all queues, or Concurrency of its own, are out. These limits
// do not count suspended deliveries: suspendedFactor times each limit bounds all deliveries. Suspects that run alone have one place.
func (s *Scheduler) freePlaces(q *alarmQueue) int {
	c := &s.cfg
	if q == s.suspects && c.CrashLoop.suspectsAlone() {
		return 1 - q.outstanding
	}
	places := func(times, mine, all int) int {
		return min(times*c.Concurrency-mine, max(times*c.HostConcurrency-all, times*c.Reserve-mine))
	}
	return min(places(1, q.outstanding-q.waiting, len(s.outstanding)-s.waiting), places(suspendedFactor, q.outstanding, len(s.outstanding)))
}
