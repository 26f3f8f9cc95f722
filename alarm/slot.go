package alarm

import (
	"time"

	"github.com/dohost/dohost/objectstore"
)

// MaxRuns is how often a failing alarm runs before it is dropped: once, and six
// retries, as in workerd (server/alarm-scheduler.c++).
const MaxRuns = 7

// Info tells an alarm handler about the run.
type Info struct {
	// Scheduled is when the alarm was due.
	Scheduled time.Time
	// Attempt counts the runs of this alarm that failed before; zero at first.
	Attempt int
}

// Failed returns the slot after a failed run: due again after Backoff, under a new
// generation. again is false after the last run: the alarm is dropped. jitter is
// from 0 to 0.25.
func Failed(s objectstore.Slot, now time.Time, jitter float64, generation uint64) (next objectstore.Slot, again bool) {
	failed := s.Attempt
	if !s.Raised {
		failed++
	}
	if failed >= MaxRuns {
		return objectstore.Slot{}, false
	}
	return objectstore.Slot{
		Due:        now.Add(Backoff(failed-1, jitter)),
		Generation: generation,
		Attempt:    failed,
		AtBoot:     s.AtBoot,
	}, true
}

// Raise returns the slot with the coming run counted beforehand, for a run that may
// end the process. The generation stays. ok is false if the runs are used up.
func Raise(s objectstore.Slot) (next objectstore.Slot, ok bool) {
	s.Attempt++
	s.Raised = true
	return s, s.Attempt <= MaxRuns
}
