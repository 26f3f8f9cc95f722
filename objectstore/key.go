package objectstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
)

// First bytes of keys. doc.go draws the key space.
const (
	keyHost      = 'h'
	keyAlarm     = 'a'
	keyBoot      = 'b'
	keyImporting = 'i'
	keyObject    = 'o'
)

// spaceMeta holds this package's own rows of an object.
const spaceMeta Space = 'm'

// slotRow is the key of the slot within its object's range.
var slotRow = []byte{byte(spaceMeta), 's'}

// nameEnd ends a class or name. It is smaller than every byte of a name, so that
// "a" sorts before "ab" as the names do.
const nameEnd = 0x00

func appendID(b []byte, id ID) []byte {
	b = append(b, id.Class...)
	b = append(b, nameEnd)
	b = append(b, id.Name...)
	return append(b, nameEnd)
}

func appendObject(b []byte, id ID) []byte {
	return appendID(append(b, keyObject), id)
}

func bootKey(id ID) []byte      { return appendID([]byte{keyBoot}, id) }
func importingKey(id ID) []byte { return appendID([]byte{keyImporting}, id) }
func slotKey(id ID) []byte      { return append(appendObject(nil, id), slotRow...) }

// alarmKey orders by due time, then by ID. Flipping the sign bit sorts times
// before 1970 first.
func alarmKey(dueMS int64, id ID) []byte {
	b := binary.BigEndian.AppendUint64([]byte{keyAlarm}, uint64(dueMS)^1<<63)
	return appendID(b, id)
}

// splitID reads an encoded ID off the front of b.
func splitID(b []byte) (id ID, rest []byte, ok bool) {
	class, rest, ok := bytes.Cut(b, []byte{nameEnd})
	if !ok {
		return ID{}, nil, false
	}
	name, rest, ok := bytes.Cut(rest, []byte{nameEnd})
	if !ok {
		return ID{}, nil, false
	}
	return ID{Class: string(class), Name: string(name)}, rest, true
}

// splitAlarmKey reads a key of the alarm index.
func splitAlarmKey(key []byte) (dueMS int64, id ID, ok bool) {
	if len(key) < 9 || key[0] != keyAlarm {
		return 0, ID{}, false
	}
	id, rest, ok := splitID(key[9:])
	return int64(binary.BigEndian.Uint64(key[1:9]) ^ 1<<63), id, ok && len(rest) == 0
}

// prefixEnd returns the first key after all keys that begin with prefix, or nil
// if there is none.
func prefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}

// dueMS rounds up, so that an alarm is never early by what a millisecond cuts off.
func dueMS(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// The versions of this package's records.
const (
	slotVersion  = 1
	indexVersion = 1
	hostVersion  = 2
)

const (
	slotRaised = 1 << iota
	slotAtBoot
)

func encodeSlot(s Slot) []byte {
	b := make([]byte, 0, 22)
	b = append(b, slotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(dueMS(s.Due)))
	b = binary.BigEndian.AppendUint64(b, s.Generation)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Attempt))
	var flags byte
	if s.Raised {
		flags |= slotRaised
	}
	if s.AtBoot {
		flags |= slotAtBoot
	}
	return append(b, flags)
}

func decodeSlot(b []byte) (Slot, error) {
	if err := checkVersion("alarm slot", b, slotVersion, 22); err != nil {
		return Slot{}, err
	}
	return Slot{
		Due:        time.UnixMilli(int64(binary.BigEndian.Uint64(b[1:]))).UTC(),
		Generation: binary.BigEndian.Uint64(b[9:]),
		Attempt:    int(binary.BigEndian.Uint32(b[17:])),
		Raised:     b[21]&slotRaised != 0,
		AtBoot:     b[21]&slotAtBoot != 0,
	}, nil
}

// indexEntry is the value of both alarm indexes.
type indexEntry struct {
	dueMS      int64
	generation uint64
}

func (e indexEntry) encode() []byte {
	b := make([]byte, 0, 17)
	b = append(b, indexVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(e.dueMS))
	return binary.BigEndian.AppendUint64(b, e.generation)
}

func decodeIndexEntry(b []byte) (indexEntry, error) {
	if err := checkVersion("alarm index entry", b, indexVersion, 17); err != nil {
		return indexEntry{}, err
	}
	return indexEntry{
		dueMS:      int64(binary.BigEndian.Uint64(b[1:])),
		generation: binary.BigEndian.Uint64(b[9:]),
	}, nil
}

// hostRecord is written by each host when it opens the store and when it closes it.
type hostRecord struct {
	identity   Identity
	parent     uint32 // the fork of which the store was a backup; zero if it was none
	generation uint64
	clean      bool
}

func (h hostRecord) encode() ([]byte, error) {
	id, err := ulid.ParseStrict(h.identity.Store)
	if err != nil {
		return nil, fmt.Errorf("objectstore: id of a store: %w", err)
	}
	b := append([]byte{hostVersion}, id[:]...)
	b = binary.BigEndian.AppendUint32(b, h.identity.Fork)
	b = binary.BigEndian.AppendUint32(b, h.parent)
	b = binary.BigEndian.AppendUint64(b, h.generation)
	if h.clean {
		return append(b, 1), nil
	}
	return append(b, 0), nil
}

func decodeHostRecord(b []byte) (hostRecord, error) {
	if err := checkVersion("host record", b, hostVersion, 34); err != nil {
		return hostRecord{}, err
	}
	return hostRecord{
		identity:   Identity{Store: ulid.ULID(b[1:17]).String(), Fork: binary.BigEndian.Uint32(b[17:])},
		parent:     binary.BigEndian.Uint32(b[21:]),
		generation: binary.BigEndian.Uint64(b[25:]),
		clean:      b[33] == 1,
	}, nil
}

func checkVersion(what string, b []byte, version byte, size int) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("%w: empty %s", ErrFormat, what)
	case b[0] != version:
		return fmt.Errorf("%w: %s has version %d, this build reads %d", ErrFormat, what, b[0], version)
	case len(b) != size:
		return fmt.Errorf("%w: %s has %d bytes, not %d", ErrFormat, what, len(b), size)
	}
	return nil
}
