package alarm

import (
	"math"
	"time"

	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/objectstore"
)

// CrashLoop has the decisions of the crash-loop protection, for one host: an alarm whose run ends the process must
// neither end each process that follows nor keep the other alarms from their runs. It is a value without effects. The
// runtime and the Scheduler ask it, write the slots that it returns, and wait for the disk where it says so.
//
// A process that ends may have been ended by a handler, by a constructor, or by something else. Errors are counted in
// Slot.Attempt, deaths of the process in Slot.Charge. The states of a slot with respect to deaths, as paths of a diagram
// (the next host that delivers the alarm notes the death or the end of the previous one):
//
//	clear ── charged, before the constructor ──▶ charged ── run ends ──▶ clear
//	charged ── process dies ──▶ suspect ── handler begins ──▶ begun ── run ends ──▶ clear
//	charged ── process dies, object is in memory ──▶ begun ── host closes ──▶ suspect ── run ends ──▶ clear
//	suspect ── process dies ──▶ delayed ── due ──▶ suspect
//	begun ── process dies ──▶ delayed ── due, object is in memory ──▶ begun
//	begun ── process dies for the last time ──▶ parked ── revived ──▶ clear
//
//	state    Slot.Charge
//	clear    zero
//	charged  the mark of a host; no death is counted
//	suspect  deaths, and the mark of the host that runs the constructor
//	begun    deaths, and the mark of the host that runs the handler
//	delayed  deaths and no mark: no host runs the alarm before it is due again
//	parked   deaths; Slot.Parked is ParkedDeaths
//
// The invariants:
//
//   - After an unclean end, the runs of all due alarms are charged before they begin: the slot is marked, durably,
//     with the number of this host, before the object's constructor runs. These runs may overlap.
//   - A slot with the mark of a dead host makes its alarm a suspect. The death counts as Deaths if the handler had
//     begun according to the mark, else as Lost.
//   - A suspect is charged before every run, in every host; a second mark, also durable, records that its handler
//     begins. After an unclean end suspects run one at a time, after all other alarms that were due at the start. So
//     the alarm that ends the process is found among many, and the others have run before it. The Scheduler has this
//     order (Scheduler.suspectsMayRun in startpass.go), since it knows the other alarms.
//   - Only Deaths can park an alarm. From the second death on, of either kind, the alarm
//     is due again after a delay that doubles, up to 17 min.
//   - A run that ends without ending the process clears the mark and both counts.
//   - A mark of this host is no death: the delivery was cut off, and is repeated. A mark of the previous host is no
//     death either, if that host closed. The end of older hosts is unknown and counts as a death.
//   - An alarm that a constructor sets during the delivery of the previous alarm inherits the counts and the mark of
//     that alarm, from the moment when it is set: the constructor may make the new alarm durable and then
//     end the process. If the constructor fails instead, the failed run counts in the new alarm. An alarm that is set
//     while the handler runs inherits the mark. Otherwise an object that sets its alarm whenever it wakes would
//     escape both the back-off and the count of deaths.
type CrashLoop struct {
	// Host is the generation of this host in the store.
	Host uint64
	// Unclean reports that the previous host did not close: an alarm that is due now may have ended it.
	Unclean bool
}

// MaxDeaths is the number of processes that may end after the handler of one suspect has begun, before its alarm is
// parked. The first death after a charged run does not count: that run may have begun together with others.
const MaxDeaths = 6

// MustCharge reports whether a run must be charged before it begins: the run of a suspect, and the run of a delivery with
// Delivery.Charge.
func MustCharge(s objectstore.Slot, delivery bool) bool { return delivery || s.Suspect() }

// Run is a run to charge.
type Run struct {
	// HandlerBegins reports that the handler begins when the slot is durable, and not the constructor.
	HandlerBegins bool
	// Durable reports that the slot is durable already if Charge does not change it.
	Durable bool
	Now     time.Time
	// NewGeneration draws the generation of a slot that does not run now.
	NewGeneration func() uint64
}

// ChargeResult is the decision of Charge about a run.
type ChargeResult uint8

// The results of Charge. With Postponed and Parked there is no run.
const (
	MayRun            ChargeResult = iota // the slot is charged, durably
	MayRunWhenDurable                     // after all earlier writes of the object are durable, the slot among them
	Postponed                             // the slot is due again later
	Parked                                // the slot is parked
)

// Runs reports whether the alarm runs.
func (r ChargeResult) Runs() bool { return r == MayRun || r == MayRunWhenDurable }

// Charge charges a run to the slot, for a run that may end the process, and counts the death of the host that charged
// the previous run. The caller writes the slot if it has changed. A slot that is charged already is returned as it is.
func (l CrashLoop) Charge(s objectstore.Slot, r Run) (next objectstore.Slot, result ChargeResult) {
	next = s
	c := &next.Charge
	if c.Host != 0 && c.Host != l.Host {
		if died := l.Unclean || c.Host+1 != l.Host; died {
			countDeath(c)
			switch n := int(c.Deaths) + int(c.Lost); {
			case c.Deaths >= MaxDeaths:
				return park(next, objectstore.ParkedDeaths, r.NewGeneration()), Parked
			case n > 1:
				next.First = next.Setting()
				next.Due, next.Generation = r.Now.Add(deathDelay(n)), r.NewGeneration()
				c.Host, c.Begun = 0, false
				return next, Postponed
			}
		}
		c.Begun = false
	}
	c.Host = l.Host
	c.Begun = c.Begun || r.HandlerBegins && (c.Deaths > 0 || c.Lost > 0)
	if next == s && r.Durable {
		return next, MayRun
	}
	return next, MayRunWhenDurable
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

// deathMax bounds deathDelay, at 17 min.
const deathMax = 1024 * time.Second

// deathDelay returns the delay of an alarm after n processes have ended during its runs, from the second one on: 2 s,
// doubling. It grows further than Backoff, since each run may end the whole host.
func deathDelay(n int) time.Duration { return backoff.Delay(n-2, backoffFirst, deathMax) }

// SetByConstructor returns the slot of an alarm that a constructor sets during a delivery of the alarm of the slot delivered. It inherits
// the counts and the mark of delivered. The new alarm repeats the delivered one if the run of the delivered alarm is interrupted or fails.
func SetByConstructor(s, delivered objectstore.Slot) objectstore.Slot {
	s.Attempt, s.Charge, s.Error, s.First = delivered.Attempt, delivered.Charge, delivered.Error, delivered.Setting()
	return s
}

// SetByHandler returns the slot of an alarm that is set while the handler runs, with the charge of that run. When the
// run has ended, ClearCounts clears it.
func SetByHandler(s objectstore.Slot, run objectstore.Charge) objectstore.Slot {
	s.Charge = run
	return s
}

// ClearCounts returns the slot of an alarm that was set before or during a run that has ended,
// without that run's counts. The generation stays if there are none.
func ClearCounts(s objectstore.Slot, generation func() uint64) objectstore.Slot {
	if s.Attempt == 0 && !s.Suspect() && s.Error == "" && s.First == (objectstore.Setting{}) {
		return s
	}
	return objectstore.Slot{Due: s.Due, AtStart: s.AtStart, Generation: generation()}
}

// survived returns the slot of a run that has ended without ending the process.
func survived(s objectstore.Slot) objectstore.Slot {
	s.Charge = objectstore.Charge{}
	return s
}

// chargesDelivery reports whether a delivery of an alarm is charged although the alarm may be no suspect.
func (l CrashLoop) chargesDelivery(due, start time.Time) bool { return l.Unclean && dueBy(due, start) }

// suspectsAlone reports whether suspects run one at a time, after the alarms that suspectsWait awaits.
func (l CrashLoop) suspectsAlone() bool { return l.Unclean }

// maxAwaitedTries is the number of tries of an alarm that was due at the start before the suspects stop waiting for it.
const maxAwaitedTries = 10

// suspectsWait reports whether suspects that run alone wait for the end of the run of an alarm that is no suspect, after
// a number of deliveries that were cut off.
func (CrashLoop) suspectsWait(due, start time.Time, tries int) bool {
	return dueBy(due, start) && tries < maxAwaitedTries
}

// dueBy reports whether an alarm was due when the host started.
func dueBy(due, start time.Time) bool { return !due.After(start) }
