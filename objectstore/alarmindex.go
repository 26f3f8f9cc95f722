package objectstore

import (
	"bytes"
	"errors"
	"iter"
	"time"
)

// Alarm is an entry of an alarm index.
type Alarm struct {
	ID         ID
	Due        time.Time
	Generation uint64
	Suspect    bool // the entry is in the suspects' index, not in the index of its class
}

// AlarmPos is a place in the index of a class, or of the suspects, which is ordered by
// due time and then by ID. The zero AlarmPos is before the first entry.
type AlarmPos struct{ key string }

// Pos returns the alarm's place in its index: reading continues after it.
func (a Alarm) Pos() AlarmPos {
	if a.Suspect {
		return AlarmPos{key: string(suspectKey(dueMS(a.Due), a.ID))}
	}
	return AlarmPos{key: string(alarmKey(dueMS(a.Due), a.ID))}
}

// AlarmChange is a durable change of an object's slot. When Set is false the
// slot was cleared, and Slot is zero.
type AlarmChange struct {
	ID   ID
	Slot Slot
	Set  bool
}

// Alarms returns up to limit entries of the alarm index of a class that follow after, in
// order of due time and name, and the position of the last one returned (after itself if
// there is none). An empty class means the suspects' index, which is ordered by due time
// and ID.
func (sn *Snapshot) Alarms(class string, after AlarmPos, limit int) ([]Alarm, AlarmPos, error) {
	prefix, parse := []byte{keySuspect}, splitSuspectKey
	if class != "" {
		prefix, parse = alarmPrefix(class), splitAlarmKey
	}
	start := append([]byte(after.key), 0)
	if after.key == "" {
		start = prefix
	}
	alarms, last, err := sn.alarms(start, prefixEnd(prefix), limit, func(key []byte) (ID, bool) {
		_, id, ok := parse(key)
		return id, ok
	}, nil)
	for i := range alarms {
		alarms[i].Suspect = class == ""
	}
	if last == "" {
		return alarms, after, err
	}
	return alarms, AlarmPos{key: last}, err
}

// AlarmClasses returns the classes that have an alarm which is neither parked nor a
// suspect, in order. It seeks once per class. With ErrDamaged, the classes are those that have
// an entry outside the damaged blocks.
func (sn *Snapshot) AlarmClasses() (classes []string, err error) {
	w, err := sn.walk([]byte{keyAlarm}, []byte{keyAlarm + 1})
	if err != nil {
		return nil, err
	}
	defer w.close()
	var damage error
	start := []byte{keyAlarm}
	for {
		ok, err := w.seek(start)
		if errors.Is(err, ErrDamaged) {
			damage = err
			ok, err = w.pastDamage(start)
		}
		if !ok || err != nil {
			return classes, errors.Join(damage, err)
		}
		class, _, isAlarm := bytes.Cut(w.key[1:], []byte{nameEnd})
		if !isAlarm {
			start = append(bytes.Clone(w.key), 0) // Check names it
			continue
		}
		classes = append(classes, string(class))
		start = prefixEnd(alarmPrefix(string(class)))
	}
}

// StartAlarms returns up to limit alarms with AtStart of objects of a class, in order of name. It skips names up to
// after.
func (sn *Snapshot) StartAlarms(class, after string, limit int) ([]Alarm, error) {
	prefix := append(append([]byte{keyStart}, class...), nameEnd)
	start := prefix
	if after != "" {
		start = append(startKey(ID{Class: class, Name: after}), 0)
	}
	alarms, _, err := sn.alarms(start, prefixEnd(prefix), limit, splitIDKey, nil)
	return alarms, err
}

// ParkedAlarm is a parked alarm.
type ParkedAlarm struct {
	ID   ID
	Slot Slot
}

// Parked yields the parked alarms of a class, or of all classes if class is empty, in order of ID. It skips IDs up to
// after; the zero ID skips none. It reads one row for each parked alarm. The iteration may continue after ErrDamaged.
func (sn *Snapshot) Parked(class string, after ID) iter.Seq2[ParkedAlarm, error] {
	prefix := []byte{keyParked}
	if class != "" {
		prefix = append(append(prefix, class...), nameEnd)
	}
	start := prefix
	if after != (ID{}) {
		start = append(parkedKey(after), 0)
	}
	if bytes.Compare(start, prefix) < 0 {
		start = prefix
	}
	return func(yield func(ParkedAlarm, error) bool) {
		for {
			var skipped []error
			alarms, last, err := sn.alarms(start, prefixEnd(prefix), parkedPage, splitIDKey, func(damage *DamageError) {
				skipped = append(skipped, damage)
			})
			for _, damage := range skipped {
				if !yield(ParkedAlarm{}, damage) {
					return
				}
			}
			for _, a := range alarms {
				slot, ok, err := sn.Slot(a.ID)
				if err == nil && (!ok || slot.Parked == NotParked) {
					continue // Check names it
				}
				if !yield(ParkedAlarm{a.ID, slot}, err) || err != nil && !errors.Is(err, ErrDamaged) {
					return
				}
			}
			if err != nil {
				yield(ParkedAlarm{}, err)
				return
			}
			if len(alarms) < parkedPage {
				return
			}
			start = append([]byte(last), 0)
		}
	}
}

// parkedPage is how many entries Parked reads at a time.
const parkedPage = 256

// splitIDKey reads a key of an index that is ordered by ID.
func splitIDKey(key []byte) (ID, bool) {
	id, rest, ok := splitID(key[1:])
	return id, ok && len(rest) == 0
}

// alarms reads entries of an index. It skips unreadable entries: one entry must not hide the entries after it. Check reports
// their keys. damaged, which may be nil, is called for each skipped block. If only the value of an entry cannot be decoded,
// the entry is made from the slot of the object.
func (sn *Snapshot) alarms(
	start, end []byte, limit int, parse func([]byte) (ID, bool), damaged func(*DamageError),
) (alarms []Alarm, last string, err error) {

	w, err := sn.walk(start, end)
	if err != nil {
		return nil, "", err
	}
	defer w.close()
	w.onDamage = func(damage *DamageError, _, _ []byte) {
		if damaged != nil {
			damaged(damage)
		}
	}
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

// entryOf returns the index entry of the slot of an object, if the key of that entry is key.
func (sn *Snapshot) entryOf(id ID, key []byte) (indexEntry, bool) {
	slot, ok, err := sn.Slot(id)
	if !ok || err != nil {
		return indexEntry{}, false
	}
	at := slot.indexKey(id)
	if key[0] == keyStart {
		at = nil
		if slot.inStartIndex() {
			at = startKey(id)
		}
	}
	return indexEntry{dueMS: dueMS(slot.Due), generation: slot.Generation}, bytes.Equal(key, at)
}
