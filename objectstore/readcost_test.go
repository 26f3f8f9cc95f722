package objectstore

import (
	"fmt"
	"testing"
)

// crowded is a store of a thousand objects of two classes, with three rows and an alarm each. The first object also
// has a collection of a thousand rows.
func crowded(t *testing.T, reads *Reads) *Store {
	s := open(t, NewMemFS(), Options{Reads: reads})
	for i := range 1000 {
		o := s.live(fmt.Sprint("class", i%2), fmt.Sprintf("%04d", i))
		for _, key := range []string{"x", "y", "z"} {
			o.put(t, key, "1")
		}
		o.SetSlot(Slot{Due: due(int64(i)), AtStart: true})
		o.commit(t)
	}
	o := s.live("class0", "0000")
	for i := range 1000 {
		o.putRow(t, orders, fmt.Sprintf("%04d", i), "v", fmt.Sprintf("tenth=%d", i%10))
	}
	o.commit(t)
	return s
}

// page reads a page of a class.
func (sn *Snapshot) page(class, after string, limit int) (n int, err error) {
	for _, err = range sn.Objects(class, after) {
		if n++; err != nil || n == limit {
			break
		}
	}
	return n, err
}

// rows counts the results of a query of the first object's collection.
func (s *Store) rows(q RowQuery) (n int, err error) {
	it := s.live("class0", "0000").QueryRows(orders, q)
	for it.Next() {
		n++
	}
	return n, it.Close()
}

// TestReadCostFollowsResultSize counts the engine's work for reads in a crowded store. It does not depend on the number
// of other objects and rows.
func TestReadCostFollowsResultSize(t *testing.T) {
	var reads Reads
	s := crowded(t, &reads)
	sn := s.snapshot(t)
	first := ID{"class0", "0000"}
	many := func(as []Alarm, err error) (int, error) { return len(as), err }
	found := func(ok bool, err error) (int, error) {
		if !ok {
			return 0, err
		}
		return 1, err
	}
	for _, c := range []struct {
		name        string
		read        func() (n int, err error)
		n           int
		gets, steps int64
	}{
		// One step more finds that there is a next one.
		{"alarms", func() (int, error) { as, _, err := sn.Alarms("class0", AlarmPos{}, 20); return many(as, err) }, 20, 0, 21},
		{"alarms after one", func() (int, error) {
			as, _, err := sn.Alarms("class1", Alarm{ID: ID{"class1", "0499"}, Due: due(499)}.Pos(), 20)
			return many(as, err)
		}, 20, 0, 21},
		{"classes with alarms", func() (int, error) { cs, err := sn.AlarmClasses(); return len(cs), err }, 2, 0, 2},
		{"alarms at start", func() (int, error) { return many(sn.StartAlarms("class0", "", 20)) }, 20, 0, 21},
		{"alarms at start after one", func() (int, error) { return many(sn.StartAlarms("class0", "0500", 20)) }, 20, 0, 21},
		{"classes", func() (n int, err error) {
			for _, err = range sn.Classes() {
				n++
			}
			return n, err
		}, 2, 0, 2},
		{"a page of a class", func() (int, error) { return sn.page("class0", "", 20) }, 20, 0, 20},
		{"a page after one", func() (int, error) { return sn.page("class0", "0500", 20) }, 20, 0, 20},
		{"whether an object exists", func() (int, error) { return found(sn.Exists(first)) }, 1, 0, 1},
		{"whether an object has rows", func() (int, error) { return found(s.HasRows(first)) }, 1, 0, 1},
		{"an object's alarm", func() (int, error) { _, ok, err := sn.Slot(first); return found(ok, err) }, 1, 1, 0},
		{"rows", func() (int, error) { return s.rows(RowQuery{Start: []byte("0900"), Limit: 20}) }, 20, 0, 20},
		{"rows by an index", func() (int, error) {
			return s.rows(RowQuery{Index: "tenth", Equal: []byte("7"), Limit: 20})
		}, 20, 20, 20},
		{"rows of a snapshot by an index", func() (n int, err error) {
			for _, err = range sn.Rows(ID{"class0", "0000"}, orders.Name, RowQuery{Index: "tenth", Equal: []byte("7"), Limit: 20}) {
				n++
			}
			return n, err
		}, 20, 20, 20},
		{"a number of rows", func() (int, error) {
			return s.live("class0", "0000").CountRows(orders, RowQuery{Index: "tenth", Equal: []byte("7")})
		}, 100, 0, 100},
	} {
		gets, walks, steps := reads.Gets.Load(), reads.Walks.Load(), reads.Steps.Load()
		n, err := c.read()
		gets, walks, steps = reads.Gets.Load()-gets, reads.Walks.Load()-walks, reads.Steps.Load()-steps
		if n != c.n || err != nil || gets != c.gets || walks != min(c.steps, 1) || steps != c.steps {
			t.Errorf("%s: %d, %v by %d look-ups and %d steps of %d iterators; want %d by %d and %d", c.name,
				n, err, gets, steps, walks, c.n, c.gets, c.steps)
		}
	}
}
