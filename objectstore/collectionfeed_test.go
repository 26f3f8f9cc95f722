package objectstore

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// offsets reads a feed from the first entry that is there.
func (l live) offsets(t failer, feed string) (got []uint64) {
	t.Helper()
	start, _, err := l.FeedEnds(feed)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := l.ReadFeed(feed, start, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		got = append(got, c.Offset)
	}
	return got
}

func TestFeedIsTrimmedByCount(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	for _, c := range []struct {
		keep, appends int
		want          string
	}{
		{0, 6, "[1 2 3 4 5 6]"},
		{3, 1, "[3 4 5 6 7]"}, // at most two go with an append
		{3, 1, "[5 6 7 8]"},
		{3, 2, "[8 9 10]"},
		{1, 3, "[13]"},
		{3, 1, "[13 14]"},
	} {
		for range c.appends {
			o.putRow(t, &Collection{Name: "orders", Feed: Feed{Name: "f", Keep: c.keep}}, "x", "v")
		}
		if got := fmt.Sprint(o.offsets(t, "f")); got != c.want {
			t.Errorf("keeping %d: %s; want %s", c.keep, got, c.want)
		}
		o.commit(t)
	}
	_, err := o.ReadFeed("f", Position{Offset: 7}, 0, 0)
	e, ok := errors.AsType[*FeedError](err)
	if !ok || e.First.Offset != 12 || e.Reset {
		t.Errorf("reading what is gone: %v", err)
	}
}

func TestFeedIsTrimmedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, NewMemFS(), Options{})
		defer s.Abandon()
		o := s.live("c", "a")
		hour := &Collection{Name: "orders", Feed: Feed{Name: "f", MaxAge: time.Hour}}
		for _, c := range []struct {
			pause time.Duration
			want  string
		}{
			{0, "[1]"},
			{time.Minute, "[1 2]"},
			{59 * time.Minute, "[1 2 3]"},
			{time.Second, "[2 3 4]"},
			{time.Minute, "[3 4 5]"},
			{2 * time.Hour, "[5 6]"},
			{time.Second, "[6 7]"},
			{2 * time.Hour, "[8]"},
			{2 * time.Hour, "[9]"},
		} {
			time.Sleep(c.pause)
			o.putRow(t, hour, "x", "v")
			if got := fmt.Sprint(o.offsets(t, "f")); got != c.want {
				t.Errorf("after %v: %s; want %s", c.pause, got, c.want)
			}
			o.commit(t)
			o = live{Range: o.Range, Batch: o.NewBatch(o.e), e: o.e}
		}
	})
}

func TestFeedResetIsReportedToReaders(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
	o.putRow(t, logged, "x", "v")
	_, end, err := o.FeedEnds("f")
	if err != nil || end.Offset != 1 {
		t.Fatalf("ends at %v, %v", end, err)
	}
	if err := o.DeleteAll(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // without a log, and with another
		_, err := o.ReadFeed("f", end, 0, 0)
		if e, ok := errors.AsType[*FeedError](err); !ok || !e.Reset || e.At != end || e.First.Log == end.Log {
			t.Errorf("reading from the old log: %v", err)
		}
		o.putRow(t, logged, "x", "v")
		o.commit(t)
	}
	if got := fmt.Sprint(o.offsets(t, "f")); got != "[1 2]" {
		t.Errorf("the new log has %s", got)
	}
}

// TestFeedAppendWritesOneRow counts the rows that an append writes, and its searches for the feed's end.
func TestFeedAppendWritesOneRow(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
	o.putRow(t, logged, "0", "v")
	ends := o.feeds["f"]
	if ends == nil {
		t.Error("the end of the feed is not kept")
	}
	for i := range 3 {
		o.commit(t)
		o.putRow(t, logged, fmt.Sprint(i+1), "v")
		if n := len(o.g.set.rows); n != 2 {
			t.Errorf("an insert with a feed writes %d rows; want its own and the entry", n)
		}
		if o.feeds["f"] != ends {
			t.Error("the end of the feed was sought again")
		}
	}
}

func TestFeedReadReturnsDurableOrOwnEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		s := open(t, fs, Options{})
		defer s.Abandon()
		o := s.live("c", "a")
		logged := &Collection{Name: "orders", Feed: Feed{Name: "f"}}
		check := func(when, want string, ready, pending bool) {
			t.Helper()
			if got := fmt.Sprint(o.offsets(t, "f")); got != want {
				t.Errorf("%s: read %s; want %s", when, got, want)
			}
			isReady, isPending, err := o.FeedGrown("f", Position{Offset: 1})
			if err != nil || isReady != ready || isPending != pending {
				t.Errorf("%s: grown behind 1: %v, %v, %v; want %v, %v", when, isReady, isPending, err, ready, pending)
			}
		}
		commitBatch := func() {
			t.Helper()
			if err := o.Commit(o.Batch); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first one's record is in flight
		}
		o.putRow(t, logged, "x", "v")
		o.commit(t)
		check("nothing new", "[1]", false, false)
		o.putRow(t, logged, "x", "v")
		check("in its own batch", "[1 2]", true, false)
		release := fs.HoldSyncs()
		commitBatch()
		check("in flight", "[1]", false, true)
		o.putRow(t, logged, "x", "v")
		check("behind one in flight", "[1]", false, true)
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		o.putRow(t, logged, "x", "v")
		o.putRow(t, logged, "x", "v")
		check("after DeleteAll", "[1 2]", true, false)
		commitBatch()
		check("handed over after DeleteAll", "[]", false, true)
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		commitBatch()
		o.putRow(t, logged, "x", "v")
		o.putRow(t, logged, "x", "v")
		check("after a DeleteAll that hides what is in flight", "[1 2]", true, false)
		release()
		o.commit(t)
		check("durable", "[1 2]", true, false)
	})
}
