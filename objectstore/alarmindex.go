package objectstore

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Alarms returns up to limit entries of the alarm index that follow after, in
// order of due time and ID, and the position of the last one returned (after
// itself if there is none).
func (sn *Snapshot) Alarms(after AlarmPos, limit int) ([]Alarm, AlarmPos, error) {
	start := append([]byte(after.key), 0)
	if after.key == "" {
		start = []byte{keyAlarm}
	}
	alarms, last, err := sn.alarms(start, []byte{keyAlarm + 1}, limit, func(key []byte) (ID, bool) {
		_, id, ok := splitAlarmKey(key)
		return id, ok
	})
	if last == "" {
		return alarms, after, err
	}
	return alarms, AlarmPos{key: last}, err
}

// BootAlarms returns up to limit alarms with AtBoot of objects that follow after,
// in order of ID. The zero ID is before the first.
func (sn *Snapshot) BootAlarms(after ID, limit int) ([]Alarm, error) {
	start := []byte{keyBoot}
	if after != (ID{}) {
		start = append(bootKey(after), 0)
	}
	alarms, _, err := sn.alarms(start, []byte{keyBoot + 1}, limit, func(key []byte) (ID, bool) {
		id, rest, ok := splitID(key[1:])
		return id, ok && len(rest) == 0
	})
	return alarms, err
}

// alarms reads entries of an index. Keys that cannot be read are Check's affair.
func (sn *Snapshot) alarms(start, end []byte, limit int, parse func([]byte) (ID, bool)) (alarms []Alarm, last string, err error) {
	w, err := sn.walk(start, end)
	if err != nil {
		return nil, "", err
	}
	defer w.close()
	ok, err := w.step((*pebble.Iterator).First, w)
	for ; ok && err == nil && len(alarms) < limit; ok, err = w.next() {
		id, isID := parse(w.key)
		if !isID {
			continue
		}
		e, err := decodeIndexEntry(w.value)
		if err != nil {
			return alarms, last, err
		}
		alarms = append(alarms, Alarm{ID: id, Due: time.UnixMilli(e.dueMS).UTC(), Generation: e.generation})
		last = string(w.key)
	}
	return alarms, last, err
}
