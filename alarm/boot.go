package alarm

import "slices"

// bootPass is the delivery of those alarms of a class that are delivered when the host starts, due or not.
type bootPass struct {
	after   string // the name of the last object
	waiting int    // queued, and not run yet
	away    int    // of those: out, and waiting for something other than their objects
	booted  bool   // all are queued
}

// ended notes that the entry of a boot delivery needs no further delivery: it has run, or a change has replaced it.
func (e *entry) ended() {
	if e.boot {
		e.boot = false
		e.queue.boot.waiting--
	}
}

// deliverBoot queues the next alarms that are delivered at boot, at most a group of a class at a time. A delivery
// that waits for something other than its object does not count.
func (s *Scheduler) deliverBoot() {
	for _, q := range s.order {
		if q == s.suspects || s.cfg.Boot == nil {
			q.boot.booted = true
		}
		s.deliverBootOf(q)
	}
}

func (s *Scheduler) deliverBootOf(q *alarmQueue) {
	b := &q.boot
	limit := (s.cfg.Group + 1) / 2
	for !b.booted && b.waiting-b.away+limit <= s.cfg.Group && !s.paused() {
		as, err := s.cfg.Boot(s.ctx, q.class, b.after, limit)
		if err != nil {
			s.failed(err)
			return
		}
		b.booted = len(as) < limit
		for _, a := range as {
			b.after = a.ID.Name
			if s.out[a.ID] == nil && a.Generation < s.cfg.BootBefore {
				s.forget(a.ID)
				s.put(&entry{Alarm: a, queue: q, at: s.start, boot: true})
				b.waiting++
			}
		}
	}
}

// patience is the number of tries of an alarm that was due at the start before the suspects stop waiting for it.
const patience = 10

// suspectsMayRun reports whether suspects may be delivered. After an unclean end they wait until all other alarms
// have run that were due at the start or are delivered because of it.
func (s *Scheduler) suspectsMayRun() bool {
	if !s.passed {
		s.passed = !s.cfg.Unclean || s.listed && !s.dueAtStart()
	}
	return s.passed
}

// dueAtStart reports whether an alarm that was due at the start, and is no suspect, still has to run or is running.
func (s *Scheduler) dueAtStart() bool {
	awaited := func(e *entry) bool { return e.queue != s.suspects && !e.Due.After(s.start) && e.tries < patience }
	for _, q := range s.order {
		if q == s.suspects {
			continue
		}
		unread := !q.complete && !q.last.Due.After(s.start)
		if unread || !q.boot.booted || q.boot.waiting > 0 || slices.ContainsFunc(q.entries, awaited) {
			return true
		}
	}
	for _, d := range s.out {
		if awaited(d.entry) {
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
