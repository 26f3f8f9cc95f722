package alarm

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// bootPass is what a scheduler does once, when the host has started.
type bootPass struct {
	start time.Time

	// Alarms that are delivered at boot whatever their time, a group at a time.
	after   objectstore.ID
	waiting int // of the current group
	booted  bool

	// Alarms that an earlier unclean start has counted already: one of them may end
	// the process every time. They are found in the index again, and run last, one
	// at a time.
	pos       objectstore.AlarmPos
	running   bool
	suspected bool // all have run
}

// ended notes that a delivery has come back.
func (b *bootPass) ended(d *delivery) {
	if d.suspect {
		b.running = false
	}
	if d.boot {
		d.boot = false
		b.waiting--
	}
}

// deliverBoot brings the next group of alarms that are delivered at boot.
func (s *Scheduler) deliverBoot() {
	b := &s.boot
	if b.booted || b.waiting > 0 || s.now().Before(s.retryAt) {
		return
	}
	if s.cfg.Boot == nil {
		b.booted = true
		return
	}
	as, err := s.cfg.Boot(s.ctx, b.after, s.cfg.Group)
	if err != nil {
		s.failed(err)
		return
	}
	b.booted = len(as) < s.cfg.Group
	for _, a := range as {
		b.after = a.ID
		if s.out[a.ID] == nil {
			s.queue.put(&entry{Alarm: a, at: b.start, boot: true})
			b.waiting++
		}
	}
}

// deliverRaised sends out a group of alarms that were due when the host started
// after an unclean end, once their coming runs are counted.
func (s *Scheduler) deliverRaised() {
	var group []objectstore.Alarm
	var es []*entry
	for len(group) < s.cfg.Group && len(s.out)+len(group) < s.cfg.Concurrency {
		e := s.queue.first()
		if e == nil || e.tries > 0 || e.Due.After(s.boot.start) {
			break
		}
		es = append(es, s.queue.take())
		group = append(group, e.Alarm)
	}
	// Out already, so that the change which the raising makes is kept with them.
	for _, e := range es {
		s.out[e.ID] = &delivery{entry: e}
	}
	raised, err := s.cfg.Raise(s.ctx, group, false)
	if err != nil {
		s.failed(err)
		for _, e := range es {
			e.tries = 0
			delete(s.out, e.ID)
			e.at = s.retryAt
			s.queue.put(e)
		}
		return
	}
	deliver := map[objectstore.ID]bool{}
	for _, a := range raised {
		deliver[a.ID] = true
	}
	for _, e := range es {
		if deliver[e.ID] {
			s.cfg.Deliver(e.Alarm)
			continue
		}
		d := s.out[e.ID]
		delete(s.out, e.ID)
		s.boot.ended(d)
	}
}

// deliverSuspect sends out the next suspect, once everything else that was due at
// the start is out of the way.
func (s *Scheduler) deliverSuspect() {
	b := &s.boot
	if !s.cfg.Unclean || b.suspected || b.running || !b.booted || s.now().Before(s.retryAt) {
		return
	}
	if e := s.queue.first(); len(s.out) > 0 || (e != nil && !e.Due.After(b.start)) || (!s.complete && s.last.Due.Before(b.start)) {
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
		b.pos = pos
		s.deliverOneSuspect(as[0])
	}
}

func (s *Scheduler) deliverOneSuspect(a objectstore.Alarm) {
	e := &entry{Alarm: a, at: a.Due}
	s.out[a.ID] = &delivery{entry: e, suspect: true}
	raised, err := s.cfg.Raise(s.ctx, []objectstore.Alarm{a}, true)
	if err != nil || len(raised) == 0 {
		delete(s.out, a.ID)
		if err != nil {
			s.failed(err)
		}
		return
	}
	s.boot.running = true
	s.cfg.Deliver(a)
}
