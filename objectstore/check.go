package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost/internal/frame"
)

// Problem is an inconsistency that Check found.
type Problem struct {
	Object ID     // zero if the problem concerns no object
	Key    []byte // the key in the store; nil if the problem concerns no single key
	Detail string
}

// String returns one line.
func (p Problem) String() string {
	switch {
	case p.Key == nil && p.Object == (ID{}):
		return p.Detail
	case p.Key == nil:
		return fmt.Sprintf("%s: %s", p.Object, p.Detail)
	case p.Object == (ID{}):
		return fmt.Sprintf("key %q: %s", p.Key, p.Detail)
	}
	return fmt.Sprintf("%s: key %q: %s", p.Object, p.Key, p.Detail)
}

// CheckStats counts the data that Check read.
type CheckStats struct {
	Store     Identity // of a backup that no host has opened: of its source
	Objects   int64
	Rows      int64 // rows of objects, slots excepted
	Bytes     int64 // keys and values, slots and indexes included
	Alarms    int64
	Importing int64 // objects half imported
	Problems  int64
}

// Check reads the whole durable state. Every key must be decodable, and every record of this package must have a
// known version. Alarms and rows of collections must match their index entries in both directions, and the entries of
// a feed must have no gap. Check skips the collections of an object half imported, which has only part of its rows.
// Rows in damaged blocks are a problem, too, and Check continues after them.
//
// Check proves that the state is consistent. It cannot prove that the state is complete:
// a store that has lost its last records, or whole objects with their alarms, is
// consistent. It returns an error only if it could not continue.
func (s *Store) Check(ctx context.Context, report func(Problem)) (CheckStats, error) {
	sn, err := s.Snapshot(ctx)
	if err != nil {
		return CheckStats{}, err
	}
	defer sn.Close()
	w, err := sn.walk(nil, nil)
	if err != nil {
		return CheckStats{}, err
	}
	defer w.close()
	c := &checker{sn: sn, w: w, report: report, importing: make(map[ID]bool)}
	c.stats.Store = s.identity
	if _, ok, err := sn.get([]byte{keyHost}); err != nil {
		if err := c.unreadable(ID{}, "host record", err); err != nil {
			return c.stats, err
		}
	} else if !ok {
		c.problem(ID{}, "no host record")
	}
	w.onDamage = c.damaged
	ok, err := w.first()
	for ; ok && err == nil; ok, err = w.next() {
		if err := ctx.Err(); err != nil {
			return c.stats, err
		}
		c.stats.Bytes += int64(len(w.key) + len(w.value))
		if err := c.key(); err != nil {
			return c.stats, err
		}
	}
	return c.stats, err
}

// checker looks at one key after the other.
type checker struct {
	sn     *Snapshot
	w      *walker
	report func(Problem)
	stats  CheckStats
	last   []byte // the prefix of the last object
	// importing is the objects half imported: their marks come before all objects.
	importing map[ID]bool

	collections collections
}

func (c *checker) problem(id ID, detail string, args ...any) {
	c.stats.Problems++
	c.report(Problem{Object: id, Key: bytes.Clone(c.w.key), Detail: fmt.Sprintf(detail, args...)})
}

// damaged reports rows that cannot be read: those between the keys after and next. next is nil if there are none
// after them.
func (c *checker) damaged(damage *DamageError, after, next []byte) {
	id := damage.Object
	if from := objectOf(after); from == objectOf(next) {
		id = from
	}
	c.stats.Problems++
	c.report(Problem{Object: id, Key: bytes.Clone(after), Detail: fmt.Sprintf(
		"the rows after this key and before %q cannot be read: %s: %s", next, damage.Damage.File, damage.Damage.Detail)})
	c.collections.next = 0 // the next entry of a feed need not follow the last one
}

// unreadable reports a record that cannot be read because of a damaged block. It
// returns any other error.
func (c *checker) unreadable(id ID, name string, err error) error {
	if !errors.Is(err, ErrDamaged) {
		return err
	}
	c.problem(id, "%s cannot be read: %v", name, err)
	return nil
}

func (c *checker) key() error {
	key := c.w.key
	switch {
	case key[0] == keyHost && len(key) == 1:
		if _, err := decodeHostRecord(c.w.value); err != nil {
			c.problem(ID{}, "%v", err)
		}
	case key[0] == keyApplied && len(key) == 1:
		if _, err := decodeApplied(c.w.value); err != nil {
			c.problem(ID{}, "%v", err)
		}
	case bytes.Equal(key, frameLimitKey):
		if _, err := decodeFrameLimit(c.w.value); err != nil {
			c.problem(ID{}, "%v", err)
		}
	case key[0] == keyFrame:
		if f, rest, err := frame.Decode(c.w.value); err != nil || len(rest) > 0 || !bytes.Equal(frameKey(f.Number), key) {
			c.problem(ID{}, "frame of a record cannot be decoded: %v", err)
		}
	case key[0] == keyAlarm:
		_, id, ok := splitAlarmKey(key)
		return c.indexEntry(id, ok, "alarm")
	case key[0] == keySuspect:
		_, id, ok := splitSuspectKey(key)
		return c.indexEntry(id, ok, "suspects'")
	case key[0] == keyParked:
		id, ok := splitIDKey(key)
		return c.indexEntry(id, ok, "parked")
	case key[0] == keyStart:
		id, ok := splitIDKey(key)
		return c.indexEntry(id, ok, "start")
	case key[0] == keyImporting:
		id, rest, ok := splitID(key[1:])
		if !ok || len(rest) > 0 || id.Validate() != nil {
			c.problem(ID{}, "mark of an unfinished import cannot be decoded")
			return nil
		}
		c.stats.Importing++
		c.importing[id] = true
	case key[0] == keyObject:
		return c.objectKey()
	default:
		c.problem(ID{}, "key of unknown kind")
	}
	return nil
}

func (c *checker) objectKey() error {
	id, rest, ok := splitID(c.w.key[1:])
	if !ok {
		c.problem(ID{}, "object key cannot be decoded")
		return nil
	}
	if prefix := c.w.key[:len(c.w.key)-len(rest)]; !bytes.Equal(prefix, c.last) {
		c.last = append(c.last[:0], prefix...)
		c.stats.Objects++
		if err := id.Validate(); err != nil {
			c.problem(id, "%v", err)
		}
	}
	switch {
	case bytes.Equal(rest, slotRow):
		c.stats.Alarms++
		return c.slot(id)
	case len(rest) > 1 && Space(rest[0]) == SpaceKV:
		c.stats.Rows++
	case len(rest) > 1 && Space(rest[0]) == SpaceCollection:
		c.stats.Rows++
		if c.importing[id] {
			return nil
		}
		return c.collectionKey(id, rest[1:])
	default:
		c.problem(id, "row of unknown kind")
	}
	return nil
}

// slot checks that a slot has its index entries.
func (c *checker) slot(id ID) error {
	slot, err := decodeSlot(c.w.value)
	if err != nil {
		c.problem(id, "%v", err)
		return nil
	}
	_, ok, err := c.sn.get(slot.indexKey(id))
	if err != nil {
		return c.unreadable(id, "entry of the alarm index", err)
	}
	switch {
	case ok:
	case slot.Parked != NotParked:
		c.problem(id, "parked alarm is not in the index: it will not be listed")
	default:
		c.problem(id, "alarm is not in the index: it will not fire")
	}
	_, ok, err = c.sn.get(startKey(id))
	if err != nil {
		return c.unreadable(id, "entry of the start index", err)
	}
	if !ok && slot.inStartIndex() {
		c.problem(id, "alarm is not in the start index")
	}
	return nil
}

// indexEntry checks that an index entry has its slot. isKey reports whether the entry's key could be decoded, and
// index names the index.
func (c *checker) indexEntry(id ID, isKey bool, index string) error {
	if !isKey || id.Validate() != nil {
		c.problem(ID{}, "%s index key cannot be decoded", index)
		return nil
	}
	e, err := decodeIndexEntry(c.w.value)
	if err != nil {
		c.problem(id, "%v", err)
		return nil
	}
	slot, ok, err := c.sn.Slot(id)
	switch {
	case err != nil && !damagedRecord(err):
		return err
	case err != nil:
		// An unreadable slot is reported at its own key.
	case !ok:
		c.problem(id, "index entry without an alarm")
	case dueMS(slot.Due) != e.dueMS || slot.Generation != e.generation:
		c.problem(id, "index entry differs from the alarm")
	case index == "start" && !slot.inStartIndex():
		c.problem(id, "start index entry of an alarm that is not delivered when the host starts")
	case index != "start" && !bytes.Equal(c.w.key, slot.indexKey(id)):
		c.problem(id, "index entry differs from the alarm")
	}
	return nil
}
