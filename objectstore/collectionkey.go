package objectstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
)

// First bytes of keys in SpaceCollection. The package comment lists the keys.
const (
	kindFeed  = 'f'
	kindIndex = 'i'
	kindRow   = 'r'
)

// The versions of records in SpaceCollection.
const (
	rowFormat    = 1
	entryFormat  = 1
	feedFormat   = 2
	changeFormat = 1
)

// keyBase begins a key: the space, the kind, and names. It has room for size more.
func keyBase(kind byte, size int, names ...string) []byte {
	n := 2 + size
	for _, name := range names {
		n += len(name) + 1
	}
	b := append(make([]byte, 0, n), byte(SpaceCollection), kind)
	for _, name := range names {
		b = append(append(b, name...), nameEnd)
	}
	return b
}

// rowKey, indexKey and the others return keys within an object's range, the space
// included.
func rowKey(collection string, key []byte) []byte {
	return append(keyBase(kindRow, len(key), collection), key...)
}

func indexKey(collection string, e IndexEntry, key []byte) []byte {
	b := append(keyBase(kindIndex, len(e.Key)+1+len(key), collection, e.Index), e.Key...)
	return append(append(b, nameEnd), key...)
}

func feedKey(feed string) []byte { return keyBase(kindFeed, 0, feed) }

func changeKey(feed string, offset uint64) []byte {
	return binary.BigEndian.AppendUint64(keyBase(kindFeed, 8, feed), offset)
}

// appendBytes appends the length of b, and b.
func appendBytes[B ~string | ~[]byte](to []byte, b B) []byte {
	return append(binary.AppendUvarint(to, uint64(len(b))), b...)
}

// reader decodes a record. After a failed read, bad is set and all further values are empty.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = nil, true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// err returns an error that names the record if a read has failed.
func (r *reader) err(what string) error {
	if r.bad {
		return fmt.Errorf("%w: %s is cut off", ErrFormat, what)
	}
	return nil
}

// openRecord checks a record's version and returns a reader of the rest.
func openRecord(what string, b []byte, version byte) (reader, error) {
	if err := checkVersion(what, b[:min(len(b), 1)], version, 1); err != nil {
		return reader{}, err
	}
	return reader{rest: b[1:]}, nil
}

// rowRecord is a row as it is stored. Its slices belong to the record.
type rowRecord struct {
	version uint64 // from 1; zero if there is no row
	entries []IndexEntry
	value   []byte
}

func (r rowRecord) encode() []byte {
	n := 1 + 2*binary.MaxVarintLen64 + len(r.value)
	for _, e := range r.entries {
		n += 2*binary.MaxVarintLen16 + len(e.Index) + len(e.Key)
	}
	b := append(make([]byte, 0, n), rowFormat)
	b = binary.AppendUvarint(b, r.version)
	b = binary.AppendUvarint(b, uint64(len(r.entries)))
	for _, e := range r.entries {
		b = appendBytes(appendBytes(b, e.Index), e.Key)
	}
	return append(b, r.value...)
}

func decodeRow(b []byte) (rowRecord, error) {
	r, err := openRecord("row of a collection", b, rowFormat)
	if err != nil {
		return rowRecord{}, err
	}
	rec := rowRecord{version: r.uvarint()}
	n := r.uvarint()
	for i := uint64(0); i < n && !r.bad; i++ {
		rec.entries = append(rec.entries, IndexEntry{Index: string(r.bytes()), Key: r.bytes()})
	}
	rec.value = r.rest
	if rec.version == 0 {
		r.bad = true
	}
	return rec, r.err("row of a collection")
}

func (r rowRecord) has(e IndexEntry) bool {
	for _, x := range r.entries {
		if x.Index == e.Index && bytes.Equal(x.Key, e.Key) {
			return true
		}
	}
	return false
}

// encodeEntry is the value of an index entry: where the row's key begins, counted
// from the end, since the index key may hold any byte.
func encodeEntry(key []byte) []byte {
	return binary.AppendUvarint([]byte{entryFormat}, uint64(len(key)))
}

// splitEntry splits the part of an entry's key after the name of the index.
func splitEntry(rest, value []byte) (indexKey, key []byte, err error) {
	const what = "index entry of a collection"
	r, err := openRecord(what, value, entryFormat)
	if err != nil {
		return nil, nil, err
	}
	n := r.uvarint()
	if r.bad || len(r.rest) > 0 || n == 0 || n >= uint64(len(rest)) || rest[uint64(len(rest))-n-1] != nameEnd {
		return nil, nil, fmt.Errorf("%w: %s does not fit its key", ErrFormat, what)
	}
	at := len(rest) - int(n)
	return rest[: at-1 : at-1], rest[at:], nil
}

// feedHeader is the first row of a feed.
type feedHeader struct {
	fork uint32    // of the store that drew the last log; zero after an import or a replacement
	logs []feedLog // oldest first
}

// feedLog is a named part of a feed's history. A log continues the one before it and ends where the next one begins.
type feedLog struct {
	name ulid.ULID
	from uint64 // the offset of its first entry
}

const feedLogSize = 16 + 8

func (h *feedHeader) encode() []byte {
	b := append(make([]byte, 0, 5+feedLogSize*len(h.logs)), feedFormat)
	b = binary.BigEndian.AppendUint32(b, h.fork)
	for _, l := range h.logs {
		b = binary.BigEndian.AppendUint64(append(b, l.name[:]...), l.from)
	}
	return b
}

func decodeFeed(b []byte) (h feedHeader, err error) {
	n := max(1, (len(b)-5)/feedLogSize)
	if err := checkVersion("feed", b, feedFormat, 5+n*feedLogSize); err != nil {
		return h, err
	}
	h.fork = binary.BigEndian.Uint32(b[1:])
	for b = b[5:]; len(b) > 0; b = b[feedLogSize:] {
		l := feedLog{name: ulid.ULID(b[:16]), from: binary.BigEndian.Uint64(b[16:])}
		if l.from == 0 || len(h.logs) > 0 && l.from < h.logs[len(h.logs)-1].from {
			return h, fmt.Errorf("%w: the logs of a feed are not in order", ErrFormat)
		}
		h.logs = append(h.logs, l)
	}
	return h, nil
}

// importedFeed returns a row of a feed as an import writes it: without the fork, so that the next append draws a log,
// since the store that exported the feed may append too.
func importedFeed(key, value []byte) ([]byte, error) {
	if key[0] != kindFeed || bytes.IndexByte(key, nameEnd) != len(key)-1 {
		return value, nil
	}
	h, err := decodeFeed(value)
	if err != nil {
		return nil, err
	}
	h.fork = 0
	return h.encode(), nil
}

// The flags of an entry of a feed: the values that follow. If both do, the first one follows its length.
const (
	changeValue  = 1 << iota // of the row
	changeBefore             // of the row before the change
)

// encodeChange leaves out the offset, which is in the key.
func encodeChange(c *Change, withValue bool) []byte {
	b := make([]byte, 0, 32+len(c.Collection)+len(c.Key)+len(c.Before)+len(c.Value))
	b = append(b, changeFormat, byte(c.Op))
	b = binary.AppendUvarint(b, uint64(c.At.UnixMilli()))
	b = binary.AppendUvarint(b, c.Version)
	b = appendBytes(appendBytes(b, c.Collection), c.Key)
	switch {
	case withValue && c.HasBefore:
		return append(appendBytes(append(b, changeBefore|changeValue), c.Before), c.Value...)
	case withValue:
		return append(append(b, changeValue), c.Value...)
	case c.HasBefore:
		return append(append(b, changeBefore), c.Before...)
	}
	return append(b, 0)
}

// decodeChange reads an entry of a feed, with the value before the change if the entry has it. stored reports whether
// the entry has the value.
func decodeChange(b []byte) (c Change, stored bool, err error) {
	const what = "entry of a feed"
	r, err := openRecord(what, b, changeFormat)
	if err != nil {
		return Change{}, false, err
	}
	if len(r.rest) > 0 {
		c.Op, r.rest = Op(r.rest[0]), r.rest[1:]
	}
	c.At = time.UnixMilli(int64(r.uvarint())).UTC()
	c.Version = r.uvarint()
	c.Collection, c.Key = string(r.bytes()), r.bytes()
	if c.Op < OpInsert || c.Op > OpDelete || len(r.rest) == 0 || r.rest[0] > changeBefore|changeValue {
		r.bad = true
		return c, false, r.err(what)
	}
	flags := r.rest[0]
	r.rest = r.rest[1:]
	stored, c.HasBefore = flags&changeValue != 0, flags&changeBefore != 0
	switch {
	case stored && c.HasBefore:
		c.Before = r.bytes()
		c.Value = r.rest
	case stored:
		c.Value = r.rest
	case c.HasBefore:
		c.Before = r.rest
	}
	return c, stored, r.err(what)
}
