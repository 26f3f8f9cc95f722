package alarm

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// MaxRuns is the number of runs of a failing alarm before it is parked: one, and six retries, as in workerd
// (server/alarm-scheduler.c++).
const MaxRuns = 7

// Info describes a run to the alarm handler.
type Info struct {
	// Scheduled is when the alarm was due: the time that SetAlarm was given, rounded up to a
	// millisecond, or the time of that call if it was not earlier, rounded down; for a retry, the
	// time of the retry. For a delivery because the host has started, it may be in the future.
	Scheduled time.Time
	// Attempt counts the runs of this alarm that failed before; zero at first.
	Attempt int

	setting objectstore.Setting
}

// NewInfo returns the Info of a run.
func NewInfo(scheduled time.Time, attempt int, of objectstore.Setting) Info {
	return Info{Scheduled: scheduled, Attempt: attempt, setting: of}
}

// SettingOf returns the setting of the alarm of a run, which is the same in each run of that alarm.
func SettingOf(i Info) objectstore.Setting { return i.setting }

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
	s = survived(s)
	s.First = s.Setting()
	s.Attempt++
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
	s = survived(s)
	s.Error = err.Error()
	return park(s, objectstore.ParkedNoHandler, generation)
}

func park(s objectstore.Slot, why objectstore.ParkReason, generation uint64) objectstore.Slot {
	s.First = s.Setting()
	s.Parked, s.Generation = why, generation
	s.Charge.Host, s.Charge.Begun = 0, false
	return s
}

// Revive returns the slot of a parked alarm that an operator revives: due now, with all
// counts cleared. It is the same setting of the alarm.
func Revive(s objectstore.Slot, now time.Time, generation uint64) objectstore.Slot {
	return objectstore.Slot{Due: now, AtStart: s.AtStart, Generation: generation, First: s.Setting()}
}
