package objectstore

import (
	"context"
	"io"
	"iter"
)

// Snapshot is the durable state at one moment between two records. It never
// shows what could still be lost. It may be used from any goroutine.
type Snapshot struct{}

// Snapshot waits for the record in flight to land and freezes the durable state.
// The caller closes it.
func (s *Store) Snapshot(ctx context.Context) (*Snapshot, error) { return nil, nil }

// Close lets the snapshot go. Closing twice is allowed.
func (sn *Snapshot) Close() {}

// Classes yields the classes that have objects, in order.
func (sn *Snapshot) Classes() iter.Seq2[string, error] { return nil }

// Objects yields the objects of a class whose names follow after, in order of
// their names. It seeks once per object, however many rows that has. Objects
// half imported are left out.
func (sn *Snapshot) Objects(class, after string) iter.Seq2[ID, error] { return nil }

// Exists says whether the object has a row or an alarm, and is not half imported.
func (sn *Snapshot) Exists(id ID) (bool, error) { return false, nil }

// Slot returns the object's alarm.
func (sn *Snapshot) Slot(id ID) (Slot, bool, error) { return Slot{}, false, nil }

// Alarms returns up to limit entries of the alarm index that follow after, in
// order of due time and ID, and the position of the last one returned (after
// itself if there is none).
func (sn *Snapshot) Alarms(after AlarmPos, limit int) ([]Alarm, AlarmPos, error) {
	return nil, AlarmPos{}, nil
}

// BootAlarms returns up to limit alarms with AtBoot of objects that follow after,
// in order of ID. The zero ID is before the first.
func (sn *Snapshot) BootAlarms(after ID, limit int) ([]Alarm, error) { return nil, nil }

// Export writes the object's rows and alarm as a stream that Import reads.
func (sn *Snapshot) Export(id ID, w io.Writer) error { return nil }
