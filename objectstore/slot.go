package objectstore

import (
	"fmt"
	"strings"
	"time"
)

// Slot is an object's one alarm.
type Slot struct {
	// Due is when it fires. It is kept in whole milliseconds, rounded up so that
	// no alarm is early, and read back in UTC.
	Due time.Time
	// Generation distinguishes successive settings of the alarm.
	Generation uint64
	// Attempt counts the consecutive failed runs.
	Attempt int
	// AtStart asks for a delivery when the host starts as well.
	AtStart bool
	// Parked is the reason why the alarm is not delivered any more. Zero: it is delivered.
	Parked ParkReason
	// Charge counts the processes that have ended during a run. An alarm with a charge
	// is a suspect, and has an index of its own.
	Charge Charge
	// First identifies the setting of the alarm that this slot repeats or postpones. It is zero if the slot is that setting.
	First Setting
	// Error is the text of the last failure, of MaxSlotError bytes at most: SetSlot cuts
	// a longer one.
	Error string
}

// Setting identifies one setting of an alarm among all settings of the object's alarms. For an imported
// object this includes the settings in its former store: two settings may have the same generation, but not the same time too.
type Setting struct {
	DueMS      int64 // ms since 1970
	Generation uint64
}

// Setting returns the setting of the alarm, which its retries keep.
func (s Slot) Setting() Setting {
	if s.First != (Setting{}) {
		return s.First
	}
	return Setting{dueMS(s.Due), s.Generation}
}

// MaxSlotError bounds Slot.Error, in bytes.
const MaxSlotError = 512

// Charge counts the processes that have ended during runs of an alarm. An alarm without such a run has the zero
// Charge.
type Charge struct {
	// Host is the generation of the host that charged a run, or zero: no run is charged.
	Host uint64
	// Begun: the handler of the charged run has begun.
	Begun bool
	// Deaths counts the processes that have ended after the handler had begun, Lost the processes that have ended before.
	Deaths, Lost uint16
}

// ParkReason is the reason why the host no longer delivers an alarm.
type ParkReason uint8

// The reasons. NotParked is the zero value.
const (
	NotParked         ParkReason = iota
	ParkedFailed                 // the handler failed too often
	ParkedConstructor            // it failed too often, the last time before the handler, in the constructor
	ParkedDeaths                 // the process ended too often while the handler ran
	ParkedNoHandler              // the class has no alarm handler
)

// String returns the reason in a few words.
func (r ParkReason) String() string {
	switch r {
	case NotParked:
		return "not parked"
	case ParkedFailed:
		return "handler failed"
	case ParkedConstructor:
		return "constructor failed"
	case ParkedDeaths:
		return "process ended in handler"
	case ParkedNoHandler:
		return "no handler"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Suspect reports whether a process has ended during a run of the alarm, or may end during
// the charged run.
func (s Slot) Suspect() bool { return s.Charge != Charge{} }

// rounded returns the slot as it will be read back.
func (s Slot) rounded() Slot {
	s.Due = time.UnixMilli(dueMS(s.Due)).UTC()
	if len(s.Error) > MaxSlotError {
		s.Error = strings.ToValidUTF8(s.Error[:MaxSlotError], "")
	}
	return s
}

// indexKey returns the key of the slot's entry in the index of its class, of the suspects, or of the parked alarms.
func (s Slot) indexKey(id ID) []byte {
	switch {
	case s.Parked != NotParked:
		return parkedKey(id)
	case s.Suspect():
		return suspectKey(dueMS(s.Due), id)
	}
	return alarmKey(dueMS(s.Due), id)
}

// inStartIndex reports whether the slot has an entry in the start index as well. A suspect has none: it waits for its
// time, and for its turn.
func (s Slot) inStartIndex() bool { return s.AtStart && s.Parked == NotParked && !s.Suspect() }
