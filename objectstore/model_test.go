package objectstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// state is the model of an object's contents: rows by space and key, and the alarm.
type state struct {
	rows map[string]string
	slot Slot
	set  bool
}

func (s state) clone() state {
	s.rows = maps.Clone(s.rows)
	return s
}

func (s state) equal(o state) bool {
	return maps.Equal(s.rows, o.rows) && s.set == o.set && s.slot == o.slot
}

// save is a savepoint of the store and of the model.
type save struct {
	point Savepoint
	state state
	gated bool
	outs  int
}

// model is the model of an object, and the object.
type model struct {
	fs      *FS
	s       *Store
	o       live
	release func() // ends the hold of syncs; nil if none are held

	now      state // with the batch's writes
	gated    bool  // the batch has a write that outputs wait for
	outs     int   // of the batch
	saves    []save
	versions []state // as committed; none before acked can be lost
	mustKeep int     // the newest version with a gated write

	mu    sync.Mutex
	acked int // the newest version that must survive, by the outputs released
}

// ack is an output. Once it is released, the versions up to its own must survive.
type ack struct {
	m       *model
	version int
}

func (a *ack) Release(err error) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	if err == nil {
		a.m.acked = max(a.m.acked, a.version)
	}
}

func newModel(t *rapid.T) *model {
	m := &model{fs: NewMemFS(), now: state{rows: map[string]string{}}}
	m.versions = []state{m.now.clone()}
	m.open(t)
	// Neighbours that no scan may return and no DeleteAll may delete.
	for _, name := range []string{"a", "bb"} {
		n := m.s.live("c", name)
		n.put(t, "x", "neighbour")
		n.commit(t)
	}
	return m
}

func (m *model) open(t *rapid.T) {
	s, err := Open(dir, &Options{FS: m.fs})
	if err != nil {
		t.Fatal(err)
	}
	m.s = s
	m.o = s.live("c", "b")
}

func (m *model) close() {
	if m.release != nil {
		m.release()
		m.release = nil
	}
	m.s.Abandon()
}

var (
	keys   = rapid.SampledFrom([]string{"a", "aa", "ab", "a\x00", "a\xff", "a\xff\xff", "b", "\xff", "\xff\xff", "\x00"})
	many   = rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("row%02d", rapid.IntRange(0, 40).Draw(t, "row")) })
	anyKey = rapid.OneOf(keys, keys, many)
	values = rapid.StringN(0, 5, 12)
	spaces = rapid.SampledFrom([]Space{SpaceKV, SpaceKV, SpaceKV, SpaceCollection})
)

func (m *model) put(t *rapid.T) {
	sp, key, value := spaces.Draw(t, "space"), anyKey.Draw(t, "key"), values.Draw(t, "value")
	noWait := rapid.Bool().Draw(t, "noWait")
	if err := m.o.Put(sp, []byte(key), []byte(value), noWait); err != nil {
		t.Fatal(err)
	}
	m.now.rows[string(sp)+key] = value
	m.gated = m.gated || !noWait
}

func (m *model) delete(t *rapid.T) {
	sp, key := spaces.Draw(t, "space"), anyKey.Draw(t, "key")
	if err := m.o.Delete(sp, []byte(key), false); err != nil {
		t.Fatal(err)
	}
	delete(m.now.rows, string(sp)+key)
	m.gated = true
}

func (m *model) deleteAll(t *rapid.T) {
	if err := m.o.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	m.now = state{rows: map[string]string{}}
	m.gated = true
}

func (m *model) slot(t *rapid.T) {
	m.gated = true
	if rapid.Bool().Draw(t, "clear") {
		m.o.ClearSlot()
		m.now.slot, m.now.set = Slot{}, false
		return
	}
	m.now.slot = Slot{
		Due:        due(rapid.Int64Range(0, 3).Draw(t, "due")),
		Generation: rapid.Uint64Range(1, 9).Draw(t, "generation"),
		AtStart:    rapid.Bool().Draw(t, "at start"),
		Parked:     rapid.SampledFrom([]ParkReason{NotParked, ParkedFailed}).Draw(t, "parked"),
		Charge:     Charge{Deaths: rapid.Uint16Range(0, 1).Draw(t, "deaths")},
	}
	m.now.set = true
	m.o.SetSlot(m.now.slot)
}

func (m *model) get(t *rapid.T) {
	sp, key := spaces.Draw(t, "space"), anyKey.Draw(t, "key")
	v, ok, err := m.o.Get(nil, sp, []byte(key))
	want, wantOK := m.now.rows[string(sp)+key]
	if err != nil || ok != wantOK || string(v) != want {
		t.Fatalf("Get(%q) = %q, %v, %v; want %q, %v", key, v, ok, err, want, wantOK)
	}
}

func (m *model) scan(t *rapid.T) {
	bound := func(name string) []byte {
		if !rapid.Bool().Draw(t, "has "+name) {
			return nil
		}
		return []byte(anyKey.Draw(t, name))
	}
	b := Bounds{Space: spaces.Draw(t, "space"), Prefix: bound("prefix"), End: bound("end")}
	if rapid.Bool().Draw(t, "exclusive") {
		b.After = bound("after")
	} else {
		b.Start = bound("start")
	}
	b.Reverse = rapid.Bool().Draw(t, "reverse")
	b.Limit = rapid.IntRange(0, 4).Draw(t, "limit")
	got, err := collect(m.o.Scan(b))
	if want := m.now.scan(b); err != nil || !slices.Equal(got, want) {
		t.Fatalf("Scan(%+v) = %q, %v; want %q", b, got, err, want)
	}
}

// collect returns the rows as key=value.
func collect(it *Iterator) (rows []string, err error) {
	for it.Next() {
		rows = append(rows, string(it.Key())+"="+string(it.Value()))
	}
	return rows, it.Close()
}

// scan returns the rows that Scan should find, by plain search.
func (s state) scan(b Bounds) (rows []string) {
	for _, k := range slices.Sorted(maps.Keys(s.rows)) {
		key := k[1:]
		if k[0] == byte(b.Space) && strings.HasPrefix(key, string(b.Prefix)) &&
			(b.Start == nil || key >= string(b.Start)) &&
			(b.After == nil || key > string(b.After)) &&
			(b.End == nil || key < string(b.End)) {
			rows = append(rows, key+"="+s.rows[k])
		}
	}
	if b.Reverse {
		slices.Reverse(rows)
	}
	if b.Limit > 0 && len(rows) > b.Limit {
		rows = rows[:b.Limit]
	}
	return rows
}

func (m *model) begin(*rapid.T) {
	m.saves = append(m.saves, save{point: m.o.Batch.Begin(), state: m.now.clone(), gated: m.gated, outs: m.outs})
}

func (m *model) rollback(t *rapid.T) {
	if len(m.saves) == 0 {
		t.Skip("no savepoint")
	}
	i := rapid.IntRange(0, len(m.saves)-1).Draw(t, "savepoint")
	sv := m.saves[i]
	m.saves = m.saves[:i]
	dropped := m.o.Rollback(sv.point)
	if len(dropped) != m.outs-sv.outs {
		t.Fatalf("rollback returned %d outputs, want %d", len(dropped), m.outs-sv.outs)
	}
	m.now, m.gated, m.outs = sv.state, sv.gated, sv.outs
}

// end closes a savepoint and those inside it. Nothing changes.
func (m *model) end(t *rapid.T) {
	if len(m.saves) == 0 {
		t.Skip("no savepoint")
	}
	i := rapid.IntRange(0, len(m.saves)-1).Draw(t, "savepoint")
	m.o.End(m.saves[i].point)
	m.saves = m.saves[:i]
}

// commitBatch makes the model's state a version. Outputs get its number when they are emitted.
func (m *model) commitBatch(t *rapid.T) {
	version := len(m.versions)
	if m.gated {
		m.mustKeep = version
	}
	if rapid.Bool().Draw(t, "emit") {
		m.o.Emit(&ack{m: m, version: m.mustKeep})
	}
	if rapid.Bool().Draw(t, "sync") {
		m.o.Sync(&ack{m: m, version: version})
	}
	if err := m.o.Commit(m.o.Batch); err != nil {
		t.Fatal(err)
	}
	if !m.o.Batch.Empty() || m.o.Bytes() != 0 {
		t.Fatalf("batch not empty after the hand-over: %d bytes", m.o.Bytes())
	}
	m.versions = append(m.versions, m.now.clone())
	m.gated, m.outs, m.saves = false, 0, nil
}

// emit adds an output without a version, which a rollback returns.
func (m *model) emit(*rapid.T) {
	m.o.Emit(&ack{m: m})
	m.outs++
}

// commit waits for the disk, unless syncs are held.
func (m *model) commit(t *rapid.T) {
	if m.release != nil {
		t.Skip("syncs are held")
	}
	done := newReleased()
	m.o.Sync(done)
	m.commitBatch(t)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked = len(m.versions) - 1
}

func (m *model) hold(*rapid.T) {
	if m.release != nil {
		m.release()
		m.release = nil
		return
	}
	m.release = m.fs.HoldSyncs()
}

// fence ends the incarnation. Its batch is lost; its commits are not.
func (m *model) fence(t *rapid.T) {
	m.o.Fence()
	m.nextIncarnation(t)
	m.survived(t, len(m.versions)-1)
}

// fenceDropping may lose versions, but none that a released output has acknowledged.
func (m *model) fenceDropping(t *rapid.T) {
	m.o.FenceDropping()
	m.mu.Lock()
	acked := m.acked
	m.mu.Unlock()
	m.nextIncarnation(t)
	m.survived(t, acked)
}

func (m *model) crash(t *rapid.T) {
	m.mu.Lock()
	acked := m.acked
	fs := m.fs.Crash(rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"), rapid.Uint64().Draw(t, "seed"))
	m.mu.Unlock()
	m.close()
	// Later acknowledgements of the old host do not apply to the clone.
	m.acked = acked
	m.fs = fs
	m.open(t)
	m.survived(t, acked)
}

func (m *model) nextIncarnation(t *rapid.T) {
	e := m.s.NewEpoch()
	old := m.o.Batch
	m.o.Range.Begin(e)
	if err := m.o.Commit(old); err == nil {
		t.Fatal("a dead incarnation handed over")
	}
	m.o = live{Range: m.o.Range, Batch: m.o.NewBatch(e), e: e}
}

// survived reads everything and returns the version that it is: floor, or a later one.
func (m *model) survived(t *rapid.T, floor int) {
	got := state{rows: map[string]string{}}
	for _, sp := range []Space{SpaceKV, SpaceCollection} {
		it := m.o.Scan(Bounds{Space: sp})
		for it.Next() {
			got.rows[string(sp)+string(it.Key())] = string(it.Value())
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if got.slot, got.set, err = m.o.Slot(); err != nil {
		t.Fatal(err)
	}
	for v := len(m.versions) - 1; v >= floor; v-- {
		if !m.versions[v].equal(got) {
			continue
		}
		m.versions = m.versions[:v+1]
		m.mustKeep = min(m.mustKeep, v)
		m.now, m.gated, m.outs, m.saves = got.clone(), false, 0, nil
		return
	}
	t.Fatalf("%v survived; want one of %v", got, m.versions[floor:])
}

// drawWaking makes the range read the object whole, now or by one of the next reads.
func (l live) drawWaking(t *rapid.T) {
	l.SetWaking(rapid.IntRange(0, 3).Draw(t, "waking") > 0)
	if rapid.Bool().Draw(t, "prefetch") {
		l.Prefetch()
	}
}

// check reads the present rows, and those from before the batch.
func (m *model) check(t *rapid.T) {
	for _, rows := range []map[string]string{m.now.rows, m.versions[len(m.versions)-1].rows} {
		for k := range rows {
			v, ok, err := m.o.Get(nil, Space(k[0]), []byte(k[1:]))
			want, wantOK := m.now.rows[k]
			if err != nil || ok != wantOK || string(v) != want {
				t.Fatalf("Get(%q) = %q, %v, %v; want %q, %v", k, v, ok, err, want, wantOK)
			}
		}
	}
	if m.now.set {
		got, ok, err := m.o.Slot()
		if err != nil || !ok || got != m.now.slot {
			t.Fatalf("slot %v, %v, %v; want %v", got, ok, err, m.now.slot)
		}
	}
}

func TestModel(t *testing.T) {
	keepAllWalks(t)
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		defer func() { m.close() }()
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "put2": m.put, "put3": m.put, "delete": m.delete, "deleteAll": m.deleteAll, "slot": m.slot,
			"get": m.get, "scan": m.scan, "scan2": m.scan, "begin": m.begin, "rollback": m.rollback,
			"end":  m.end,
			"emit": m.emit, "handOver": m.commitBatch, "handOver2": m.commitBatch, "commit": m.commit, "hold": m.hold,
			"fence": m.fence, "fenceDropping": m.fenceDropping, "crash": m.crash, "waking": func(t *rapid.T) { m.o.drawWaking(t) },
			"": m.check,
		})
		for _, name := range []string{"a", "bb"} {
			got, err := collect(m.s.live("c", name).Scan(Bounds{Space: SpaceKV}))
			if err != nil || !slices.Equal(got, []string{"x=neighbour"}) {
				t.Fatalf("neighbour %s has %q, %v", name, got, err)
			}
		}
		if m.release != nil {
			m.hold(t)
		}
		m.commit(t)
		stats, err := m.s.Check(t.Context(), func(p Problem) {
			// The rows here belong to no collection.
			if !strings.HasPrefix(p.Detail, "key of a collection") {
				t.Errorf("check: %v", p)
			}
		})
		if err != nil || stats.Rows != int64(len(m.now.rows))+2 {
			t.Fatalf("check found %+v, %v; want %d rows", stats, err, len(m.now.rows)+2)
		}
	})
}
