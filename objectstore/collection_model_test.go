package objectstore

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// collectionModel compares an object's collections with a model of them.
type collectionModel struct {
	s       *Store
	o       live
	feed    Feed
	release func()

	now      collectionState
	saves    []Savepoint
	before   []collectionState // at saves
	versions []collectionState // as committed
	durable  int               // the newest version known to be durable
	cleared  bool              // the batch deleted all
}

func newCollectionModel(t *rapid.T) *collectionModel {
	s, err := Open(dir, &Options{FS: NewMemFS()})
	if err != nil {
		t.Fatal(err)
	}
	m := &collectionModel{s: s, o: s.live("c", "a"), now: newCollectionState()}
	m.feed = Feed{
		Name: "f", Values: rapid.Bool().Draw(t, "values"), Before: rapid.Bool().Draw(t, "before"), Keep: rapid.IntRange(0, 3).Draw(t, "keep"),
	}
	m.versions = []collectionState{m.now.clone()}
	return m
}

func (m *collectionModel) close() {
	if m.release != nil {
		m.release()
	}
	m.s.Abandon()
}

var (
	collectionNames  = rapid.SampledFrom([]string{"books", "books", "book"})
	collectionKeys   = rapid.SampledFrom([]string{"a", "aa", "ab", "a\x00", "a\x00b", "b", "\xff", "\x00"})
	collectionValues = rapid.SampledFrom([]string{"", "a", "a a", "ab a", "a ab", "b ab", "b", "ba a b"})
	collectionBounds = rapid.SampledFrom([]string{"", "", "", "a", "aa", "ab", "b", "ba", "\xff"})
)

func (m *collectionModel) collection(name string) *Collection {
	return &Collection{Name: name, Feed: m.feed}
}

// expected draws a version to expect, and the error that it must give.
func expected(t *rapid.T, is uint64) (uint64, error) {
	switch rapid.IntRange(0, 3).Draw(t, "expect") {
	case 0:
		return is, nil
	case 1:
		if is > 0 {
			return 0, ErrRowExists
		}
		return 1, ErrNoRow
	case 2:
		if is > 0 {
			return is + 1, ErrConflict
		}
	}
	return AnyVersion, nil
}

func (m *collectionModel) put(t *rapid.T) {
	name, key, value := collectionNames.Draw(t, "name"), collectionKeys.Draw(t, "key"), collectionValues.Draw(t, "value")
	old := m.now.rows[name][key]
	expect, want := expected(t, old.version)
	version, err := m.o.PutRow(m.collection(name), RowWrite{
		Key: []byte(key), Value: []byte(value), Entries: entriesOf(name, value), Expect: expect,
	})
	if !errors.Is(err, want) || err == nil && version != old.version+1 {
		t.Fatalf("PutRow(%q) over %v = %d, %v; want %v", key, old, version, err, want)
	}
	if err != nil {
		return
	}
	op := OpUpdate
	if old.version == 0 {
		op = OpInsert
	}
	m.now.rows[name][key] = modelRow{value, version}
	m.now.feed = append(m.now.feed, modelChange{op, name, key, version, value, old.value})
}

// log writes a row blindly. Queries do not use that collection; get, fence and onDisk do.
func (m *collectionModel) log(t *rapid.T) {
	key, value := collectionKeys.Draw(t, "key"), collectionValues.Draw(t, "value")
	version, err := m.o.PutRow(&Collection{Name: "log"}, RowWrite{
		Key: []byte(key), Value: []byte(value), Expect: AnyVersion, Blind: true,
	})
	if version != 1 || err != nil {
		t.Fatalf("a blind PutRow(%q) over %v = %d, %v", key, m.now.rows["log"][key], version, err)
	}
	m.now.rows["log"][key] = modelRow{value, 1}
}

func (m *collectionModel) delete(t *rapid.T) {
	name, key := collectionNames.Draw(t, "name"), collectionKeys.Draw(t, "key")
	old := m.now.rows[name][key]
	expect, want := expected(t, old.version)
	switch { // no version is not a version that could be deleted
	case expect == 0 && old.version == 0:
		want = ErrNoRow
	case expect == 0:
		want = ErrConflict
	}
	_, existed, err := m.o.DeleteRow(m.collection(name), []byte(key), expect)
	if !errors.Is(err, want) || err == nil && existed != (old.version > 0) {
		t.Fatalf("DeleteRow(%q) of %v = %v, %v; want %v", key, old, existed, err, want)
	}
	if !existed {
		return
	}
	delete(m.now.rows[name], key)
	m.now.feed = append(m.now.feed, modelChange{OpDelete, name, key, old.version, "", old.value})
}

func (m *collectionModel) deleteAll(t *rapid.T) {
	if err := m.o.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	resets := m.now.resets
	m.now = newCollectionState()
	m.now.resets = resets + 1
	m.cleared = true
}

func (m *collectionModel) get(t *rapid.T) {
	name, key := rapid.OneOf(collectionNames, rapid.Just("log")).Draw(t, "name"), collectionKeys.Draw(t, "key")
	r, ok, err := m.o.GetRow(m.collection(name), []byte(key))
	want := m.now.rows[name][key]
	if err != nil || ok != (want.version > 0) || string(r.Value) != want.value || r.Version != want.version {
		t.Fatalf("GetRow(%q) = %q, %v, %v; want %v", key, r.Value, ok, err, want)
	}
}

// drawQuery draws a query without a limit.
func drawQuery(t *rapid.T) RowQuery {
	q := RowQuery{Index: rapid.SampledFrom([]string{"", "shelf", "words"}).Draw(t, "index")}
	q.Reverse = rapid.Bool().Draw(t, "reverse")
	bound := func(what string) []byte {
		if b := collectionBounds.Draw(t, what); b != "" {
			return []byte(b)
		}
		return nil
	}
	if q.Equal = bound("equal"); q.Equal == nil {
		q.Prefix, q.Start, q.End = bound("prefix"), bound("start"), bound("end")
	}
	return q
}

func (m *collectionModel) query(t *rapid.T) {
	name, q := collectionNames.Draw(t, "name"), drawQuery(t)
	want := m.now.find(name, q)
	if n, err := m.o.CountRows(m.collection(name), q); err != nil || n != len(want) {
		t.Fatalf("CountRows(%+v) = %d, %v; want %q", q, n, err, want)
	}
	m.selects(t, name, q, len(want))
	// By pages, each from the last row of the previous one.
	q.Limit = rapid.IntRange(0, 3).Draw(t, "limit")
	for page := 0; ; page++ {
		it := m.o.QueryRows(m.collection(name), q)
		n := 0
		for ; it.Next(); n++ {
			r := it.Row()
			if len(want) == 0 {
				t.Fatalf("QueryRows(%+v) found %q, want no more", q, r.Key)
			}
			is := m.now.rows[name][want[0].key]
			if string(r.Key) != want[0].key || string(r.Value) != is.value || r.Version != is.version {
				t.Fatalf("QueryRows(%+v) found %q, version %d; want %q, %v", q, r.Key, r.Version, want[0], is)
			}
			want, q.After = want[1:], append([]byte(nil), r.Cursor...)
		}
		m.selects(t, name, q, len(want))
		most := n
		if q.Index != "" {
			most = 2 * n
		}
		if err := it.Close(); err != nil || it.Reads() != most {
			t.Fatalf("QueryRows(%+v) found %d rows with %d reads, %v", q, n, it.Reads(), err)
		}
		if q.Limit == 0 || n < q.Limit {
			break
		}
	}
	if len(want) > 0 {
		t.Fatalf("QueryRows(%+v) lacks %q", q, want)
	}
}

// selects compares Selects with the number of rows that a query finds without its limit.
func (m *collectionModel) selects(t *rapid.T, name string, q RowQuery, want int) {
	selects, err := q.Selects()
	if err != nil {
		t.Fatal(err)
	}
	it, n := m.o.QueryRows(m.collection(name), RowQuery{Index: q.Index}), 0
	for it.Next() {
		if selects(string(it.Row().Cursor)) {
			n++
		}
	}
	if err := it.Close(); err != nil || n != want {
		t.Fatalf("Selects of %+v selects %d rows, %v; want %d", q, n, err, want)
	}
}

// readFeed reads from a random position.
func (m *collectionModel) readFeed(t *rapid.T) {
	all := m.now.feed
	first := 0
	if m.feed.Keep > 0 {
		first = max(0, len(all)-m.feed.Keep)
	}
	from := rapid.IntRange(0, len(all)).Draw(t, "from")
	limit := rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "bytes")
	got, err := m.o.ReadFeed("f", Position{Offset: uint64(from)}, 0, limit)
	if from < first {
		e, ok := errors.AsType[*FeedError](err)
		if !ok || e.Reset || e.First.Offset != uint64(first) {
			t.Fatalf("ReadFeed behind %d = %v; want a trimmed feed at %d", from, err, first)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for i, c := range got {
		if limit > 0 && size >= limit {
			t.Fatalf("ReadFeed of %d bytes continued after %d", limit, size)
		}
		size += len(c.Value) + len(c.Before)
		want := all[from+i]
		before := ""
		if m.feed.Before {
			before = want.before
		}
		if c.HasBefore != (m.feed.Before && want.op != OpInsert) || string(c.Before) != before || c.Stored != (m.feed.Values && want.op != OpDelete) {
			t.Fatalf("entry %+v; want %+v with %q before it", c, want, before)
		}
		value, present := want.value, want.op != OpDelete
		if r := m.now.rows[want.collection][want.key]; !m.feed.Values && present {
			value, present = r.value, r.version > 0
		}
		if c.Offset != uint64(from+i+1) || c.Op != want.op || c.Collection != want.collection ||
			string(c.Key) != want.key || c.Version != want.version || string(c.Value) != value || c.Present != present {
			t.Fatalf("entry %+v; want %+v with %q, %v", c, want, value, present)
		}
	}
	// Commits may or may not be durable by now; those known to be durable must be there.
	least := len(all)
	if m.durable < len(m.versions)-1 && !m.cleared {
		least = 0
		if old := m.versions[m.durable]; old.resets == m.now.resets {
			least = min(len(all), len(old.feed))
		}
	}
	if limit > 0 && size >= limit {
		least = 0
	}
	if from+len(got) < least {
		t.Fatalf("ReadFeed behind %d ends at %d; %d are durable", from, from+len(got), least)
	}
}

func (m *collectionModel) begin(*rapid.T) {
	m.saves = append(m.saves, m.o.Batch.Begin())
	m.before = append(m.before, m.now.clone())
}

func (m *collectionModel) rollback(t *rapid.T) {
	if len(m.saves) == 0 {
		t.Skip("no savepoint")
	}
	i := rapid.IntRange(0, len(m.saves)-1).Draw(t, "savepoint")
	m.o.Rollback(m.saves[i])
	m.now = m.before[i]
	m.saves, m.before = m.saves[:i], m.before[:i]
	m.cleared = m.now.resets > m.versions[len(m.versions)-1].resets
}

func (m *collectionModel) commitBatch(t *rapid.T) {
	if err := m.o.Commit(m.o.Batch); err != nil {
		t.Fatal(err)
	}
	m.versions = append(m.versions, m.now.clone())
	m.saves, m.before, m.cleared = nil, nil, false
}

func (m *collectionModel) hold(t *rapid.T) {
	if m.release != nil {
		m.release()
		m.release = nil
		return
	}
	m.release = m.s.opts.FS.HoldSyncs()
}

func (m *collectionModel) commit(t *rapid.T) {
	if m.release != nil {
		m.hold(t)
	}
	done := newReleased()
	m.o.Sync(done)
	m.commitBatch(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	m.durable = len(m.versions) - 1
}

// fence ends the incarnation, and with it the batch. With dropping it also loses the commits that are in no record.
func (m *collectionModel) fence(t *rapid.T) {
	floor := len(m.versions) - 1
	if rapid.Bool().Draw(t, "dropping") {
		m.o.FenceDropping()
		floor = m.durable
	} else {
		m.o.Fence()
	}
	e := m.s.NewEpoch()
	m.o.Range.Begin(e)
	m.o = live{Range: m.o.Range, Batch: m.o.NewBatch(e), e: e}
	m.saves, m.before, m.cleared = nil, nil, false
	got := m.dump(t)
	for v := len(m.versions) - 1; v >= floor; v-- {
		if m.versions[v].like(got) {
			m.now = m.versions[v].clone()
			m.versions = m.versions[:v+1]
			return
		}
	}
	t.Fatalf("%v survived; want one of %v", got, m.versions[floor:])
}

// dump reads all rows and the feed. Trimmed entries are empty.
func (m *collectionModel) dump(t *rapid.T) collectionState {
	got := newCollectionState()
	for name := range got.rows {
		it := m.o.QueryRows(m.collection(name), RowQuery{})
		for it.Next() {
			r := it.Row()
			got.rows[name][string(r.Key)] = modelRow{string(r.Value), r.Version}
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	start, _, err := m.o.FeedEnds("f")
	if err != nil {
		t.Fatal(err)
	}
	got.feed = make([]modelChange, start.Offset)
	base := feedKey("f")[1:]
	it := m.o.Scan(Bounds{Space: SpaceCollection, Prefix: base, After: base})
	for it.Next() {
		_, c, _, err := decodeFeedRow(base, it)
		if err != nil {
			t.Fatal(err)
		}
		got.feed = append(got.feed, modelChange{op: c.Op, collection: c.Collection, key: string(c.Key), version: c.Version})
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

// onDisk reads a snapshot, by keys, by each index and by a random query, when all commits are durable.
func (m *collectionModel) onDisk(t *rapid.T) {
	sn, err := m.s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	q := drawQuery(t)
	for name := range m.now.rows {
		for i, index := range []string{"", "shelf", "words", "", "shelf", "words"} {
			m.onDiskIs(t, sn, name, RowQuery{Index: index, Reverse: i >= 3})
		}
		m.onDiskIs(t, sn, name, q)
	}
}

// onDiskIs compares the rows of a snapshot that a query selects, all of them, and by pages of two rows.
func (m *collectionModel) onDiskIs(t *rapid.T, sn *Snapshot, name string, q RowQuery) {
	want := m.now.find(name, q)
	if got, _ := m.scan(t, sn, name, q); !slices.Equal(got, want) {
		t.Fatalf("%s has %q on the disk for %+v, want %q", name, got, q, want)
	}
	q.Limit = 2
	for rest := want; len(rest) > 0; {
		got, last := m.scan(t, sn, name, q)
		if n := min(q.Limit, len(rest)); !slices.Equal(got, rest[:n]) {
			t.Fatalf("%s has the page %q on the disk for %+v, want %q", name, got, q, rest)
		}
		rest, q.After = rest[len(got):], last
	}
}

// scan returns the places of the rows that a query selects in a snapshot, and the cursor of the last row.
func (m *collectionModel) scan(t *rapid.T, sn *Snapshot, name string, q RowQuery) (got []place, last []byte) {
	for r, err := range sn.Rows(ID{Class: "c", Name: "a"}, name, q) {
		if err != nil {
			t.Fatal(err)
		}
		if is := m.now.rows[name][string(r.Key)]; is != (modelRow{string(r.Value), r.Version}) {
			t.Fatalf("%s has %v for %+v, where %v is", name, r, q, is)
		}
		at := r.Cursor
		if q.Index != "" {
			at = at[:len(at)-len(r.Key)-1]
		}
		got, last = append(got, place{string(at), string(r.Key)}), bytes.Clone(r.Cursor)
	}
	return got, last
}

func TestCollectionModel(t *testing.T) {
	keepAllWalks(t)
	rapid.Check(t, func(t *rapid.T) {
		m := newCollectionModel(t)
		defer m.close()
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "put2": m.put, "put3": m.put, "put4": m.put, "put5": m.put, "log": m.log,
			"delete": m.delete, "deleteAll": m.deleteAll,
			"get": m.get, "query": m.query, "query2": m.query, "readFeed": m.readFeed, "readFeed2": m.readFeed,
			"begin": m.begin, "rollback": m.rollback, "handOver": m.commitBatch, "hold": m.hold,
			"commit": m.commit, "fence": m.fence, "waking": func(t *rapid.T) { m.o.drawWaking(t) },
		})
		m.commit(t)
		m.readFeed(t)
		m.onDisk(t)
		if _, err := m.s.Check(t.Context(), func(p Problem) { t.Errorf("check: %v", p) }); err != nil {
			t.Fatal(err)
		}
	})
}
