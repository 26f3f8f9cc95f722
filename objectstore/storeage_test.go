package objectstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost/internal/invariants"
)

// smallMemTable is so small that a store ages in these tests as others do in years: it is flushed dozens of times.
const smallMemTable = 256 << 10

// repetitions is the number of times that an aging store repeats the usual work of a host.
func repetitions() int {
	if invariants.Enabled {
		return 2000
	}
	return 20_000
}

// repeatedStore is a store that repeats the same work, in records of many objects unless the work is about one.
type repeatedStore struct {
	*Store
	fs    *FS
	reads Reads
}

func newAging(t *testing.T) *repeatedStore {
	a := &repeatedStore{fs: NewMemFS()}
	a.reopen(t)
	return a
}

func (a *repeatedStore) reopen(t *testing.T) {
	a.Store = open(t, a.fs, Options{MemTable: smallMemTable, Reads: &a.reads})
}

// each calls do for n objects, fifty in a record.
func (a *repeatedStore) each(t *testing.T, n int, do func(o live, i int)) {
	t.Helper()
	for i := range n {
		o := a.live("c", fmt.Sprintf("b%06d", i))
		do(o, i)
		if i%50 == 49 || i == n-1 {
			o.commit(t)
		} else if err := o.Commit(o.Batch); err != nil {
			t.Fatal(err)
		}
	}
}

// again calls do for the object "a" n times, in an incarnation and a record of its own each.
func (a *repeatedStore) again(t *testing.T, n int, do func(o live, i int)) {
	t.Helper()
	for i := range n {
		o := a.live("c", "a")
		do(o, i)
		o.commit(t)
	}
}

func (l live) deleteAll(t *testing.T) {
	t.Helper()
	if err := l.DeleteAll(); err != nil {
		t.Fatal(err)
	}
}

// stepsAtRest counts the entries that the engine visits while do runs. It waits until the engine is idle before that.
func (a *repeatedStore) stepsAtRest(do func()) int64 {
	synctest.Wait()
	from := a.reads.Steps.Load()
	do()
	return a.reads.Steps.Load() - from
}

// readCosts does the reads that must cost the same at every age, and returns the cost of each.
func (a *repeatedStore) readCosts(t *testing.T) map[string]int64 {
	sn := a.snapshot(t)
	defer sn.Close()
	return map[string]int64{
		"finding the next alarm": a.stepsAtRest(func() {
			if as, _, err := sn.Alarms("c", AlarmPos{}, 1); err != nil || len(as) != 1 || as[0].ID.Name != "a" {
				t.Fatal(as, err)
			}
		}),
		"waking an object": a.stepsAtRest(func() {
			o := a.live("c", "a")
			if slot, _, err := o.Slot(); err != nil || slot.Due != due(1<<40) {
				t.Fatal(slot, err)
			}
			if rows, err := collect(o.Scan(Bounds{Space: SpaceKV})); err != nil || fmt.Sprint(rows) != "[n=1]" {
				t.Fatal(rows, err)
			}
		}),
		"listing a class": a.stepsAtRest(func() {
			var names []string
			for id, err := range sn.Objects("c", "") {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, id.Name)
			}
			if fmt.Sprint(names) != "[a z]" {
				t.Fatal(names)
			}
		}),
	}
}

// begin gives an object its row and its alarm.
func begin(t *testing.T, o live) {
	t.Helper()
	o.put(t, "n", "1")
	o.SetSlot(Slot{Due: due(1 << 40)})
}

// dead bounds the deleted or overwritten entries that a read may visit: a memtable has no more before it is flushed
// for them, nor has the file below it.
const dead = 4 * smallMemTable / tombstoneWeight

// repeatedWork are the kinds of work that age a store.
var repeatedWork = []struct {
	name string
	each int64 // entries that the engine visits for each repetition
	more int64 // entries that a read visits more than in a young store
	live func(t *testing.T, a *repeatedStore, times int)
}{
	{"alarms fire", 0, dead, func(t *testing.T, a *repeatedStore, times int) {
		a.each(t, times, func(o live, i int) { o.SetSlot(Slot{Due: due(int64(i))}) })
		a.each(t, times, func(o live, i int) { o.ClearSlot() })
	}},
	{"an alarm fires again and again", 0, dead, func(t *testing.T, a *repeatedStore, times int) {
		a.again(t, times, func(o live, i int) {
			if o.SetSlot(Slot{Due: due(int64(i))}); i%2 == 1 {
				o.ClearSlot()
			}
		})
		a.again(t, 1, func(o live, i int) { begin(t, o) })
	}},
	{"an object is evicted, and writes", 0, 1, func(t *testing.T, a *repeatedStore, times int) {
		a.again(t, times, func(o live, i int) { o.put(t, "n", "1") })
	}},
	{"objects are deleted", 2, dead, func(t *testing.T, a *repeatedStore, times int) {
		a.each(t, times, func(o live, i int) { o.put(t, "n", "1") })
		a.each(t, times, func(o live, i int) { o.deleteAll(t) })
	}},
	{"an object is deleted, and begins anew", 4, 1, func(t *testing.T, a *repeatedStore, times int) {
		a.again(t, times, func(o live, i int) {
			o.deleteAll(t)
			begin(t, o)
		})
	}},
}

// TestReadCostIsIndependentOfStoreAge counts the entries that a read visits, also those that it visits until the engine
// has dropped them.
func TestReadCostIsIndependentOfStoreAge(t *testing.T) {
	for _, c := range repeatedWork {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAging(t)
				for _, name := range []string{"a", "z"} {
					o := a.live("c", name)
					begin(t, o)
					o.commit(t)
				}
				young, most := a.readCosts(t), map[string]int64{}
				look := func() {
					for what, cost := range a.readCosts(t) {
						most[what] = max(most[what], cost)
					}
				}
				const looks = 20
				times := repetitions() / looks
				for range looks {
					if cost := a.stepsAtRest(func() { c.live(t, a, times) }); cost > c.each*int64(times) {
						t.Errorf("to do it %d times the engine came upon %d entries", times, cost)
					}
					look()
				}
				a.Abandon()
				a.reopen(t)
				look()
				for what, cost := range most {
					if cost > young[what]+c.more {
						t.Errorf("%s came upon %d entries at first, and later upon %d", what, young[what], cost)
					}
				}
				t.Logf("at first %v, at most %v", young, most)
			})
		})
	}
}

// disk returns the bytes of the engine's files, once it is idle.
func (a *repeatedStore) disk(t *testing.T) (bytes int64) {
	t.Helper()
	synctest.Wait()
	db := a.fs.base.PathJoin(dir, dbName)
	names, err := a.fs.base.List(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := a.fs.base.Stat(a.fs.base.PathJoin(db, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// TestDiskSpaceIsReclaimedAfterDeletes writes twenty times the size of a memtable, incompressible, and deletes it.
// Without further writes only the logs are left that the engine keeps for reuse.
func TestDiskSpaceIsReclaimedAfterDeletes(t *testing.T) {
	const full = 20 * smallMemTable
	draw := rand.NewChaCha8([32]byte{})
	put := func(t *testing.T, o live, key string, size int) {
		value := make([]byte, size)
		if _, err := draw.Read(value); err != nil {
			t.Fatal(err)
		}
		o.put(t, key, string(value))
	}
	// rows writes n rows of an object, with values of full bytes in total.
	rows := func(n int) func(*testing.T, *repeatedStore) {
		return func(t *testing.T, a *repeatedStore) {
			a.again(t, n, func(o live, i int) { put(t, o, fmt.Sprintf("%06d", i), full/n) })
		}
	}
	one := func(t *testing.T, a *repeatedStore) {
		a.again(t, 1, func(o live, i int) { o.deleteAll(t) })
	}
	for _, c := range []struct {
		name        string
		put, remove func(t *testing.T, a *repeatedStore)
	}{
		{"of objects", func(t *testing.T, a *repeatedStore) {
			a.each(t, 2500, func(o live, i int) { put(t, o, "n", full/2500) })
		}, func(t *testing.T, a *repeatedStore) {
			a.each(t, 2500, func(o live, i int) { o.deleteAll(t) })
		}},
		{"of an object with large rows", rows(40), one},
		{"of an object with many rows, the first of them small", func(t *testing.T, a *repeatedStore) {
			a.again(t, 1, func(o live, i int) {
				for i := range maxPointDeletes + 1 {
					o.put(t, fmt.Sprint("!", i), "")
				}
			})
			rows(400)(t, a)
		}, one},
		{"of rows", rows(400), func(t *testing.T, a *repeatedStore) {
			a.again(t, 400, func(o live, i int) {
				if err := o.Delete(SpaceKV, fmt.Appendf(nil, "%06d", i), false); err != nil {
					t.Fatal(err)
				}
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAging(t)
				c.put(t, a)
				held := a.disk(t)
				c.remove(t, a)
				left := a.disk(t)
				t.Logf("%.1f memtables, then %.1f", float64(held)/smallMemTable, float64(left)/smallMemTable)
				if held < full || left > full/3 {
					t.Errorf("the disk held %d bytes, and after all was deleted %d", held, left)
				}
			})
		})
	}
}
