package objectstore

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestStandbyLagTimeAfterTwoGaps has two gaps in the archive that were found at different times, and closes the first one.
func TestStandbyLagTimeAfterTwoGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := archiveOf(t, 15)
		list, err := whole.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		records := parseObjects(list).records
		if len(records) < 4 {
			t.Fatalf("%d objects", len(records))
		}
		a := whole.clone()
		for _, o := range records {
			delete(a.objects, o.Name.String())
		}
		y := standbyOf(t, NewMemFS(), a)
		put := func(i int) {
			a.set(func(a *memArchive) { a.objects[records[i].String()] = whole.objects[records[i].String()] })
		}
		wantLag := func(when string, want time.Duration) {
			t.Helper()
			if err := y.runPass(t); err != nil {
				t.Fatal(err)
			}
			if st := y.Status(); st.LagTime != want {
				t.Errorf("%s: %d records for %v, want %v", when, st.Lag, st.LagTime, want)
			}
		}
		wantLag("the base", 0)
		put(1)
		wantLag("without object 0", 0)
		time.Sleep(10 * time.Second)
		put(3)
		wantLag("without objects 0 and 2", 10*time.Second)
		time.Sleep(10 * time.Second)
		put(0)
		wantLag("without object 2", 10*time.Second)
		time.Sleep(time.Second)
		put(2)
		wantLag("complete", 0)
	})
}

func TestLagClock(t *testing.T) {
	begun := time.Unix(1, 0)
	at := func(second int) time.Time { return begun.Add(time.Duration(second) * time.Second) }
	var c lagClock
	want := func(when string, second, lag int) {
		t.Helper()
		if got := c.lag(at(second)); got != time.Duration(lag)*time.Second {
			t.Errorf("%s: %v, want %d s; the marks are %v", when, got, lag, c.marks)
		}
	}
	c.listed(10, 0, at(0))
	c.listed(20, 0, at(1))
	c.listed(30, 0, at(2))
	want("three lists", 3, 3)
	c.applied(10)
	want("the first is applied", 3, 2)
	c.listed(15, 10, at(4)) // it lost records
	want("records are lost", 4, 3)
	c.listed(25, 10, at(5))
	c.applied(15)
	want("they came again", 6, 1)
	c.listed(0, 15, at(7))
	want("all are lost", 7, 0)
	for i := range 10 * maxLagMarks {
		c.listed(uint64(100+i), 15, at(i))
	}
	want("many lists", 10*maxLagMarks, 10*maxLagMarks)
	if len(c.marks) > maxLagMarks || !slices.IsSortedFunc(c.marks, func(x, y lagMark) int { return x.at.Compare(y.at) }) {
		t.Errorf("%d marks: %v", len(c.marks), c.marks)
	}
	c.applied(uint64(99 + 10*maxLagMarks))
	want("all are applied", 0, 0)
}
