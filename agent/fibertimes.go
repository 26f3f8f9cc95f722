package agent

import "time"

// fiberTimes is the knowledge of an incarnation about the times of its fibers, so that setting the alarm reads few rows.
type fiberTimes struct {
	open       openFibers
	delayed    bool      // an open row may wait for the next call of its hook; an incarnation does not forget it
	fullUntil  time.Time // the disk or the task limit was full: no alarm before this
	expiryRead bool      // expiry is known
	deleted    bool      // an ended fiber was deleted, perhaps in a Transaction that is rolled back: see firstExpiry
	expiry     int64     // of the first ended fiber, or earlier; zero if there is none
}

// openFibers is the knowledge about the rows that need the alarm.
type openFibers uint8

const (
	openUnknown openFibers = iota
	openNone               // no row needs the alarm: see rows.arm
	openResumed            // a row was resumed since the alarm was set, so one needs it
)

// written records that a row was written: one may need the alarm now.
func (t *fiberTimes) written() {
	if t.open == openNone {
		t.open = openUnknown
	}
}

// takeResumed reports whether a row was resumed since the alarm was set, and none waits for a later time. Then the alarm
// depends on no row.
func (t *fiberTimes) takeResumed() bool {
	if t.open != openResumed || t.delayed {
		return false
	}
	t.open = openUnknown
	return true
}

// delay records the time before which a row is not due.
func (t *fiberTimes) delay(r *fiberRow) { t.delayed = t.delayed || r.NotBefore > 0 }

// expire records when a row expires.
func (t *fiberTimes) expire(r *fiberRow) {
	if r.Expires > 0 && (t.expiry == 0 || r.Expires < t.expiry) {
		t.expiry = r.Expires
	}
}

// full records that the disk or the task limit was full at a time.
func (t *fiberTimes) full(now time.Time) { t.fullUntil = now.Add(time.Second) }

// postpone returns the wakeup, but not before the retry after a full disk or task limit. Otherwise due rows would set the
// alarm to the past, for ever.
func (t *fiberTimes) postpone(w wakeup) wakeup {
	if !w.at.IsZero() && w.at.Before(t.fullUntil) {
		w.at = t.fullUntil
	}
	return w
}
