package objectstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

var orders = &Collection{Name: "orders"}

// putRow writes a row with index keys that are given as index=key.
func (l live) putRow(t failer, c *Collection, key, value string, entries ...string) {
	t.Helper()
	w := RowWrite{Key: []byte(key), Value: []byte(value), Expect: AnyVersion}
	for _, e := range entries {
		index, at, _ := strings.Cut(e, "=")
		w.Entries = append(w.Entries, IndexEntry{index, []byte(at)})
	}
	if _, err := l.PutRow(c, w); err != nil {
		t.Fatal(err)
	}
}

func TestRowErrorNamesBothVersions(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.putRow(t, orders, "x", "1")
	o.putRow(t, orders, "x", "2")
	for _, c := range []struct {
		key         string
		expect      uint64
		actual      uint64
		put, delete error
	}{
		{"x", 0, 2, ErrRowExists, ErrConflict},
		{"x", 1, 2, ErrConflict, ErrConflict},
		{"y", 1, 0, ErrNoRow, ErrNoRow},
		{"y", 0, 0, nil, ErrNoRow},
	} {
		_, _, err := o.DeleteRow(orders, []byte(c.key), c.expect)
		if e, ok := errors.AsType[*RowError](err); !ok || *e != (RowError{"orders", c.key, c.expect, c.actual, c.delete}) {
			t.Errorf("deleting %s, expecting %d: %v; want %v", c.key, c.expect, err, c.delete)
		}
		_, err = o.PutRow(orders, RowWrite{Key: []byte(c.key), Value: []byte("3"), Expect: c.expect})
		if e, ok := errors.AsType[*RowError](err); ok != (c.put != nil) || ok && *e != (RowError{"orders", c.key, c.expect, c.actual, c.put}) {
			t.Errorf("putting %s, expecting %d: %v; want %v", c.key, c.expect, err, c.put)
		}
	}
	if r, ok, err := o.GetRow(orders, []byte("x")); err != nil || !ok || string(r.Value) != "2" || r.Version != 2 {
		t.Errorf("refused writes left %q, %v, %v", r.Value, ok, err)
	}
}

// TestRowThatIsRefusedWritesNothing checks that a refused write leaves no part of itself.
func TestRowThatIsRefusedWritesNothing(t *testing.T) {
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f", Values: true}}
	long := strings.Repeat("k", MaxKey)
	for _, c := range []struct {
		name string
		w    RowWrite
		want string
	}{
		{"long key", RowWrite{Key: []byte(long)}, "key has"},
		{"no key", RowWrite{}, "empty key"},
		{"long index key", RowWrite{Key: []byte("x"), Entries: []IndexEntry{{"a", []byte("1")}, {"b", []byte(long)}}}, "key has"},
		{"index without a name", RowWrite{Key: []byte("x"), Entries: []IndexEntry{{"a", []byte("1")}, {"a\x00", []byte("1")}}}, "control character"},
		{"long value", RowWrite{Key: []byte("x"), Value: make([]byte, MaxValue)}, "value has"},
		// The row fits, but not together with the feed's copy of it.
		{"long batch", RowWrite{Key: []byte("x"), Value: make([]byte, MaxValue-100)}, "batch has"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := open(t, NewMemFS(), Options{}).live("c", "a")
			for i := range 7 {
				o.putRow(t, orders, fmt.Sprint("fill", i), strings.Repeat("v", MaxValue-100))
			}
			before := o.Bytes()
			_, err := o.PutRow(logged, c.w)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %s", err, c.want)
			}
			if o.Bytes() != before {
				t.Errorf("wrote %d bytes of it", o.Bytes()-before)
			}
			if _, end, err := o.FeedEnds("f"); err != nil || end != (Position{}) {
				t.Errorf("the feed ends at %v, %v", end, err)
			}
		})
	}
}

// TestQueryReadsOnlyReturnedRows counts the reads of queries in a collection of a thousand rows.
func TestQueryReadsOnlyReturnedRows(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	for i := range 1000 {
		o.putRow(t, orders, fmt.Sprintf("%04d", i), "v", fmt.Sprintf("tenth=%d", i%10))
	}
	o.commit(t)
	for _, c := range []struct {
		name        string
		q           RowQuery
		rows, reads int
	}{
		{"limit", RowQuery{Limit: 3}, 3, 3},
		{"last", RowQuery{Reverse: true, Limit: 1}, 1, 1},
		{"one", RowQuery{Equal: []byte("0500")}, 1, 1},
		{"range", RowQuery{Start: []byte("0990")}, 10, 10},
		{"index", RowQuery{Index: "tenth", Equal: []byte("7")}, 100, 200},
		{"index, limit", RowQuery{Index: "tenth", Start: []byte("5"), Reverse: true, Limit: 2}, 2, 4},
		{"index, after", RowQuery{Index: "tenth", Equal: []byte("7"), After: []byte("7\x000977")}, 2, 4},
		{"range, after a row before it", RowQuery{Start: []byte("0990"), After: []byte("0005")}, 10, 10},
		{"range, back after a row behind it", RowQuery{End: []byte("0010"), After: []byte("0500"), Reverse: true}, 10, 10},
		{"no such index", RowQuery{Index: "ninth"}, 0, 0},
	} {
		it := o.QueryRows(orders, c.q)
		n := 0
		for it.Next() {
			n++
		}
		if err := it.Close(); err != nil || n != c.rows || it.Reads() != c.reads {
			t.Errorf("%s: %d rows with %d reads, %v; want %d with %d", c.name, n, it.Reads(), err, c.rows, c.reads)
		}
	}
}

func TestQueryRefusesContradictoryBounds(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	for _, q := range []RowQuery{
		{Limit: -1},
		{Equal: []byte("a"), Prefix: []byte("a")},
		{Equal: []byte("a"), Start: []byte("a")},
		{Equal: []byte("a"), End: []byte("a")},
		{Index: "a\x00"},
	} {
		if err := o.QueryRows(orders, q).Close(); err == nil {
			t.Errorf("%+v is allowed", q)
		}
	}
}

// TestQueryAllowsWritesDuringIteration moves and deletes rows ahead of the iterator.
func TestQueryAllowsWritesDuringIteration(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	for _, key := range []string{"a", "b", "c", "d"} {
		o.putRow(t, orders, key, "old", "status=open")
	}
	o.commit(t)
	var got []string
	it := o.QueryRows(orders, RowQuery{Index: "status"})
	for it.Next() {
		got = append(got, string(it.Row().Key)+"="+string(it.Row().Value))
		if len(got) > 1 {
			continue
		}
		if _, _, err := o.DeleteRow(orders, []byte("b"), AnyVersion); err != nil {
			t.Fatal(err)
		}
		o.putRow(t, orders, "c", "new", "status=paid")
		o.putRow(t, orders, "d", "new", "status=open")
		o.putRow(t, orders, "e", "new", "status=open")
	}
	if err := it.Close(); err != nil || fmt.Sprint(got) != "[a=old d=new]" {
		t.Errorf("found %v, %v", got, err)
	}
}

func TestCollectionRefusesUnknownFormats(t *testing.T) {
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
	for name, key := range map[string][]byte{
		"row":        rowKey("orders", []byte("x")),
		"entry":      indexKey("orders", IndexEntry{"status", []byte("open")}, []byte("x")),
		"feed":       feedKey("f"),
		"feed entry": changeKey("f", 1),
	} {
		s := open(t, NewMemFS(), Options{})
		o := s.live("c", "a")
		o.putRow(t, logged, "x", "v", "status=open")
		o.commit(t)
		if err := o.Put(SpaceCollection, key[1:], []byte{99, 1, 1}, false); err != nil {
			t.Fatal(err)
		}
		o = live{Range: o.Range, Batch: o.Batch, e: o.e}
		o.feeds = nil
		rows := o.QueryRows(orders, RowQuery{})
		rows.Next()
		byIndex := o.QueryRows(orders, RowQuery{Index: "status"})
		byIndex.Next()
		_, feedErr := o.ReadFeed("f", Position{}, 0, 0)
		if err := errors.Join(rows.Close(), byIndex.Close(), feedErr); !errors.Is(err, ErrFormat) {
			t.Errorf("%s of format 99: %v", name, err)
		}
		s.Abandon()
	}
}

// TestRowKeyHasALimit writes rows with the longest key and a longer one. The name of the collection counts toward it.
func TestRowKeyHasALimit(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	longest := strings.Repeat("k", MaxKey+1-len(rowKey("orders", nil)))
	if _, err := o.PutRow(orders, RowWrite{Key: []byte(longest)}); err != nil {
		t.Errorf("the longest key: %v", err)
	}
	_, err := o.PutRow(orders, RowWrite{Key: []byte(longest + "k")})
	if e, ok := errors.AsType[*LimitError](err); !ok || e.Subject != "key" || e.Size != MaxKey+1 {
		t.Errorf("one byte more: %v", err)
	}
}

// TestQueryEndsAtARowThatCannotBeRead has an index with the entry of a row of another format.
func TestQueryEndsAtARowThatCannotBeRead(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.putRow(t, orders, "x", "v", "status=open")
	if err := o.Put(SpaceCollection, rowKey("orders", []byte("x"))[1:], []byte{99, 1, 1}, false); err != nil {
		t.Fatal(err)
	}
	it := o.QueryRows(orders, RowQuery{Index: "status"})
	if it.Next() {
		t.Errorf("it returns the row %+v", it.Row())
	}
	if err := it.Close(); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}
