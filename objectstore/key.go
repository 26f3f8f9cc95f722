package objectstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/frame"
)

// First bytes of keys. The package comment lists the keys.
const (
	keyHost      = 'h'
	keyAlarm     = 'a'
	keyStart     = 'b'
	keySuspect   = 'q'
	keyParked    = 'p'
	keyFrame     = 'f'
	keyApplied   = 'l'
	keyLimit     = 'g'
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

func startKey(id ID) []byte     { return appendID([]byte{keyStart}, id) }
func parkedKey(id ID) []byte    { return appendID([]byte{keyParked}, id) }
func importingKey(id ID) []byte { return appendID([]byte{keyImporting}, id) }
func slotKey(id ID) []byte      { return append(appendObject(nil, id), slotRow...) }

// alarmKey orders by class, then by due time, then by name.
func alarmKey(dueMS int64, id ID) []byte {
	b := append(appendDue(alarmPrefix(id.Class), dueMS), id.Name...)
	return append(b, nameEnd)
}

// alarmPrefix begins the keys of the alarm index of a class.
func alarmPrefix(class string) []byte {
	return append(append([]byte{keyAlarm}, class...), nameEnd)
}

// suspectKey orders by due time, then by ID.
func suspectKey(dueMS int64, id ID) []byte {
	return appendID(appendDue([]byte{keySuspect}, dueMS), id)
}

// appendDue appends a time so that it sorts. Flipping the sign bit sorts times before
// 1970 first.
func appendDue(b []byte, dueMS int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(dueMS)^1<<63)
}

// cutDue reads a time off the front of b.
func cutDue(b []byte) (dueMS int64, rest []byte, ok bool) {
	if len(b) < 8 {
		return 0, nil, false
	}
	return int64(binary.BigEndian.Uint64(b) ^ 1<<63), b[8:], true
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

// splitAlarmKey reads a key of the alarm index of a class.
func splitAlarmKey(key []byte) (dueMS int64, id ID, ok bool) {
	if len(key) == 0 || key[0] != keyAlarm {
		return 0, ID{}, false
	}
	class, rest, ok := bytes.Cut(key[1:], []byte{nameEnd})
	if !ok {
		return 0, ID{}, false
	}
	dueMS, rest, ok = cutDue(rest)
	name, rest, ended := bytes.Cut(rest, []byte{nameEnd})
	return dueMS, ID{Class: string(class), Name: string(name)}, ok && ended && len(rest) == 0
}

// splitSuspectKey reads a key of the suspects' index.
func splitSuspectKey(key []byte) (dueMS int64, id ID, ok bool) {
	if len(key) == 0 || key[0] != keySuspect {
		return 0, ID{}, false
	}
	dueMS, rest, ok := cutDue(key[1:])
	if !ok {
		return 0, ID{}, false
	}
	id, rest, ok = splitID(rest)
	return dueMS, id, ok && len(rest) == 0
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

// dueMS returns t in milliseconds, rounded up, so that an alarm is never early.
func dueMS(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// The versions of this package's records.
const (
	slotVersion    = 2
	indexVersion   = 1
	hostVersion    = 2
	appliedVersion = 1
	limitVersion   = 1
)

const (
	slotAtStart  = 1 << iota
	slotBegun    // Charge.Begun
	slotExtended // the fields of an alarm that has failed or was repeated follow
	slotRepeated // Slot.First follows; only in an extended slot
)

const (
	slotSize         = 22 // bytes of a slot that is not extended
	slotExtendedSize = slotSize + 13
	slotFirstSize    = 16
)

func encodeSlot(s Slot) []byte {
	repeated := s.First != Setting{}
	extended := s.Suspect() || s.Parked != NotParked || s.Error != "" || repeated
	size := slotSize
	if extended {
		size = slotExtendedSize + slotFirstSize + len(s.Error) // or less
	}
	b := make([]byte, 0, size)
	b = append(b, slotVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(dueMS(s.Due)))
	b = binary.BigEndian.AppendUint64(b, s.Generation)
	b = binary.BigEndian.AppendUint32(b, uint32(s.Attempt))
	var flags byte
	if s.AtStart {
		flags |= slotAtStart
	}
	if s.Charge.Begun {
		flags |= slotBegun
	}
	if repeated {
		flags |= slotRepeated
	}
	if !extended {
		return append(b, flags)
	}
	b = append(b, flags|slotExtended)
	b = binary.BigEndian.AppendUint64(b, s.Charge.Host)
	b = binary.BigEndian.AppendUint16(b, s.Charge.Deaths)
	b = binary.BigEndian.AppendUint16(b, s.Charge.Lost)
	b = append(b, byte(s.Parked))
	if repeated {
		b = binary.BigEndian.AppendUint64(b, uint64(s.First.DueMS))
		b = binary.BigEndian.AppendUint64(b, s.First.Generation)
	}
	return append(b, s.Error...)
}

func decodeSlot(b []byte) (Slot, error) {
	const what = "alarm slot"
	extended := len(b) >= slotSize && b[slotSize-1]&slotExtended != 0
	repeated := extended && b[slotSize-1]&slotRepeated != 0
	size := slotSize
	if extended {
		fixed := slotExtendedSize
		if repeated {
			fixed += slotFirstSize
		}
		size = min(max(len(b), fixed), fixed+MaxSlotError)
	}
	if err := checkVersion(what, b, slotVersion, size); err != nil {
		return Slot{}, err
	}
	flags := b[slotSize-1]
	s := Slot{
		Due:        time.UnixMilli(int64(binary.BigEndian.Uint64(b[1:]))).UTC(),
		Generation: binary.BigEndian.Uint64(b[9:]),
		Attempt:    int(binary.BigEndian.Uint32(b[17:])),
		AtStart:    flags&slotAtStart != 0,
	}
	if extended {
		more := b[slotSize:]
		s.Charge = Charge{
			Host: binary.BigEndian.Uint64(more), Begun: flags&slotBegun != 0,
			Deaths: binary.BigEndian.Uint16(more[8:]), Lost: binary.BigEndian.Uint16(more[10:]),
		}
		s.Parked, more = ParkReason(more[12]), more[13:]
		if repeated {
			s.First = Setting{int64(binary.BigEndian.Uint64(more)), binary.BigEndian.Uint64(more[8:])}
			more = more[slotFirstSize:]
		}
		s.Error = string(more)
	}
	return s, nil
}

// indexEntry is the value of all alarm indexes.
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

// hostRecord is written by each host when it opens and when it closes the store.
type hostRecord struct {
	identity   Identity
	parent     uint32 // the fork that the store's backup was taken from; zero if the store is no copy
	generation uint64
	clean      bool
	shared     bool // the history is in a shared log
}

// Bits of the last byte of a host record.
const (
	hostClean = 1 << iota
	hostShared
)

func (h hostRecord) encode() ([]byte, error) {
	id, err := ulid.ParseStrict(h.identity.Store)
	if err != nil {
		return nil, fmt.Errorf("dohost: id of a store: %w", err)
	}
	b := append([]byte{hostVersion}, id[:]...)
	b = binary.BigEndian.AppendUint32(b, h.identity.Fork)
	b = binary.BigEndian.AppendUint32(b, h.parent)
	b = binary.BigEndian.AppendUint64(b, h.generation)
	var bits byte
	if h.clean {
		bits |= hostClean
	}
	if h.shared {
		bits |= hostShared
	}
	return append(b, bits), nil
}

func decodeHostRecord(b []byte) (hostRecord, error) {
	if err := checkVersion("host record", b, hostVersion, 34); err != nil {
		return hostRecord{}, err
	}
	return hostRecord{
		identity:   Identity{Store: ulid.ULID(b[1:17]).String(), Fork: binary.BigEndian.Uint32(b[17:])},
		parent:     binary.BigEndian.Uint32(b[21:]),
		generation: binary.BigEndian.Uint64(b[25:]),
		clean:      b[33]&hostClean != 0,
		shared:     b[33]&hostShared != 0,
	}, nil
}

// appliedRow is the row keyApplied.
type appliedRow struct {
	// at is the position of the last record that the engine has. Its number is 0 while a base is restored: until then the other rows are
	// only a part of a state.
	at frame.Position
	// since is the bytes of the records since a base. It is the newest base, unless a crash has lost a newer version of this row.
	since int64
}

func (r *appliedRow) encode() []byte {
	b := append([]byte{appliedVersion}, r.at.Store[:]...)
	b = binary.BigEndian.AppendUint32(b, r.at.Fork)
	b = binary.BigEndian.AppendUint64(b, r.at.Generation)
	b = binary.BigEndian.AppendUint64(b, r.at.Number)
	b = binary.BigEndian.AppendUint64(b, uint64(r.at.Time))
	b = append(b, r.at.Sum[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(r.since))
}

func decodeApplied(b []byte) (r appliedRow, err error) {
	const sum = 45
	if err := checkVersion("position in a shared log", b, appliedVersion, sum+len(r.at.Sum)+8); err != nil {
		return r, err
	}
	r.at = frame.Position{
		Store: ulid.ULID(b[1:17]), Fork: binary.BigEndian.Uint32(b[17:]), Generation: binary.BigEndian.Uint64(b[21:]),
		Number: binary.BigEndian.Uint64(b[29:]), Time: int64(binary.BigEndian.Uint64(b[37:])), Sum: frame.Sum(b[sum:]),
	}
	r.since = int64(binary.BigEndian.Uint64(b[sum+len(r.at.Sum):]))
	return r, nil
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

// Space divides an object's rows. Keys in different spaces never meet.
type Space byte

// The spaces that callers write to.
const (
	SpaceKV         Space = 'k'
	SpaceCollection Space = 'c'
)
