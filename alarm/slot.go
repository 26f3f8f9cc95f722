package alarm

import (
	"math"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// MaxRuns is the number of runs of a failing alarm before it is parked: one, and six retries, as in workerd
// (server/alarm-scheduler.c++).
const MaxRuns = 7

// MaxDeaths is the number of processes that may end after the handler of one suspect has begun, before its alarm is
// parked. The first death after a charged run does not count: that run may have begun together with others.
const MaxDeaths = 6

// Info describes a run to the alarm handler.
type Info struct {
	// Scheduled is when the alarm was due: the time that SetAlarm was given, or the time of
	// that call if it was later, rounded up to a millisecond; for a retry, the time of the
	// retry. For a delivery because the host has started, it may be in the future.
	Scheduled time.Time
	// Attempt counts the runs of this alarm that failed before; zero at first.
	Attempt int
}

// Host describes the host that delivers, for Charge.
type Host struct {
	Generation uint64
	// Clean reports that the previous host has closed.
	Clean bool
}

// ChargeResult is the decision of Charge about a delivery.
type ChargeResult uint8

// The results of Charge. With Postponed and Parked there is no run.
const (
	MayRun    ChargeResult = iota
	Postponed              // the slot is due again later
	Parked                 // the slot is parked
)

// Charge charges the coming run of an alarm to its slot, for a run that may end the process, and counts the death of
// the host that charged the previous run. begun means that the handler begins when the slot is durable. generation
// draws a new one, for a slot that does not run now. A slot that is charged already is returned as it is.
func Charge(s objectstore.Slot, h Host, begun bool, now time.Time, generation func() uint64) (next objectstore.Slot, v ChargeResult) {
	c := &s.Charge
	if c.Host != 0 && c.Host != h.Generation {
		if died := !h.Clean || c.Host+1 != h.Generation; died {
			countDeath(c)
			switch n := int(c.Deaths) + int(c.Lost); {
			case c.Deaths >= MaxDeaths:
				return park(s, objectstore.ParkedDeaths, generation()), Parked
			case n > 1:
				s.Due, s.Generation = now.Add(deathDelay(n)), generation()
				c.Host, c.Begun = 0, false
				return s, Postponed
			}
		}
		c.Begun = false
	}
	c.Host = h.Generation
	c.Begun = c.Begun || begun && (c.Deaths > 0 || c.Lost > 0)
	return s, MayRun
}

// Failure describes a run that has failed.
type Failure struct {
	Now        time.Time
	Generation uint64  // of the next slot
	Jitter     float64 // from 0 to 0.25
	Error      string  // the text of its error
	// Constructor reports that the object's constructor failed, before the handler.
	Constructor bool
	// Moved reports that the constructor has set the alarm for another time: it is not due before that.
	Moved bool
}

// Failed returns the slot after a failed run: due again after Backoff or, after the last
// run, parked. The process has not ended, so the charge is cleared.
func Failed(s objectstore.Slot, f Failure) objectstore.Slot {
	s.Attempt++
	s.Charge = objectstore.Charge{}
	s.Error = f.Error
	switch {
	case s.Attempt >= MaxRuns && f.Constructor:
		return park(s, objectstore.ParkedConstructor, f.Generation)
	case s.Attempt >= MaxRuns:
		return park(s, objectstore.ParkedFailed, f.Generation)
	}
	due := f.Now.Add(Backoff(s.Attempt-1, f.Jitter))
	if !f.Moved || s.Due.Before(due) {
		s.Due = due
	}
	s.Generation = f.Generation
	return s
}

// NoHandler returns the parked slot of an alarm of a class without a handler.
func NoHandler(s objectstore.Slot, err error, generation uint64) objectstore.Slot {
	s.Charge = objectstore.Charge{}
	s.Error = err.Error()
	return park(s, objectstore.ParkedNoHandler, generation)
}

func park(s objectstore.Slot, why objectstore.ParkReason, generation uint64) objectstore.Slot {
	s.Parked, s.Generation = why, generation
	s.Charge.Host, s.Charge.Begun = 0, false
	return s
}

// ClearCounts returns the slot of an alarm that was set before or during a run that has ended,
// without that run's counts. The generation stays if there are none.
func ClearCounts(s objectstore.Slot, generation func() uint64) objectstore.Slot {
	if s.Attempt == 0 && !s.Suspect() && s.Error == "" {
		return s
	}
	return objectstore.Slot{Due: s.Due, AtStart: s.AtStart, Generation: generation()}
}

// Revive returns the slot of a parked alarm that an operator revives: due now, with all
// counts cleared.
func Revive(s objectstore.Slot, now time.Time, generation uint64) objectstore.Slot {
	return objectstore.Slot{Due: now, AtStart: s.AtStart, Generation: generation}
}

// countDeath counts the end of the process that had charged a run.
func countDeath(c *objectstore.Charge) {
	n := &c.Lost
	if c.Begun {
		n = &c.Deaths
	}
	if *n < math.MaxUint16 {
		*n++
	}
}
