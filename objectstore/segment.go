package objectstore

import "fmt"

// Limits of rows and segments, in bytes.
const (
	MaxKey     = 2048
	MaxValue   = 2 << 20
	MaxSegment = 16 << 20
)

// LimitError says that something is too large, or empty where it must not be.
type LimitError struct {
	What  string // "key", "value" or "segment"
	Size  int
	Limit int
}

// Error implements error.
func (e *LimitError) Error() string {
	if e.Size == 0 {
		return fmt.Sprintf("objectstore: empty %s", e.What)
	}
	return fmt.Sprintf("objectstore: %s has %d bytes, the limit is %d", e.What, e.Size, e.Limit)
}

// Space divides an object's rows. Keys in different spaces never meet.
type Space byte

// The spaces that callers write to.
const (
	SpaceKV         Space = 'k'
	SpaceCollection Space = 'c'
)

// Segment is the writes and outputs of an object since it took the turn. It is
// not for concurrent use. After a hand-over it is empty and may be used again.
type Segment struct{}

// Savepoint is a place in a segment to roll back to. It is valid until the
// segment is handed over, discarded or rolled back beyond it.
type Savepoint struct{}

// NewSegment returns an empty segment of the life e.
func (r *Range) NewSegment(e Epoch) *Segment { return nil }

// Get returns the value of a key as the segment sees it: its own writes, then
// what was handed over, then what is durable. The slice is the caller's.
func (s *Segment) Get(sp Space, key []byte) (value []byte, ok bool, err error) { return }

// Put writes a row. It copies key and value. With noWait no output waits for
// this write. Errors: *LimitError, ErrNoSpace, ErrReadOnlyStore.
func (s *Segment) Put(sp Space, key, value []byte, noWait bool) error { return nil }

// Delete removes a row, whether it exists or not.
func (s *Segment) Delete(sp Space, key []byte, noWait bool) error { return nil }

// DeleteAll removes all rows of all spaces, and the alarm.
func (s *Segment) DeleteAll() error { return nil }

// Scan iterates over the rows within b in the order of their keys, as they are
// now: later writes of the segment do not show. The caller closes the iterator.
func (s *Segment) Scan(b Bounds) *Iterator { return nil }

// Slot returns the object's alarm as the segment sees it.
func (s *Segment) Slot() (Slot, bool, error) { return Slot{}, false, nil }

// SetSlot sets the object's alarm. Its entry in the index goes into the same record.
func (s *Segment) SetSlot(Slot) {}

// ClearSlot removes the object's alarm.
func (s *Segment) ClearSlot() {}

// Emit adds an output. It will wait for everything the object has handed over by
// the hand-over of this segment, NoWait writes excepted.
func (s *Segment) Emit(o Output) {}

// Sync is Emit, but o waits for NoWait writes too.
func (s *Segment) Sync(o Output) {}

// Begin marks a place to roll back to. Savepoints nest; one that is not rolled
// back needs nothing.
func (s *Segment) Begin() Savepoint { return Savepoint{} }

// Rollback undoes all since Begin: writes, slot changes and outputs. It returns
// the outputs, unreleased.
func (s *Segment) Rollback(Savepoint) []Output { return nil }

// Discard empties the segment and returns its outputs, unreleased.
func (s *Segment) Discard() []Output { return nil }

// Empty says that the segment has neither writes nor outputs.
func (s *Segment) Empty() bool { return false }

// Dirty says that the segment has writes.
func (s *Segment) Dirty() bool { return false }

// Bytes is what the segment's writes count for: keys, values and a little each.
func (s *Segment) Bytes() int { return 0 }
