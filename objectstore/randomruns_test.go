package objectstore

import (
	"bytes"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/invariants"
)

var (
	randomRuns = flag.Int("random-runs", 500, "how many objects TestStoreAtRandom compares with a model, 200 steps each")
	randomSeed = flag.Uint64("random-seed", 0, "the seed of TestStoreAtRandom; 0 draws one")
)

// TestStoreAtRandom takes objects of one store through random steps, one after the other without
// waiting for the disk, and compares each read with a model. TestModel has the crashes, and
// shrinks; this test has large values, incarnations that begin on a range that is clean, and many more
// steps.
func TestStoreAtRandom(t *testing.T) {
	keepAllWalks(t)
	seed := *randomSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: -random-seed repeats it", seed)
	runs := *randomRuns
	if invariants.Enabled { // one goroutine does most of the work
		runs = min(runs, 200)
	}
	s := open(t, NewMemFS(), Options{ReserveBytes: -1, MemTable: 1 << 20})
	for n := range runs {
		r := &randomRun{T: t, Rand: rand.New(rand.NewPCG(seed, uint64(n))), s: s, n: n, rows: map[string]string{}}
		r.o = s.live("c", strconv.Itoa(n))
		for range 200 {
			if r.step(); t.Failed() {
				t.Fatalf("object %d", n)
			}
		}
		r.commit()
	}
	if n := s.Stats().Undurable; n != 0 {
		t.Errorf("%d bytes are not durable at the end", n)
	}
	if _, err := s.Check(t.Context(), func(p Problem) { t.Errorf("check: %v", p) }); err != nil {
		t.Error(err)
	}
}

// randomRun is an object and its model.
type randomRun struct {
	*testing.T
	*rand.Rand
	s *Store
	n int
	o live

	rows  map[string]string
	slot  Slot
	set   bool
	saves []randomSave
}

// randomSave is a savepoint and the model at it.
type randomSave struct {
	point Savepoint
	rows  map[string]string
	slot  Slot
	set   bool
}

func (r *randomRun) step() {
	steps := [...]func(){
		r.put, r.put, r.put, r.put, r.put, r.delete, r.delete, r.delete, r.deleteAll,
		r.commitBatch, r.commitBatch, r.commitBatch, r.commit, r.nextIncarnation, r.wake, r.setSlot, r.setSlot, r.clearSlot,
		r.readSlot, r.readSlot, r.begin, r.end, r.rollback, r.scan, r.scan, r.get, r.get, r.get, r.get,
	}
	steps[r.IntN(len(steps))]()
}

// check ends the test with the step that failed.
func (r *randomRun) check(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

func (r *randomRun) key() string { return string(rune('a' + r.IntN(20))) }

func (r *randomRun) put() {
	key, size := r.key(), r.IntN(1+r.IntN(600))
	if r.IntN(40) == 0 {
		size = 5000
	}
	value := bytes.Repeat([]byte{byte('A' + r.IntN(26))}, size)
	r.check(r.o.Put(SpaceKV, []byte(key), value, r.IntN(3) == 0))
	r.rows[key] = string(value)
}

func (r *randomRun) delete() {
	key := r.key()
	r.check(r.o.Delete(SpaceKV, []byte(key), false))
	delete(r.rows, key)
}

func (r *randomRun) deleteAll() {
	if r.IntN(3) > 0 {
		return
	}
	r.check(r.o.DeleteAll())
	r.rows, r.slot, r.set = map[string]string{}, Slot{}, false
}

// commitBatch commits the batch, and does not wait for the disk.
func (r *randomRun) commitBatch() {
	r.saves = nil
	r.check(r.o.Commit(r.o.Batch))
}

func (r *randomRun) commit() {
	r.saves = nil
	r.o.commit(r)
}

// nextIncarnation ends the incarnation after a commit, and begins another: on a new range if this one is clean, as for
// an object that was evicted.
func (r *randomRun) nextIncarnation() {
	if r.IntN(2) == 0 {
		r.commit()
	} else {
		r.commitBatch()
	}
	r.o.Fence()
	if r.o.Clean() {
		r.o = r.s.live("c", strconv.Itoa(r.n))
	} else {
		r.o = r.o.next()
	}
	r.o.SetWaking(true)
}

func (r *randomRun) wake() {
	r.o.SetWaking(r.IntN(3) > 0)
	if r.IntN(2) == 0 {
		r.o.Prefetch()
	}
}

func (r *randomRun) setSlot() {
	r.slot, r.set = Slot{Due: time.UnixMilli(1 + r.Int64N(1000)).UTC(), Generation: 1 + r.Uint64N(1000)}, true
	r.o.SetSlot(r.slot)
}

func (r *randomRun) clearSlot() {
	r.o.ClearSlot()
	r.slot, r.set = Slot{}, false
}

func (r *randomRun) readSlot() {
	if slot, set, err := r.o.Slot(); err != nil || set != r.set || slot != r.slot {
		r.Errorf("slot %v, %v, %v, want %v, %v", slot, set, err, r.slot, r.set)
	}
}

func (r *randomRun) begin() {
	r.saves = append(r.saves, randomSave{r.o.Batch.Begin(), maps.Clone(r.rows), r.slot, r.set})
}

func (r *randomRun) end() {
	if len(r.saves) > 0 {
		i := r.IntN(len(r.saves))
		r.o.End(r.saves[i].point)
		r.saves = r.saves[:i]
	}
}

func (r *randomRun) rollback() {
	if len(r.saves) > 0 {
		i := r.IntN(len(r.saves))
		v := r.saves[i]
		r.o.Rollback(v.point)
		r.rows, r.slot, r.set, r.saves = v.rows, v.slot, v.set, r.saves[:i]
	}
}

func (r *randomRun) scan() {
	b := Bounds{Space: SpaceKV, Reverse: r.IntN(2) == 0, Limit: r.IntN(5)}
	if r.IntN(2) == 0 {
		b.Start = []byte(r.key())
	}
	if r.IntN(3) == 0 {
		b.End = []byte(r.key())
	}
	want := state{rows: map[string]string{}}
	for key, value := range r.rows {
		want.rows[string(SpaceKV)+key] = value
	}
	got, err := collect(r.o.Scan(b))
	if rows := want.scan(b); err != nil || !slices.Equal(got, rows) {
		r.Errorf("Scan(%+v) = %q, %v, want %q", b, got, err, rows)
	}
}

func (r *randomRun) get() {
	key := r.key()
	value, ok, err := r.o.Get(nil, SpaceKV, []byte(key))
	if want, has := r.rows[key]; err != nil || ok != has || string(value) != want {
		r.Errorf("Get(%q) = %q, %v, %v, want %q, %v", key, value, ok, err, want, has)
	}
}
