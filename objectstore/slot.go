package objectstore

import "time"

// Slot is an object's one alarm.
type Slot struct {
	// Due is when it fires. It is kept in whole milliseconds, rounded up so that
	// no alarm is early, and read back in UTC.
	Due time.Time
	// Generation tells one setting of the alarm from the next.
	Generation uint64
	// Attempt counts the runs that have failed.
	Attempt int
	// Raised says that Attempt already counts the coming run.
	Raised bool
	// AtBoot asks for a delivery when the host starts as well.
	AtBoot bool
}

// rounded returns the slot as it will be read back.
func (s Slot) rounded() Slot {
	s.Due = time.UnixMilli(dueMS(s.Due)).UTC()
	return s
}

// AlarmChange is a durable change of an object's slot. When Set is false the
// slot was cleared, and Slot is zero.
type AlarmChange struct {
	ID   ID
	Slot Slot
	Set  bool
}

// Alarm is an entry of the alarm index.
type Alarm struct {
	ID         ID
	Due        time.Time
	Generation uint64
}

// AlarmPos is a place in the alarm index, which is ordered by due time and then
// by ID. The zero AlarmPos is before the first entry.
type AlarmPos struct{ key string }

// Pos returns the alarm's place in the index: reading goes on after it.
func (a Alarm) Pos() AlarmPos { return AlarmPos{key: string(alarmKey(dueMS(a.Due), a.ID))} }
