package objectstore

import (
	"bytes"
	"time"
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

// alarms reads entries of an index. It passes over entries that cannot be read: one
// entry must not hide those after it. Check reports their keys. If only the value of an
// entry cannot be decoded, the slot of the object takes its place.
func (sn *Snapshot) alarms(start, end []byte, limit int, parse func([]byte) (ID, bool)) (alarms []Alarm, last string, err error) {
	w, err := sn.walk(start, end)
	if err != nil {
		return nil, "", err
	}
	defer w.close()
	w.onDamage = func(*DamageError, []byte, []byte) {}
	ok, err := w.first()
	for ; ok && err == nil && len(alarms) < limit; ok, err = w.next() {
		id, isID := parse(w.key)
		if !isID {
			continue
		}
		e, err := decodeIndexEntry(w.value)
		if err != nil {
			sn.store.damages.add(Damage{Key: string(w.key), Detail: err.Error()})
			if e, isID = sn.entryOf(id, w.key); !isID {
				continue
			}
		}
		alarms = append(alarms, Alarm{ID: id, Due: time.UnixMilli(e.dueMS).UTC(), Generation: e.generation})
		last = string(w.key)
	}
	return alarms, last, err
}

// entryOf returns the index entry that the slot of an object asks for, if the entry
// belongs under key.
func (sn *Snapshot) entryOf(id ID, key []byte) (indexEntry, bool) {
	slot, ok, err := sn.Slot(id)
	if !ok || err != nil {
		return indexEntry{}, false
	}
	due := dueMS(slot.Due)
	at := alarmKey(due, id)
	if key[0] == keyBoot {
		at = nil
		if slot.AtBoot {
			at = bootKey(id)
		}
	}
	return indexEntry{dueMS: due, generation: slot.Generation}, bytes.Equal(key, at)
}
