package objectstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Feed is a log of the changes of one or more collections of an object, in the order of their writes. Offsets
// increase by one, from 1. An entry is written with its row. An append trims the feed: it removes at most two
// entries from the front, and never the newest one.
type Feed struct {
	Name   string
	Values bool          // keep each value with its entry
	Before bool          // keep the value before the change with its entry, too
	Keep   int           // entries to keep; zero means all
	MaxAge time.Duration // entries older than this may go; zero means none
}

// trimStep is the number of old entries that an append may remove: more than it adds, so that a feed with new limits
// shrinks to them.
const trimStep = 2

// Op is the kind of a change of a row.
type Op byte

// The three changes of a row.
const (
	OpInsert Op = 1 + iota
	OpUpdate
	OpDelete
)

// String returns insert, update or delete.
func (o Op) String() string {
	switch o {
	case OpInsert:
		return "insert"
	case OpUpdate:
		return "update"
	case OpDelete:
		return "delete"
	}
	return fmt.Sprintf("Op(%d)", byte(o))
}

// Change is an entry of a feed.
type Change struct {
	Offset     uint64
	Op         Op
	Collection string
	Key        []byte
	Version    uint64 // of the row, after an insert or update; the last one of a deleted row
	At         time.Time
	// Value is the row's value: as the entry keeps it, or else as the row is when
	// it is read. Present is false if there is none: after a delete, or if the row
	// has been deleted since and the feed keeps no values.
	Value   []byte
	Present bool
	// Stored is true if the entry keeps the value, so that Value is not read from the row.
	Stored bool
	// Before is the value of the row before the change, if HasBefore is true: the entry keeps it.
	Before    []byte
	HasBefore bool
}

// feedEnds is where a feed begins and ends.
type feedEnds struct {
	feedHeader            // without logs: the feed has no entries
	first, next uint64    // of the entries that are there, and of the next one
	firstAt     time.Time // when the first entry was written; zero: not looked up
}

// feedCache saves appends the search for a feed's ends: a batch searches once, and an incarnation has one batch.
// A rollback drops it.
type feedCache map[string]*feedEnds

// feed returns the ends of a feed as the batch sees them.
func (s *Batch) feed(name string) (*feedEnds, error) {
	if f := s.feeds[name]; f != nil {
		return f, nil
	}
	f, err := s.seekFeed(name)
	if err != nil {
		return nil, err
	}
	if s.feeds == nil {
		s.feeds = make(feedCache)
	}
	s.feeds[name] = f
	return f, nil
}

func (s *Batch) seekFeed(name string) (*feedEnds, error) {
	if err := validateName("feed", name, MaxCollectionName); err != nil {
		return nil, err
	}
	base := feedKey(name)[1:]
	f := &feedEnds{first: 1, next: 1}
	header, ok, err := s.Get(nil, SpaceCollection, base)
	if err != nil || !ok {
		return f, err
	}
	if f.feedHeader, err = decodeFeed(header); err != nil {
		return nil, err
	}
	for _, last := range []bool{false, true} {
		it := s.Scan(Bounds{Space: SpaceCollection, Prefix: base, After: base, Reverse: last, Limit: 1})
		found := it.Next()
		var offset uint64
		var c Change
		if found {
			offset, c, _, err = decodeFeedRow(base, it)
		}
		if err := errors.Join(err, it.Close()); err != nil {
			return nil, err
		}
		switch {
		case !found:
			return nil, fmt.Errorf("%w: feed %q has a header but no entries", ErrFormat, name)
		case last:
			f.next = offset + 1
		default:
			f.first, f.firstAt = offset, c.At
		}
	}
	return f, nil
}

// decodeFeedRow reads the entry at an iterator.
func decodeFeedRow(base []byte, it *Iterator) (offset uint64, c Change, stored bool, err error) {
	if len(it.Key()) != len(base)+8 {
		return 0, c, false, fmt.Errorf("%w: key of a feed's entry has %d bytes", ErrFormat, len(it.Key()))
	}
	offset = binary.BigEndian.Uint64(it.Key()[len(base):])
	c, stored, err = decodeChange(it.Value())
	c.Offset = offset
	return offset, c, stored, err
}

// append adds to the plan the rows of an entry at the end of f, trimming included, and
// moves f.
func (p *plan) append(s *Batch, feed *Feed, f *feedEnds, c Change) error {
	if st := s.r.store; f.fork != st.identity.Fork {
		if err := f.draw(st); err != nil {
			return err
		}
		*p = append(*p, row{key: feedKey(feed.Name), value: f.encode()})
	}
	c.Offset = f.next
	f.next++
	if c.Offset == f.first {
		f.firstAt = c.At
	}
	c.HasBefore = feed.Before && c.Op != OpInsert
	*p = append(*p, row{
		key:   changeKey(feed.Name, c.Offset),
		value: encodeChange(&c, feed.Values && c.Op != OpDelete),
	})
	for range trimStep {
		if f.first == c.Offset {
			break // the newest stays, and with it the offset
		}
		old, err := s.beyond(feed, f, &c)
		if err != nil {
			return err
		}
		if !old {
			break
		}
		*p = append(*p, row{key: changeKey(feed.Name, f.first), deleted: true})
		f.first++
		f.firstAt = time.Time{}
	}
	return nil
}

// beyond reports whether the feed need not keep its first entry, now that c is its last.
func (s *Batch) beyond(feed *Feed, f *feedEnds, c *Change) (bool, error) {
	if feed.Keep > 0 && c.Offset-f.first >= uint64(feed.Keep) {
		return true, nil
	}
	if feed.MaxAge <= 0 {
		return false, nil
	}
	if f.firstAt.IsZero() {
		v, ok, err := s.Get(nil, SpaceCollection, changeKey(feed.Name, f.first)[1:])
		if err != nil {
			return false, err
		}
		if !ok {
			return false, fmt.Errorf("%w: feed %q lacks entry %d", ErrFormat, feed.Name, f.first)
		}
		first, _, err := decodeChange(v)
		if err != nil {
			return false, err
		}
		f.firstAt = first.At
	}
	return c.At.Sub(f.firstAt) > feed.MaxAge, nil
}

// FeedEnds returns the positions before the first and after the last entry that is there. Both are zero if the feed
// has no entries. Errors: *NameError, ErrFormat, ErrDamaged, ErrFenced.
func (s *Batch) FeedEnds(name string) (start, end Position, err error) {
	f, err := s.feed(name)
	if err != nil {
		return Position{}, Position{}, err
	}
	return f.start(), f.at(f.next - 1), nil
}

// FeedGrown reports whether ReadFeed would return an entry after a position and, if not, whether there is an entry that is
// not durable yet. Errors: the errors of ReadFeed.
func (s *Batch) FeedGrown(name string, after Position) (ready, pending bool, err error) {
	f, err := s.feed(name)
	if err != nil {
		return false, false, err
	}
	if err := f.admit(name, after); err != nil {
		return false, false, err
	}
	if after.Offset+1 >= f.next {
		return false, false, nil
	}
	ready = after.Offset+1 < s.undurableChange(name)
	return ready, !ready, nil
}

// ReadFeed returns up to limit entries after a position: the durable ones, then the batch's own. It stops before an
// entry that another batch has committed and that is not durable yet, and when the values that it has read have
// maxBytes or more. A limit or maxBytes of zero means no bound. A value that is not stored with its entry is read from its
// row, as the batch sees it.
//
// Errors: *FeedError, *NameError, ErrFormat, ErrDamaged, ErrFenced.
func (s *Batch) ReadFeed(name string, after Position, limit, maxBytes int) ([]Change, error) {
	f, err := s.feed(name)
	if err != nil {
		return nil, err
	}
	if err := f.admit(name, after); err != nil || len(f.logs) == 0 {
		return nil, err
	}
	base := feedKey(name)[1:]
	hidden := s.undurableChange(name)
	it := s.Scan(Bounds{Space: SpaceCollection, Prefix: base, After: changeKey(name, after.Offset)[1:], Limit: limit})
	defer it.Close()
	var changes []Change
	for size := 0; (maxBytes == 0 || size < maxBytes) && it.Next(); {
		offset, c, stored, err := decodeFeedRow(base, it)
		if err != nil {
			return nil, err
		}
		if offset >= hidden {
			break
		}
		c.Key = append([]byte(nil), c.Key...)
		switch {
		case stored:
			c.Value, c.Present, c.Stored = append([]byte{}, c.Value...), true, true
		case c.Op != OpDelete:
			rec, err := s.row(&Collection{Name: c.Collection}, c.Key)
			if err != nil {
				return nil, err
			}
			c.Value, c.Present = rec.value, rec.version > 0
		}
		if c.HasBefore {
			c.Before = append([]byte{}, c.Before...)
		}
		changes = append(changes, c)
		size += len(c.Value) + len(c.Before)
	}
	return changes, it.Close()
}

// undurableChange returns the first committed offset of a feed that is not durable, or an offset larger than any if
// all are durable.
func (s *Batch) undurableChange(name string) uint64 {
	first := uint64(math.MaxUint64)
	if s.g.cleared {
		return first
	}
	base := feedKey(name)
	end := prefixEnd(base)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, g := range [...]*layer{s.r.filling, s.r.inflight} {
		if g == nil {
			continue
		}
		for _, i := range g.set.within(base, end) {
			if r := &g.set.rows[i]; !r.deleted && len(r.key) == len(base)+8 {
				first = min(first, binary.BigEndian.Uint64(r.key[len(base):]))
				break
			}
		}
		if g.cleared {
			break
		}
	}
	return first
}
