package objectstore

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// collections is the state of the check of an object's collections from one key to the next.
type collections struct {
	prefix []byte // of the object that feed belongs to
	feed   string
	header bool   // the feed's header was there
	next   uint64 // the offset that follows; zero before the first entry
}

// collectionKey checks a row of SpaceCollection. rest is its key after the space.
func (c *checker) collectionKey(id ID, rest []byte) error {
	kind, rest := rest[0], rest[1:]
	name, rest, ok := bytes.Cut(rest, []byte{nameEnd})
	if !ok || validateName("collection", string(name), MaxCollectionName) != nil {
		c.problem(id, "key of a collection cannot be decoded")
		return nil
	}
	switch kind {
	case kindFeed:
		c.feedKey(id, string(name), rest)
		return nil
	case kindIndex:
		return c.collectionEntry(id, string(name), rest)
	case kindRow:
		return c.collectionRow(id, string(name), rest)
	}
	c.problem(id, "key of a collection is of unknown kind")
	return nil
}

// collectionRow checks that a row has its index entries.
func (c *checker) collectionRow(id ID, collection string, key []byte) error {
	rec, err := decodeRow(c.w.value)
	if err == nil && len(key) == 0 {
		err = errors.New("the key is empty")
	}
	if err != nil {
		c.problem(id, "row of collection %q, key %q: %v", collection, key, err)
		return nil
	}
	for _, e := range rec.entries {
		_, ok, err := c.sn.get(append(appendObject(nil, id), indexKey(collection, e, key)...))
		if err != nil {
			return c.unreadable(id, "index entry", err)
		}
		if !ok {
			c.problem(id, "row of collection %q is not in index %q under the key %q", collection, e.Index, e.Key)
		}
	}
	return nil
}

// collectionEntry checks that an index entry has its row.
func (c *checker) collectionEntry(id ID, collection string, rest []byte) error {
	index, rest, ok := bytes.Cut(rest, []byte{nameEnd})
	if !ok || validateName("index", string(index), MaxCollectionName) != nil {
		c.problem(id, "index entry of collection %q cannot be decoded", collection)
		return nil
	}
	at, key, err := splitEntry(rest, c.w.value)
	if err != nil {
		c.problem(id, "collection %q, index %q: %v", collection, index, err)
		return nil
	}
	v, ok, err := c.sn.get(append(appendObject(nil, id), rowKey(collection, key)...))
	if err != nil {
		return c.unreadable(id, "row", err)
	}
	if !ok {
		c.problem(id, "entry in index %q of collection %q has no row %q", index, collection, key)
		return nil
	}
	// An unreadable row is reported at its own key.
	if rec, err := decodeRow(v); err == nil && !rec.has(IndexEntry{Index: string(index), Key: at}) {
		c.problem(id, "entry in index %q of collection %q does not match its row %q", index, collection, key)
	}
	return nil
}

// feedKey checks that a header precedes the entries, and that their offsets have no gap.
func (c *checker) feedKey(id ID, feed string, rest []byte) {
	f := &c.collections
	if !bytes.Equal(f.prefix, c.last) || f.feed != feed {
		*f = collections{prefix: append(f.prefix[:0], c.last...), feed: feed}
	}
	if len(rest) == 0 {
		f.header = true
		if _, err := decodeFeed(c.w.value); err != nil {
			c.problem(id, "feed %q: %v", feed, err)
		}
		return
	}
	if len(rest) != 8 {
		c.problem(id, "entry of feed %q cannot be decoded", feed)
		return
	}
	offset := binary.BigEndian.Uint64(rest)
	if _, _, err := decodeChange(c.w.value); err != nil {
		c.problem(id, "feed %q, entry %d: %v", feed, offset, err)
	}
	if !f.header {
		c.problem(id, "feed %q has entries but no header", feed)
		f.header = true
	}
	if f.next > 0 && offset != f.next {
		c.problem(id, "feed %q lacks entry %d", feed, f.next)
	}
	f.next = offset + 1
}
