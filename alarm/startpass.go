package alarm

import "slices"

// startPass is the delivery of those alarms of a class that are delivered when the host starts, due or not.
type startPass struct {
	after     string // the name of the last object
	waiting   int    // queued, and not run yet
	suspended int    // of those: out, and waiting for something other than their objects
	allQueued bool   // all are queued
}

// endStartDelivery notes that the entry of a start delivery needs no further delivery: it has run, or a change has
// replaced it.
func (e *alarmEntry) endStartDelivery() {
	if e.atStart {
		e.atStart = false
		e.queue.startPass.waiting--
	}
}

// queueStartAlarms queues the next alarms that are delivered at the start, at most a group of a class at a time. A
// delivery that waits for something other than its object does not count.
func (s *Scheduler) queueStartAlarms() {
	for _, q := range s.order {
		if q == s.suspects || s.cfg.StartAlarms == nil {
			q.startPass.allQueued = true
		}
		s.queueStartAlarmsOf(q)
	}
}

func (s *Scheduler) queueStartAlarmsOf(q *alarmQueue) {
	b := &q.startPass
	limit := (s.cfg.Group + 1) / 2
	for !b.allQueued && b.waiting-b.suspended+limit <= s.cfg.Group && !s.paused() {
		as, err := s.cfg.StartAlarms(s.ctx, q.class, b.after, limit)
		if err != nil {
			s.failed(err)
			return
		}
		b.allQueued = len(as) < limit
		for _, a := range as {
			b.after = a.ID.Name
			if s.outstanding[a.ID] == nil && a.Generation < s.cfg.StartBefore {
				s.take(a.ID)
				s.put(&alarmEntry{Alarm: a, queue: q, at: s.start, atStart: true})
				b.waiting++
			}
		}
	}
}

// suspectsMayRun reports whether suspects may be delivered. Alarms that run alone wait until all other alarms
// have run that were due at the start or are delivered because of it.
func (s *Scheduler) suspectsMayRun() bool {
	if !s.suspectsReleased {
		s.suspectsReleased = !s.cfg.CrashLoop.suspectsAlone() || s.listed && !s.dueAtStart()
	}
	return s.suspectsReleased
}

// dueAtStart reports whether an alarm that was due at the start, and is no suspect, still has to run or is running.
func (s *Scheduler) dueAtStart() bool {
	awaited := func(e *alarmEntry) bool {
		return e.queue != s.suspects && s.cfg.CrashLoop.suspectsWait(e.Due, s.start, e.tries)
	}
	for _, q := range s.order {
		if q == s.suspects {
			continue
		}
		unread := !q.complete && dueBy(q.last.Due, s.start)
		if unread || !q.startPass.allQueued || q.startPass.waiting > 0 || slices.ContainsFunc(q.heap, awaited) {
			return true
		}
	}
	for _, d := range s.outstanding {
		if awaited(d.alarmEntry) {
			return true
		}
	}
	for _, e := range s.held {
		if awaited(e) {
			return true
		}
	}
	return false
}
