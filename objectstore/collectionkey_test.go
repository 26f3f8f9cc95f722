package objectstore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

func FuzzCollectionRecords(f *testing.F) {
	f.Add(rowRecord{version: 3, entries: entriesOf("books", "a b"), value: []byte("a b")}.encode())
	f.Add(encodeChange(&Change{Op: OpUpdate, Collection: "c", Key: []byte("k"), Version: 2, Value: []byte("v")}, true))
	f.Add(encodeChange(&Change{Op: OpUpdate, Collection: "c", Key: []byte("k"), Version: 2, Value: []byte("v"), Before: []byte("u"), HasBefore: true}, true))
	f.Add(encodeEntry([]byte("key")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRow(b); err == nil {
			again, err := decodeRow(r.encode())
			if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
				t.Fatalf("%v came back as %v, %v", r, again, err)
			}
		}
		if c, stored, err := decodeChange(b); err == nil && c.At.Unix() >= 0 {
			again, storedAgain, err := decodeChange(encodeChange(&c, stored))
			if err != nil || stored != storedAgain || fmt.Sprint(again) != fmt.Sprint(c) {
				t.Fatalf("%v came back as %v, %v", c, again, err)
			}
		}
		if at, key, err := splitEntry(b, encodeEntry([]byte("key"))); err == nil && !bytes.Equal(append(append(bytes.Clone(at), 0), key...), b) {
			t.Fatalf("%q was split into %q and %q", b, at, key)
		}
		_, _, _ = splitEntry([]byte("index\x00key"), b)
		if h, err := decodeFeed(b); err == nil && !bytes.Equal(h.encode(), b) {
			t.Fatalf("feed %q came back as %q", b, h.encode())
		}
	})
}

// TestCollectionLayout holds the format on disk: a change of the file is a change
// of a record's version, or of formatNumber.
func TestCollectionLayout(t *testing.T) {
	id := ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	key := []byte("k\x00é")
	entry := IndexEntry{Index: "status", Key: []byte("open\x00")}
	change := Change{
		Op: OpUpdate, Collection: "orders", Key: key, Version: 300,
		At: time.Date(2031, 4, 5, 6, 7, 8, 9e6, time.UTC), Value: []byte("value"),
	}
	both := change
	both.Before, both.HasBefore = []byte("before"), true
	var b strings.Builder
	for _, l := range []struct {
		what       string
		key, value []byte
	}{
		{"feed", feedKey("session"), (&feedHeader{fork: 0x5f0c3a91, logs: []feedLog{{id, 1}, {id, 258}}}).encode()},
		{"feed entry", changeKey("session", 258), encodeChange(&change, false)},
		{"feed entry with its value", changeKey("session", 259), encodeChange(&change, true)},
		{"feed entry with both values", changeKey("session", 260), encodeChange(&both, true)},
		{"feed entry with the value before it", changeKey("session", 261), encodeChange(&both, false)},
		{"index entry", indexKey("orders", entry, key), encodeEntry(key)},
		{"row", rowKey("orders", key), rowRecord{version: 300, entries: []IndexEntry{entry}, value: []byte("value")}.encode()},
		{"row without entries", rowKey("orders", key), rowRecord{version: 1}.encode()},
	} {
		fmt.Fprintf(&b, "%s\n\t%q\n\t%q\n", l.what, l.key, l.value)
	}
	wantGolden(t, "testdata/collection.txt", b.String())
}
