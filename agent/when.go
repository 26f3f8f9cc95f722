package agent

import (
	"fmt"
	"time"
)

// ScheduleKind is which of the functions that make a [When] has made one, in the words of the
// Agents SDK.
type ScheduleKind string

// The kinds of schedules.
const (
	KindDelayed  ScheduleKind = "delayed"   // After
	KindAt       ScheduleKind = "scheduled" // At
	KindInterval ScheduleKind = "interval"  // Every
	KindCron     ScheduleKind = "cron"      // Cron
)

// recurs says that a schedule of the kind has more than one run.
func (k ScheduleKind) recurs() bool { return k == KindInterval || k == KindCron }

// longestInterval is the longest that an interval may be.
const longestInterval = 30 * 24 * time.Hour

// When is the time, or the times, of a schedule: one of [After], [At], [Every] and [Cron].
// What it cannot be is an error of [Schedule].
type When struct {
	kind  ScheduleKind
	at    time.Time
	delay time.Duration // or interval
	cron  string
	zone  string
}

// After is once, d from now. It is not negative.
func After(d time.Duration) When { return When{kind: KindDelayed, delay: d} }

// At is once, at t, in the years 1970 to 9999. A time in the past means now.
func At(t time.Time) When { return When{kind: KindAt, at: t} }

// Every is again and again: d from now, and d after the end of each run. It is more than zero
// and at most 30 days.
func Every(d time.Duration) When { return When{kind: KindInterval, delay: d} }

// Cron is whenever a clock in a zone shows what the expression says: minute, hour, day of the
// month, month and day of the week, or @yearly, @monthly, @weekly, @daily or @hourly. If both
// days are restricted, one of them is enough. The zone is an IANA name; "" means UTC.
//
// Where the clock changes, a time of the day still comes once a day: if the clock shows it
// twice, the first time; if it is put forward past it, at the moment when it is. What is for
// every hour runs in every hour that passes.
func Cron(expr, zone string) When { return When{kind: KindCron, cron: expr, zone: zone} }

// first is when a schedule that is made now is due. The errors name what is wrong.
func (w When) first(now time.Time) (due time.Time, err error) {
	switch w.kind {
	case KindDelayed:
		if w.delay < 0 {
			return due, fmt.Errorf("agent: After(%v): want zero or more", w.delay)
		}
		due = now.Add(w.delay)
	case KindAt:
		due = w.at
	case KindInterval:
		if w.delay <= 0 || w.delay > longestInterval {
			return due, fmt.Errorf("agent: Every(%v): want more than zero, and at most %v", w.delay, longestInterval)
		}
		due = now.Add(w.delay)
	case KindCron:
		table, err := parseCron(w.cron, w.zone)
		if err != nil {
			return due, err
		}
		if due = table.next(now); due.IsZero() {
			return due, fmt.Errorf("agent: cron %q never comes", w.cron)
		}
	default:
		return due, fmt.Errorf("agent: a When that none of After, At, Every and Cron has made")
	}
	if y := due.UTC().Year(); y < 1970 || y > 9999 {
		return due, fmt.Errorf("agent: the schedule's time %v is not in the years 1970 to 9999", due.UTC())
	}
	return due, nil
}
