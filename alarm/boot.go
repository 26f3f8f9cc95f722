package alarm

import (
	"slices"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// bootPass is what a scheduler does once, when the host has started.
type bootPass struct {
	start time.Time

	// Alarms that are delivered at boot whatever their time.
	after   objectstore.ID
	waiting int // brought, and not run yet
	away    int // of those: out, and waiting for something other than their objects
	booted  bool

	// Alarms that an earlier unclean start has counted already: one of them may end
	// the process every time. They are found in the index again, and run last, one
	// at a time.
	pos       objectstore.AlarmPos
	running   bool
	suspected bool // all have run
	tries     int  // of the one at pos
}

// ended notes that a delivery has come back for good, or was overtaken.
func (b *bootPass) ended(e *entry) {
	if e.suspect {
		e.suspect = false
		b.running = false
	}
	if e.boot {
		e.boot = false
		b.waiting--
	}
}

// deliverBoot brings the next alarms that are delivered at boot. There are never
// more than a group of them at a time, and one that takes long holds up no others.
func (s *Scheduler) deliverBoot() {
	b := &s.boot
	if s.cfg.Boot == nil {
		b.booted = true
	}
	limit := (s.cfg.Group + 1) / 2
	for !b.booted && b.waiting-b.away+limit <= s.cfg.Group && !s.paused() {
		as, err := s.cfg.Boot(s.ctx, b.after, limit)
		if err != nil {
			s.failed(err)
			return
		}
		b.booted = len(as) < limit
		for _, a := range as {
			b.after = a.ID
			if s.out[a.ID] == nil && a.Generation < s.cfg.BootBefore {
				s.forget(a.ID)
				s.queue.put(&entry{Alarm: a, at: b.start, boot: true})
				b.waiting++
			}
		}
	}
}

// deliverRaised sends out a group of alarms that were due when the host started
// after an unclean end, once their coming runs are counted.
func (s *Scheduler) deliverRaised() {
	var group []objectstore.Alarm
	var es []*entry
	for len(group) < min(s.cfg.Group, s.room()) {
		e := s.queue.first()
		if e == nil || !s.uncounted(e) {
			break
		}
		es = append(es, s.queue.take())
		group = append(group, e.Alarm)
	}
	// Out already, so that the change which the raising makes is kept with them.
	for _, e := range es {
		s.out[e.ID] = &delivery{entry: e}
	}
	raised, failed := s.cfg.Raise(s.ctx, group, false)
	deliver := map[objectstore.ID]Delivery{}
	for _, d := range raised {
		deliver[d.ID] = d
	}
	for _, e := range es {
		if d, ok := deliver[e.ID]; ok {
			s.sendRaised(e, d)
			continue
		}
		s.takeBack(s.out[e.ID])
		if slices.Contains(failed, e.ID) {
			e.tries++
			s.hold(e, retryAfter)
		} else {
			s.boot.ended(e)
		}
	}
}

// uncounted says that the coming run of an alarm is to be counted before it is
// delivered.
func (s *Scheduler) uncounted(e *entry) bool {
	return s.cfg.Unclean && e.count == countNot && !e.Due.After(s.boot.start)
}

// sendRaised sends out what Raise has returned.
func (s *Scheduler) sendRaised(e *entry, d Delivery) {
	e.count = countDone
	if d.Raise {
		e.count = countLate
	}
	s.cfg.Deliver(d)
}

// patience is how many tries of an alarm that was due at the start the suspects wait
// for.
const patience = 10

// deliverSuspect sends out the next suspect, once everything else that was due at
// the start is out of the way.
func (s *Scheduler) deliverSuspect() {
	b := &s.boot
	if !s.cfg.Unclean || b.suspected || b.running || !b.booted || b.waiting > 0 || s.paused() || s.dueAtStart() {
		return
	}
	for !b.running {
		as, pos, err := s.cfg.Window(s.ctx, b.pos, 1)
		if err != nil {
			s.failed(err)
			return
		}
		if len(as) == 0 || as[0].Due.After(b.start) {
			b.suspected = true
			return
		}
		if !s.deliverOneSuspect(as[0]) {
			return
		}
		b.pos = pos
	}
}

// dueAtStart says whether an alarm that was due at the start, and is no suspect, is
// still to run, or runs.
func (s *Scheduler) dueAtStart() bool {
	start := s.boot.start
	if !s.complete && !s.last.Due.After(start) {
		return true // unread
	}
	awaited := func(e *entry) bool { return !e.Due.After(start) && e.tries < patience }
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
	return slices.ContainsFunc(s.queue.order, awaited)
}

// deliverOneSuspect returns false if it could not find out whether a is one.
func (s *Scheduler) deliverOneSuspect(a objectstore.Alarm) bool {
	if s.out[a.ID] != nil {
		return true // changed since the start: no suspect any more
	}
	e := &entry{Alarm: a, at: a.Due, suspect: true}
	s.out[a.ID] = &delivery{entry: e}
	raised, failed := s.cfg.Raise(s.ctx, []objectstore.Alarm{a}, true)
	if len(raised) == 0 {
		s.takeBack(s.out[a.ID])
		if len(failed) == 0 {
			return true
		}
		if s.boot.tries++; s.boot.tries == patience {
			s.boot.tries = 0
			return true // it waits for the next start
		}
		s.retryAt = time.Now().Add(retryAfter)
		return false
	}
	s.boot.tries = 0
	s.boot.running = true
	s.sendRaised(e, raised[0])
	return true
}
