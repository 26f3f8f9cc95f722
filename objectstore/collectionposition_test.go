package objectstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/dohost/dohost/internal/errkind"
)

var forked = &Collection{Name: "orders", Feed: Feed{Name: "f"}}

// grow appends entries to the feed of forked, and returns its end.
func (l live) grow(t failer, entries int) Position {
	t.Helper()
	for range entries {
		l.putRow(t, forked, "x", "v")
	}
	l.commit(t)
	_, end, err := l.FeedEnds("f")
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// wantFeed reads the feed from a position. reset reports whether this must fail, and entries is the number of entries that it must return.
func (l live) wantFeed(t *testing.T, when string, at Position, reset bool, entries int) {
	t.Helper()
	changes, err := l.ReadFeed("f", at, 0, 0)
	e, failed := errors.AsType[*FeedError](err)
	if failed != reset || failed && !e.Reset || !failed && err != nil || len(changes) != entries {
		t.Errorf("%s: from %v read %d entries, %v; want %d, reset %t", when, at, len(changes), err, entries, reset)
	}
	if _, _, err := l.FeedGrown("f", at); errors.Is(err, errkind.ErrNotFound) != reset {
		t.Errorf("%s: grown after %v: %v; want reset %t", when, at, err, reset)
	}
	if failed {
		if _, err := l.ReadFeed("f", e.First, 0, 0); err != nil {
			t.Errorf("%s: from the position that the error names: %v", when, err)
		}
	}
}

func TestFeedRefusesAPositionAfterItsEnd(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	o.wantFeed(t, "empty", Position{}, false, 0)
	o.wantFeed(t, "empty", Position{Offset: 1}, true, 0)
	end := o.grow(t, 3)
	for _, log := range []string{"", end.Log} {
		for _, offset := range []uint64{4, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
			o.wantFeed(t, "three entries", Position{log, offset}, true, 0)
		}
		o.wantFeed(t, "three entries", Position{log, 3}, false, 0)
		o.wantFeed(t, "three entries", Position{log, 1}, false, 2)
	}
	o.wantFeed(t, "no ULID", Position{"x", 1}, true, 0)
}

// TestFeedDetectsLostHistoryAfterRestore reads a feed and its restored copy from positions of both.
func TestFeedDetectsLostHistoryAfterRestore(t *testing.T) {
	fs := NewMemFS()
	o := open(t, fs, Options{}).live("c", "a")
	shared := o.grow(t, 2)
	if err := o.Range.store.Backup(t.Context(), "/backup"); err != nil {
		t.Fatal(err)
	}
	lost := o.grow(t, 3)
	s, err := Open("/backup", &Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	b := s.live("c", "a")
	b.wantFeed(t, "restored", shared, false, 0)
	b.wantFeed(t, "restored, shorter", lost, true, 0)
	for _, entries := range []int{1, 2, 4} { // in the end longer than the lost history
		end := b.grow(t, entries)
		when := fmt.Sprintf("restored, %d entries", end.Offset)
		b.wantFeed(t, when, lost, true, 0)
		b.wantFeed(t, when, shared, false, int(end.Offset-2))
		b.wantFeed(t, when, Position{lost.Log, 3}, true, 0)
		b.wantFeed(t, when, Position{end.Log, 1}, false, int(end.Offset-1))
		o.wantFeed(t, "original", end, true, 0)
	}
	o.wantFeed(t, "original", shared, false, 3)
	wantConsistent(t, s)
}

// TestFeedDetectsOtherHistoryAfterImport imports an object into the same store: both continue one history.
func TestFeedDetectsOtherHistoryAfterImport(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	shared := o.grow(t, 2)
	stream := export(t, s, o.id)
	lost := o.grow(t, 3)
	if err := s.Import(t.Context(), ID{"c", "b"}, bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	b := s.live("c", "b")
	b.wantFeed(t, "imported", shared, false, 0)
	b.wantFeed(t, "imported, shorter", lost, true, 0)
	end := b.grow(t, 5)
	b.wantFeed(t, "imported, longer", lost, true, 0)
	b.wantFeed(t, "imported, longer", shared, false, 5)
	o.wantFeed(t, "original", end, true, 0)
	o.wantFeed(t, "original", shared, false, 3)
	wantConsistent(t, s)
}

// TestFeedLogListIsBounded restores a feed again and again.
func TestFeedLogListIsBounded(t *testing.T) {
	o := open(t, NewMemFS(), Options{}).live("c", "a")
	first := o.grow(t, 1)
	for i := range 3 * maxFeedLogs {
		o.r.store.identity.Fork = uint32(1000 + i)
		o.Batch.feeds = nil
		o.grow(t, 1)
	}
	f, err := o.feed("f")
	if err != nil || len(f.logs) != maxFeedLogs {
		t.Errorf("the feed remembers %d logs, %v; want %d", len(f.logs), err, maxFeedLogs)
	}
	o.wantFeed(t, "after many forks", first, true, 0)
	// A feed trimmed to one entry does not need the logs before it.
	forked := *forked
	forked.Feed.Keep = 1
	for range 3 * maxFeedLogs {
		o.putRow(t, &forked, "x", "v")
	}
	o.commit(t)
	o.r.store.identity.Fork = 7
	o.grow(t, 1)
	if f, err := o.feed("f"); err != nil || len(f.logs) != 2 {
		t.Errorf("the trimmed feed remembers %d logs, %v; want 2", len(f.logs), err)
	}
}

// TestFeedPositionJSONIsStable checks the form that feed.go documents.
func TestFeedPositionJSONIsStable(t *testing.T) {
	const text = `{"Log":"01J0C1WSC8TZQ0QH1R6Z8B4M7K","Offset":12}`
	b, err := json.Marshal(Position{"01J0C1WSC8TZQ0QH1R6Z8B4M7K", 12})
	if err != nil || string(b) != text {
		t.Errorf("%s, %v; want %s", b, err, text)
	}
	var back Position
	if err := json.Unmarshal([]byte(text), &back); err != nil || back != (Position{"01J0C1WSC8TZQ0QH1R6Z8B4M7K", 12}) {
		t.Errorf("read back as %v, %v", back, err)
	}
}
