package agent

import (
	"fmt"
	"time"
)

// ScheduleKind names the function that made a [When], in the terms of the Agents SDK.
type ScheduleKind string

// The kinds of schedules.
const (
	ScheduleDelayed  ScheduleKind = "delayed"   // After
	ScheduleAt       ScheduleKind = "scheduled" // At
	ScheduleInterval ScheduleKind = "interval"  // Every
	ScheduleCron     ScheduleKind = "cron"      // Cron
)

// recurs reports whether schedules of the kind have more than one run.
func (k ScheduleKind) recurs() bool { return k == ScheduleInterval || k == ScheduleCron }

// longestInterval bounds intervals.
const longestInterval = 30 * 24 * time.Hour

// When is the time, or the times, of a schedule: one of [After], [At], [Every] and [Cron]. [Schedule] returns
// an error for an invalid one.
type When struct {
	kind  ScheduleKind
	at    time.Time
	delay time.Duration // or interval
	cron  string
	zone  string
}

// After runs once, d from now. A negative d is invalid.
func After(d time.Duration) When { return When{kind: ScheduleDelayed, delay: d} }

// At runs once, at t, in the years 1970 to 9999. A time in the past means now.
func At(t time.Time) When { return When{kind: ScheduleAt, at: t} }

// Every runs repeatedly: d from now, and d after the end of each run. d is more than zero and at most 30 days.
func Every(d time.Duration) When { return When{kind: ScheduleInterval, delay: d} }

// Cron runs whenever a clock in a zone matches the expression: minute, hour, day of the month, month and day of
// the week, or @yearly, @monthly, @weekly, @daily or @hourly. If both days are restricted, one match is enough.
// The zone is an IANA name; "" means UTC.
//
// Where the clock changes, a time of day still runs once a day: if the clock shows the time twice, at the
// first; if the clock is put forward past the time, at that moment. An hourly expression runs in every hour
// that elapses.
func Cron(expr, zone string) When { return When{kind: ScheduleCron, cron: expr, zone: zone} }

// first returns when a new schedule is due. The errors name the invalid part.
func (w When) first(now time.Time) (due time.Time, err error) {
	switch w.kind {
	case ScheduleDelayed:
		if w.delay < 0 {
			return due, fmt.Errorf("agent: After(%v): want zero or more", w.delay)
		}
		due = now.Add(w.delay)
	case ScheduleAt:
		due = w.at
	case ScheduleInterval:
		if w.delay <= 0 || w.delay > longestInterval {
			return due, fmt.Errorf("agent: Every(%v): want more than zero, and at most %v", w.delay, longestInterval)
		}
		due = now.Add(w.delay)
	case ScheduleCron:
		table, err := parseCron(w.cron, w.zone)
		if err != nil {
			return due, err
		}
		if due = table.next(now); due.IsZero() {
			return due, fmt.Errorf("agent: cron %q never fires", w.cron)
		}
	default:
		return due, fmt.Errorf("agent: invalid When: want one from After, At, Every or Cron")
	}
	if y := due.UTC().Year(); y < 1970 || y > 9999 {
		return due, fmt.Errorf("agent: the schedule's time %v is not in the years 1970 to 9999", due.UTC())
	}
	return due, nil
}
