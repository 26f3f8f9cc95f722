package alarm

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// Delivery is an alarm to deliver.
type Delivery struct {
	objectstore.Alarm
	// From is the due time of the delivery: that of the alarm or, for a delivery at boot, the start of the host.
	From time.Time
	// Charge reports whether the run must be charged, durably, before it begins, because a due
	// alarm may have ended the previous host. A suspect's run is charged in any case.
	Charge bool
}

// delivery is an alarm that is out.
type delivery struct {
	*entry
	waits bool
	next  *objectstore.AlarmChange // the newest change since it went out
}

// Waits notes that a delivery waits for something other than its object, possibly for long. Such a delivery does not
// count against the limits of the others.
func (s *Scheduler) Waits(a objectstore.Alarm) { s.post(message{waits: &a}) }

// waits marks a delivery as waiting.
func (s *Scheduler) waits(a objectstore.Alarm) {
	d := s.out[a.ID]
	if d == nil || d.Generation != a.Generation || d.waits {
		return
	}
	d.waits = true
	s.waiting++
	d.queue.waiting++
	if d.boot {
		d.queue.boot.away++
	}
}

// send delivers an entry.
func (s *Scheduler) send(e *entry) {
	s.out[e.ID] = &delivery{entry: e}
	e.queue.out++
	s.cfg.Deliver(Delivery{
		Alarm: e.Alarm, From: e.at, Charge: s.cfg.Unclean && !e.Due.After(s.start),
	})
}

// takeBack removes a delivery from those that are out.
func (s *Scheduler) takeBack(d *delivery) {
	delete(s.out, d.ID)
	d.queue.out--
	if d.waits {
		s.waiting--
		d.queue.waiting--
		if d.boot {
			d.queue.boot.away--
		}
	}
}

// perWaiting is the limit of all deliveries that are out, as a multiple of the limit of those that do not wait.
const perWaiting = 16

// room returns how many more deliveries of a queue may go out. A queue has reserved places, so that alarms of one class
// never wait for those of others.
func (s *Scheduler) room(q *alarmQueue) int {
	c := &s.cfg
	if q == s.suspects && c.Unclean {
		return 1 - q.out
	}
	places := func(times, mine, all int) int {
		return min(times*c.Concurrency-mine, max(times*c.HostConcurrency-all, times*c.Reserve-mine))
	}
	return min(places(1, q.out-q.waiting, len(s.out)-s.waiting), places(perWaiting, q.out, len(s.out)))
}
