package alarm

import "slices"

// bootPass is the delivery of a class's alarms that are delivered when the host starts,
// whatever their time.
type bootPass struct {
	after   string // the name of the last object
	waiting int    // brought, and not run yet
	away    int    // of those: out, and waiting for something other than their objects
	booted  bool   // all are brought
}

// ended notes that a delivery has come back for good, or was overtaken.
func (e *entry) ended() {
	if e.boot {
		e.boot = false
		e.lane.boot.waiting--
	}
}

// deliverBoot brings the next alarms that are delivered at boot. There are never
// more than a group of them of a class at a time, and one that takes long holds up no
// others.
func (s *Scheduler) deliverBoot() {
	for _, l := range s.order {
		if l == s.suspects || s.cfg.Boot == nil {
			l.boot.booted = true
		}
		s.deliverBootOf(l)
	}
}

func (s *Scheduler) deliverBootOf(l *lane) {
	b := &l.boot
	limit := (s.cfg.Group + 1) / 2
	for !b.booted && b.waiting-b.away+limit <= s.cfg.Group && !s.paused() {
		as, err := s.cfg.Boot(s.ctx, l.class, b.after, limit)
		if err != nil {
			s.failed(err)
			return
		}
		b.booted = len(as) < limit
		for _, a := range as {
			b.after = a.ID.Name
			if s.out[a.ID] == nil && a.Generation < s.cfg.BootBefore {
				s.forget(a.ID)
				s.put(&entry{Alarm: a, lane: l, at: s.start, boot: true})
				b.waiting++
			}
		}
	}
}

// patience is how many tries of an alarm that was due at the start the suspects wait
// for.
const patience = 10

// suspectsMayRun says whether suspects are delivered: after an unclean end not before
// everything else that was due at the start, or is delivered because of it, has run.
func (s *Scheduler) suspectsMayRun() bool {
	if !s.passed {
		s.passed = !s.cfg.Unclean || s.listed && !s.dueAtStart()
	}
	return s.passed
}

// dueAtStart says whether an alarm that was due at the start, and is no suspect, is
// still to run, or runs.
func (s *Scheduler) dueAtStart() bool {
	awaited := func(e *entry) bool { return e.lane != s.suspects && !e.Due.After(s.start) && e.tries < patience }
	for _, l := range s.order {
		if l == s.suspects {
			continue
		}
		unread := !l.complete && !l.last.Due.After(s.start)
		if unread || !l.boot.booted || l.boot.waiting > 0 || slices.ContainsFunc(l.queue, awaited) {
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
