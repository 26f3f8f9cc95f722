package objectstore

import (
	"fmt"
	"slices"
	"testing"
)

// keepAllWalks has ranges keep the span before the first row of each scan, until the end of the test.
func keepAllWalks(t *testing.T) {
	t.Helper()
	before := longWalk
	longWalk = 1
	t.Cleanup(func() { longWalk = before })
}

func scanAll(t *testing.T, o live, b Bounds) []string {
	t.Helper()
	b.Space = SpaceKV
	rows, err := collect(o.Scan(b))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestQueueIsReadAtOnePlace appends rows, and reads and deletes the first one, often enough for many deleted rows in the memtable.
func TestQueueIsReadAtOnePlace(t *testing.T) {
	const rows, waiting = 3000, 10
	for _, first := range []Bounds{{Limit: 1}, {Prefix: []byte("q"), Limit: 1}, {Start: []byte("p"), End: []byte("r"), Limit: 1}} {
		var reads Reads
		s := open(t, NewMemFS(), Options{Reads: &reads})
		o := s.live("c", "a")
		for i := range rows {
			o.put(t, fmt.Sprintf("q%06d", i), "")
			if i < waiting {
				continue
			}
			want := fmt.Sprintf("q%06d", i-waiting)
			if got := scanAll(t, o, first); !slices.Equal(got, []string{want + "="}) {
				t.Fatalf("the first row is %q, want %s", got, want)
			}
			if err := o.Delete(SpaceKV, []byte(want), false); err != nil {
				t.Fatal(err)
			}
			o.commit(t)
		}
		if steps := reads.Steps.Load(); steps > rows*2*int64(longWalk) {
			t.Errorf("%d scans came upon %d entries", rows, steps)
		}
	}
}

// TestScanFindsRowsWithinAnEmptySpan writes into a span that a scan has found empty: the row is found in memory, in a record in flight and in the engine.
func TestScanFindsRowsWithinAnEmptySpan(t *testing.T) {
	keepAllWalks(t)
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.put(t, "z", "")
	o.commit(t)
	if got := scanAll(t, o, Bounds{}); !slices.Equal(got, []string{"z="}) {
		t.Fatalf("the rows are %q", got)
	}
	var want []string
	for i, key := range []string{"m", "c", "x", "d", "a"} {
		want = append(want, key+"=")
		slices.Sort(want)
		all := append(slices.Clone(want), "z=")
		o.put(t, key, "")
		if got := scanAll(t, o, Bounds{}); !slices.Equal(got, all) {
			t.Errorf("%d: the rows with those of the batch are %q, want %q", i, got, all)
		}
		o.commit(t)
		for _, b := range []Bounds{{}, {Start: []byte("a")}, {Limit: len(all)}} {
			if got := scanAll(t, o, b); !slices.Equal(got, all) {
				t.Errorf("%d: the rows are %q, want %q", i, got, all)
			}
		}
	}
	if err := o.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	o.put(t, "b", "")
	o.commit(t)
	if got := scanAll(t, o, Bounds{}); !slices.Equal(got, []string{"b="}) {
		t.Errorf("the rows are %q", got)
	}
}

// TestScanOfThePastKeepsNoSpan has a scan that begins before a row is durable, and walks after that.
func TestScanOfThePastKeepsNoSpan(t *testing.T) {
	keepAllWalks(t)
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.put(t, "z", "")
	o.commit(t)
	old := o.Scan(Bounds{Space: SpaceKV})
	o.put(t, "m", "")
	o.commit(t)
	if !old.Next() || string(old.Key()) != "z" {
		t.Fatalf("the scan has %q first, %v", old.Key(), old.Err())
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if got := scanAll(t, o, Bounds{}); !slices.Equal(got, []string{"m=", "z="}) {
		t.Errorf("the rows are %q", got)
	}
}

// TestScansKeepFewSpans scans at more places than a range keeps.
func TestScansKeepFewSpans(t *testing.T) {
	keepAllWalks(t)
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	var all []string
	for i := range 10 * maxEmptySpans {
		o.put(t, fmt.Sprintf("k%02d", i), "")
		all = append(all, fmt.Sprintf("k%02d=", i))
	}
	o.commit(t)
	for i := range all {
		if got := scanAll(t, o, Bounds{Start: fmt.Appendf(nil, "k%02d0", i)}); !slices.Equal(got, all[i+1:]) {
			t.Errorf("%d: the rows are %q", i, got)
		}
	}
	if n := len(o.empty.list); n != maxEmptySpans {
		t.Errorf("the range keeps %d spans", n)
	}
	for i := range all { // neighbours become one span
		if err := o.Delete(SpaceKV, fmt.Appendf(nil, "k%02d", i), false); err != nil {
			t.Fatal(err)
		}
	}
	o.commit(t)
	if got := scanAll(t, o, Bounds{}); len(got) > 0 || len(o.empty.list) != 1 {
		t.Errorf("the rows are %q, with %d spans", got, len(o.empty.list))
	}
}
