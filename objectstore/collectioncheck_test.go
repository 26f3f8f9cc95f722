package objectstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

func TestCheckFindsDamagedCollections(t *testing.T) {
	id := ID{"c", "a"}
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
	in := func(key []byte) []byte { return append(appendObject(nil, id), key...) }
	row, entry := in(rowKey("orders", []byte("x"))), in(indexKey("orders", IndexEntry{"status", []byte("open")}, []byte("x")))
	rec := rowRecord{version: 1, value: []byte("v")}
	for _, c := range []struct {
		name  string
		wreck func(b *pebble.Batch) error
		want  string
	}{
		{"none", func(*pebble.Batch) error { return nil }, ""},
		{"row gone", func(b *pebble.Batch) error { return b.Delete(row, nil) }, "has no row"},
		{"entry gone", func(b *pebble.Batch) error { return b.Delete(entry, nil) }, "is not in index"},
		{"row without the entry", func(b *pebble.Batch) error { return b.Set(row, rec.encode(), nil) }, "does not match its row"},
		{"row of unknown version", func(b *pebble.Batch) error { return b.Set(row, []byte{99}, nil) }, "version 99"},
		{"row cut off", func(b *pebble.Batch) error { return b.Set(row, []byte{rowFormat, 1, 9}, nil) }, "cut off"},
		{"entry of unknown version", func(b *pebble.Batch) error { return b.Set(entry, []byte{99, 1}, nil) }, "version 99"},
		{"entry with a wrong length", func(b *pebble.Batch) error { return b.Set(entry, []byte{entryFormat, 3}, nil) }, "does not fit"},
		{"index name", func(b *pebble.Batch) error { return b.Set(in([]byte("ciorders\x00x")), nil, nil) }, "index entry"},
		{"index name that is too long", func(b *pebble.Batch) error {
			e := IndexEntry{strings.Repeat("i", MaxCollectionName+1), []byte("open")}
			return errors.Join(
				b.Set(in(indexKey("orders", e, []byte("x"))), encodeEntry([]byte("x")), nil),
				b.Set(row, rowRecord{version: 1, entries: []IndexEntry{{"status", []byte("open")}, e}, value: []byte("v")}.encode(), nil),
			)
		}, "cannot be decoded"},
		{"name", func(b *pebble.Batch) error { return b.Set(in([]byte("crorders")), nil, nil) }, "key of a collection"},
		{"row with an empty key", func(b *pebble.Batch) error { return b.Set(in(rowKey("orders", nil)), rec.encode(), nil) }, "the key is empty"},
		{"kind", func(b *pebble.Batch) error { return b.Set(in([]byte("czorders\x00x")), nil, nil) }, "of unknown kind"},
		{"feed of unknown version", func(b *pebble.Batch) error { return b.Set(in(feedKey("f")), []byte{99}, nil) }, "version 99"},
		{"feed without a header", func(b *pebble.Batch) error { return b.Delete(in(feedKey("f")), nil) }, "no header"},
		{"feed with a gap", func(b *pebble.Batch) error { return b.Delete(in(changeKey("f", 2)), nil) }, "lacks entry 2"},
		{"feed entry of unknown version", func(b *pebble.Batch) error { return b.Set(in(changeKey("f", 2)), []byte{99}, nil) }, "version 99"},
		{"feed entry with a wrong key", func(b *pebble.Batch) error {
			return b.Set(in(append(feedKey("f"), "short"...)), nil, nil)
		}, "cannot be decoded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, NewMemFS(), Options{})
			o := s.live(id.Class, id.Name)
			for _, key := range []string{"x", "y", "z"} {
				o.putRow(t, logged, key, "v", "status=open", "status=new")
			}
			o.commit(t)
			b := pebbleDB(s).NewBatch()
			if err := c.wreck(b); err != nil {
				t.Fatal(err)
			}
			if err := pebbleDB(s).Apply(b, pebble.Sync); err != nil {
				t.Fatal(err)
			}
			var found []string
			if _, err := s.Check(t.Context(), func(p Problem) { found = append(found, p.String()) }); err != nil {
				t.Fatal(err)
			}
			all := strings.Join(found, "\n")
			if (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
				t.Errorf("found %q; want %q", all, c.want)
			}
		})
	}
}
