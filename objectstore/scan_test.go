package objectstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/invariants"
)

func TestScanIsASnapshot(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		for _, key := range []string{"a", "b", "c"} {
			o.put(t, key, "durable")
		}
		o.commit(t)
		release := fs.HoldSyncs()
		o.put(t, "b", "in flight")
		o.commitBatch(t)
		synctest.Wait()
		o.put(t, "c", "filling")
		o.commitBatch(t)
		o.put(t, "d", "batch")

		it := o.Scan(Bounds{Space: SpaceKV})
		defer it.Close()
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			o.put(t, key, "later")
		}
		if err := o.Delete(SpaceKV, []byte("d"), false); err != nil {
			t.Fatal(err)
		}
		o.commitBatch(t)
		release()
		synctest.Wait()
		if !o.Clean() {
			t.Fatal("not everything is durable")
		}
		got, err := collect(it)
		if want := []string{"a=durable", "b=in flight", "c=filling", "d=batch"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}

// TestReadReturnsNewestLayer puts another value of each key in every layer.
func TestReadReturnsNewestLayer(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		layers := []string{"durable", "in flight", "filling", "batch"}
		var release func()
		for i, layer := range layers {
			for k := i; k < len(layers); k++ {
				o.put(t, layers[k], layer)
				o.put(t, "deleted in "+layers[k], layer)
			}
			if err := o.Delete(SpaceKV, []byte("deleted in "+layer), false); err != nil {
				t.Fatal(err)
			}
			switch layer {
			case "durable":
				o.commit(t)
				release = fs.HoldSyncs()
			case "in flight", "filling":
				o.commitBatch(t)
				synctest.Wait()
			}
		}
		defer release()
		look := func() {
			for _, layer := range layers {
				o.want(t, layer, layer)
				o.absent(t, "deleted in "+layer)
			}
		}
		look()
		p := o.Batch.Begin()
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		for _, layer := range layers {
			o.absent(t, layer)
		}
		o.Rollback(p)
		look()
	})
}

func TestScanBounds(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	if err := o.Scan(Bounds{Space: SpaceKV, Start: []byte("a"), After: []byte("b")}).Close(); err == nil {
		t.Error("Start with After is allowed")
	}
	if err := o.Scan(Bounds{Space: SpaceKV, Limit: -1}).Close(); err == nil {
		t.Error("a negative limit is allowed")
	}
	// Bounds without common keys need no engine, even when it is closed.
	for _, b := range []Bounds{
		{Start: []byte("b"), End: []byte("b")},
		{Start: []byte("b"), End: []byte("a")},
		{After: []byte("a"), End: []byte("a\x00")},
		{Prefix: []byte("b"), End: []byte("b")},
		{Prefix: []byte("b"), Start: []byte("c")},
		{Prefix: []byte("\xff"), Start: []byte("a"), End: []byte("\xff")},
	} {
		b.Space = SpaceKV
		it := o.Scan(b)
		if it.base != nil || it.Next() || it.Close() != nil {
			t.Errorf("%+v: not empty at once", b)
		}
	}
}

// TestScanOfManyRowsBetweenWrites scans a write set beyond the linear one between writes.
func TestScanOfManyRowsBetweenWrites(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	var want []string
	for i := range 100 {
		o.put(t, fmt.Sprintf("%02d", (i*37)%100), "v")
		if i%10 == 0 {
			if _, err := collect(o.Scan(Bounds{Space: SpaceKV})); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, fmt.Sprintf("%02d=v", i))
	}
	for range 2 {
		got, err := collect(o.Scan(Bounds{Space: SpaceKV}))
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v", got, err)
		}
		slices.Reverse(want)
		got, err = collect(o.Scan(Bounds{Space: SpaceKV, Reverse: true, Limit: 30}))
		if err != nil || !slices.Equal(got, want[:30]) {
			t.Fatalf("reverse: %q, %v", got, err)
		}
		slices.Reverse(want)
		o.commit(t)
	}
}

// TestOverlayCopiesOnlyRequestedRows checks the cost of a short scan over a large overlay.
func TestOverlayCopiesOnlyRequestedRows(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	for i := range 1000 {
		o.put(t, fmt.Sprintf("%04d", i), "v")
	}
	it := o.Scan(Bounds{Space: SpaceKV, Limit: 3})
	defer it.Close()
	if len(it.rows) != 3 {
		t.Errorf("%d rows copied for a limit of 3", len(it.rows))
	}
}

func TestPutAndGetCopyValues(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	key, value := []byte("k"), []byte("value")
	if err := o.Put(SpaceKV, key, value, false); err != nil {
		t.Fatal(err)
	}
	key[0], value[0] = 'x', 'x'
	o.want(t, "k", "value")
	for range 2 {
		v, _, err := o.Get(nil, SpaceKV, []byte("k"))
		if err != nil {
			t.Fatal(err)
		}
		v[0] = 'x'
		o.want(t, "k", "value")
		o.commit(t)
	}
}

// kinds counts the operations of a record that holds one batch.
func kinds(t *testing.T, o live) map[pebble.InternalKeyKind]int {
	t.Helper()
	rec := record{batch: pebbleDB(o.store).NewBatch()}
	defer rec.batch.Close()
	rec.parts = []part{{r: o.Range, g: o.g}}
	if err := rec.parts[0].readSlot(); err != nil {
		t.Fatal(err)
	}
	if err := rec.encode(); err != nil {
		t.Fatal(err)
	}
	count := make(map[pebble.InternalKeyKind]int)
	for r := pebbleBatch(&rec).Reader(); ; {
		kind, _, _, ok, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return count
		}
		count[kind]++
	}
}

func TestDeleteAllDeletesByPointsOrRange(t *testing.T) {
	for _, c := range []struct{ rows, points, ranges int }{
		{0, 0, 0},
		{3, 3, 0},
		{maxPointDeletes, maxPointDeletes, 0},
		{maxPointDeletes + 1, 0, 1},
		{3 * maxPointDeletes, 0, 1},
	} {
		s := open(t, NewMemFS(), Options{})
		o := s.live("c", "a")
		for i := range c.rows {
			o.put(t, fmt.Sprint(i), "v")
		}
		o.commit(t)
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		o.put(t, "after", "1")
		got := kinds(t, o)
		if got[pebble.InternalKeyKindDelete] != c.points || got[pebble.InternalKeyKindRangeDelete] != c.ranges || got[pebble.InternalKeyKindSet] != 1 {
			t.Errorf("%d rows: %v", c.rows, got)
		}
		o.commit(t)
		rows, err := collect(o.Scan(Bounds{Space: SpaceKV}))
		if err != nil || !slices.Equal(rows, []string{"after=1"}) {
			t.Errorf("%d rows: %q, %v survived", c.rows, rows, err)
		}
	}
}

// TestSlotCostIsIndependentOfEarlierSettings checks that a record does not grow with earlier settings.
func TestSlotCostIsIndependentOfEarlierSettings(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	for i := range 100 {
		o.SetSlot(Slot{Due: due(int64(i)), AtStart: true})
		if i == 50 {
			o.commit(t)
		}
	}
	got := kinds(t, o)
	if got[pebble.InternalKeyKindSet] != 3 || got[pebble.InternalKeyKindDelete] != 2 {
		t.Errorf("operations %v, want 3 sets and 2 deletes", got)
	}
}

func TestIteratorsEndWithTheStore(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	for i := range 100 {
		o.put(t, fmt.Sprintf("%02d", i), strings.Repeat("v", 100))
	}
	o.commit(t)
	var its []*Iterator
	for range 5 {
		it := o.Scan(Bounds{Space: SpaceKV})
		it.Next()
		its = append(its, it)
	}
	its[2].Close()
	its[2].Close()
	its[0].Close()
	its[4].Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 3} {
		it := its[i]
		if string(it.Key()) != "00" || len(it.Value()) != 100 {
			t.Errorf("the current row is gone: %q", it.Key())
		}
		if it.Next() || !errors.Is(it.Err(), ErrFenced) {
			t.Errorf("Next after Close: %v", it.Err())
		}
		it.Close()
	}
}

// TestCloseWithConcurrentReaders closes a store that goroutines are reading from: Pebble
// would panic.
func TestCloseWithConcurrentReaders(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	done := make(chan error)
	const readers = 3
	for i := range readers {
		o := s.live("c", fmt.Sprint(i))
		for i := range 50 {
			o.put(t, fmt.Sprint(i), "v")
		}
		o.commit(t)
		go func() {
			var err error
			for err == nil {
				_, _, getErr := o.Get(nil, SpaceKV, []byte("1"))
				_, scanErr := collect(o.Scan(Bounds{Space: SpaceKV}))
				err = errors.Join(getErr, scanErr)
			}
			done <- err
		}()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range readers {
		if err := <-done; !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
	}
}

// TestIteratorSlicesAreInvalidAfterNext looks at a row's slices one step too late, in
// builds that make the checks: a row of Pebble, and one that is not durable.
func TestIteratorSlicesAreInvalidAfterNext(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.put(t, "a", "x")
	o.commit(t)
	o.put(t, "b", "y")
	it := o.Scan(Bounds{Space: SpaceKV})
	var rows [][2][]byte
	for it.Next() {
		rows = append(rows, [2][]byte{it.Key(), it.Value()})
	}
	if err := it.Close(); err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, r := range rows {
		if got := fmt.Sprintf("%s=%s", r[0], r[1]); invariants.Enabled && got != "\xcc=\xcc" {
			t.Errorf("row %d can still be read: %q", i, got)
		}
	}
}
