package objectstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wantShipped checks that the newest state of the archive is that of the store, which ships no more then.
func wantShipped(t *testing.T, s *Store, a *memArchive) {
	t.Helper()
	st := s.Stats().Ship
	if st.Records != 0 || st.Bytes != 0 || st.Lag != 0 || st.Err != nil || st.NeedsBase || st.Shipped != st.Record {
		t.Errorf("not all is shipped: %+v", st)
	}
	got := history(t, a)[st.Record]
	delete(got, "h")
	if want := rowsOf(t, s); !maps.Equal(got, want) {
		t.Errorf("the archive has %q as of %d, want %q", got, st.Record, want)
	}
}

// TestArchiveOutageDelaysNoCommit lets the archive refuse for an hour of commits.
func TestArchiveOutageDelaysNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMemArchive()
		s := shipTo(t, NewMemFS(), a)
		defer s.Abandon()
		put(t, s, "o", "n", "0")
		time.Sleep(2 * time.Second)
		wantShipped(t, s, a)
		down := errors.New("the archive is down")
		a.set(func(a *memArchive) { a.refuse = down })
		for i := range 60 {
			start := time.Now()
			put(t, s, "o", "n", fmt.Sprint(i))
			if waited := time.Since(start); waited > 0 {
				t.Fatalf("commit %d waited %v", i, waited)
			}
			time.Sleep(time.Minute)
		}
		st := s.Stats().Ship
		if st.Records != 60 || st.Bytes < 60*121 || st.Lag < time.Hour-time.Minute || st.Lag > time.Hour || !errors.Is(st.Err, down) {
			t.Errorf("while the archive is down: %+v", st)
		}
		if st.Failures < 50 || st.Failures > 80 {
			t.Errorf("%d attempts in an hour", st.Failures)
		}
		a.set(func(a *memArchive) { a.refuse = nil })
		time.Sleep(maxShipRetry + time.Second)
		wantShipped(t, s, a)
	})
}

// TestArchivePutsWithLostAnswersLeaveNoGapAndNoRepetition has puts that succeed with an error, also as the last act of a host.
func TestArchivePutsWithLostAnswersLeaveNoGapAndNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		for host := range 4 {
			a.set(func(a *memArchive) { a.lost = 2 })
			s := shipTo(t, fs, a)
			for i := range 5 {
				put(t, s, "o", "n", fmt.Sprint(host, i))
				time.Sleep(700 * time.Millisecond)
			}
			a.set(func(a *memArchive) { a.lost = 1 })
			put(t, s, "o", "n", "last")
			time.Sleep(1500 * time.Millisecond)
			if host < 3 {
				s.Abandon()
				continue
			}
			time.Sleep(time.Minute)
			wantShipped(t, s, a)
			s.Abandon()
		}
		if n := strings.Count(a.names(), ".end"); n != 1 {
			t.Errorf("%d bases: %s", n, a.names())
		}
	})
}

// TestBacklogThatIsFullIsReplacedByABase lets more frames wait than the store keeps.
func TestBacklogThatIsFullIsReplacedByABase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newMemArchive()
		s := shipTo(t, NewMemFS(), a, func(sh *Shipping) { sh.Backlog = 20 << 10 })
		defer s.Abandon()
		put(t, s, "o", "n", "first")
		time.Sleep(2 * time.Second)
		before := s.Stats().Ship.Record
		a.set(func(a *memArchive) { a.refuse = errors.New("down") })
		for i := range 50 {
			put(t, s, "o", "n", strings.Repeat(fmt.Sprint(i%10), 1000))
			time.Sleep(1100 * time.Millisecond) // after 1 s the shipper reads the first of these records, and keeps it
			if st := s.Stats().Ship; st.Bytes > 22<<10 {
				t.Fatalf("%d bytes wait", st.Bytes)
			}
		}
		if lower, upper := frameBounds(); keysBetween(t, s, lower, upper) > 20 {
			t.Errorf("the store keeps %d frames", keysBetween(t, s, lower, upper))
		}
		a.set(func(a *memArchive) { a.refuse = nil })
		time.Sleep(2 * time.Minute)
		put(t, s, "o", "n", "last")
		time.Sleep(2 * time.Second)
		wantShipped(t, s, a)
		states := history(t, a)
		if states[before] == nil || states[before+2] != nil || len(states) > 30 {
			t.Errorf("the archive has %d states", len(states))
		}
		_, err := Restore(t.Context(), a, restoredDir, RestorePoint{Record: before + 2}, &Options{FS: NewMemFS()})
		if !errors.Is(err, ErrNotArchived) && !errors.Is(err, ErrDamagedArchive) {
			t.Errorf("restoring a record that was dropped: %v", err)
		}
	})
}

// keysBetween counts the durable keys of a range.
func keysBetween(t *testing.T, s *Store, lower, upper []byte) (n int) {
	t.Helper()
	sn, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	w, err := sn.walk(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ok, err := w.first()
	for ; ok && err == nil; ok, err = w.next() {
		n++
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFramesThatWereShippedAreDeleted counts the frames that stay in the store.
func TestFramesThatWereShippedAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		for range 2 {
			s := shipTo(t, fs, a)
			for i := range 40 {
				put(t, s, "o", "n", fmt.Sprint(i))
				time.Sleep(time.Second)
			}
			lower, upper := frameBounds()
			if n := keysBetween(t, s, lower, upper); n < 1 || n > 4 {
				t.Errorf("the store keeps %d frames", n)
			}
			wantConsistent(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestHostWithoutArchiveMakesAGap lets a host that does not ship write between two that do.
func TestHostWithoutArchiveMakesAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fs, a)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		a.set(func(a *memArchive) { a.refuse = errors.New("down") })
		put(t, s, "o", "n", "2")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		unshipped := s.Stats().Ship.Record
		a.set(func(a *memArchive) { a.refuse = nil })
		withoutArchive(t, fs, func(s *Store) { put(t, s, "o", "n", "3") })
		s = shipTo(t, fs, a)
		put(t, s, "o", "n", "4")
		time.Sleep(5 * time.Second)
		wantShipped(t, s, a)
		states := history(t, a)
		if states[unshipped] == nil || states[unshipped+1] != nil || strings.Count(a.names(), ".end") != 2 {
			t.Errorf("after record %d: %s", unshipped, a.names())
		}
		s.Abandon()
		for number := range states {
			s, _ := restored(t, a, RestorePoint{Record: number})
			s.Abandon()
		}
	})
}

// TestArchiveOfAnotherHistoryIsRefused ships histories that do not continue that of the archive.
func TestArchiveOfAnotherHistoryIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fs, a)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		early := fs.Crash(100, 1)
		put(t, s, "o", "n", "2")
		if err := s.Backup(t.Context(), "/backup"); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		refused := func(name, dir string, fs *FS, text string) {
			t.Helper()
			s, err := Open(dir, &Options{FS: fs, Ship: &Shipping{Archive: a, Context: context.Background()}})
			if !errors.Is(err, ErrForeignArchive) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				s.Abandon()
			}
		}
		refused("another store", dir, NewMemFS(), "the archive is of")
		refused("a backup", "/backup", fs, "the archive is of")
		refused("an older copy", dir, early, "only up to")
		// The older copy makes as many records, and then has others with the numbers of the archive. It keeps their frames, since
		// they cannot be shipped.
		unreachable := newMemArchive()
		unreachable.set(func(a *memArchive) { a.refuse = errDisk })
		s = shipTo(t, early, unreachable)
		for i := range 9 {
			put(t, s, "o", "m", fmt.Sprint(i))
		}
		s.Abandon()
		refused("another history", dir, early, "differs from the record of this store")
		rs, _ := restored(t, a, RestorePoint{})
		rs.Abandon()
		s = shipTo(t, fs, a)
		put(t, s, "o", "n", "3")
		time.Sleep(2 * time.Second)
		wantShipped(t, s, a)
		s.Abandon()
	})
}

// TestRecordsAreNotShippedBeforeTheyAreDurable delays the sync of a record, and then fails the sync.
func TestRecordsAreNotShippedBeforeTheyAreDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fs, a)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		names := a.names()
		release := fs.HoldSyncs()
		o := s.live("c", "o")
		o.put(t, "n", "2")
		if err := o.Commit(o.Batch); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := a.names(); got != names || s.Stats().Ship.Records != 0 {
			t.Errorf("a record that is not durable is shipped: %s", got)
		}
		fs.FailSyncs(errors.New("disk failure"))
		release()
		time.Sleep(10 * time.Second)
		if got := a.names(); got != names || s.Err() == nil {
			t.Errorf("after a failed sync: %s, %v", got, s.Err())
		}
	})
}

// hungArchive has a Put that ignores its context.
type hungArchive struct {
	*memArchive
	hung chan struct{}
}

func (a hungArchive) Put(context.Context, string, []byte) error {
	<-a.hung
	return nil
}

func TestCloseShipsTheNewestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fs, a)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		put(t, s, "o", "n", "2")
		start := time.Now()
		if err := s.Close(); err != nil || time.Since(start) > 0 {
			t.Fatalf("Close took %v: %v", time.Since(start), err)
		}
		if st := s.Stats().Ship; st.Records != 0 || history(t, a)[st.Record] == nil {
			t.Errorf("after Close: %+v", st)
		}
		h := hungArchive{newMemArchive(), make(chan struct{})}
		s = shipTo(t, NewMemFS(), h)
		put(t, s, "o", "n", "1")
		time.Sleep(2 * time.Second)
		start = time.Now()
		if err := s.Close(); err != nil || time.Since(start) != shipCloseTime {
			t.Errorf("with an archive that does not answer Close took %v: %v", time.Since(start), err)
		}
		close(h.hung)
		synctest.Wait()
	})
}

// TestBasesFollowTheGrowthOfTheArchive makes a base for each few records, of several parts.
func TestBasesFollowTheGrowthOfTheArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		var parts int
		a.onPut = func(name string) error {
			if strings.Contains(name, ".base.") {
				if parts++; parts%3 == 0 {
					return errors.New("a fault")
				}
			}
			return nil
		}
		for range 2 {
			s := shipTo(t, fs, a, func(sh *Shipping) { sh.BaseAfter, sh.part, sh.shipment = 1, 1000, 2000 })
			for i := range 30 {
				for j := range 3 {
					put(t, s, fmt.Sprint("big", i%2, j), "n", strings.Repeat(fmt.Sprint(i%10), 400))
				}
				time.Sleep(1100 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			wantShipped(t, s, a)
			s.Abandon()
		}
		list, err := a.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bases := parseObjects(list).bases
		if len(bases) < 3 || len(bases) > 12 || len(bases[len(bases)-1].parts) < 2 {
			t.Errorf("%d bases: %s", len(bases), a.names())
		}
		s, _ := restored(t, a, RestorePoint{})
		s.Abandon()
	})
}

// TestDamageOfAWaitingFrameIsAGap damages a frame that waits in the store: the first one after the records of the archive, or another one.
func TestDamageOfAWaitingFrameIsAGap(t *testing.T) {
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			fs, a := NewMemFS(), newMemArchive()
			s := shipTo(t, fs, a)
			put(t, s, "o", "n", "shipped")
			time.Sleep(2 * time.Second)
			a.set(func(a *memArchive) { a.refuse = errors.New("down") })
			before, key, value := s.Stats().Ship.Record, "n", "shipped" // the last one before the damage
			if !first {
				key, value = "big", noise(5000, 6)
				put(t, s, "o", key, value)
				before = s.Stats().Ship.Record
			}
			for i := range uint64(3) {
				put(t, s, "o", "big", noise(5000, 7+i))
			}
			s.Abandon()
			s = shipTo(t, fs, a) // flushes the log into a table
			s.Abandon()
			flip(t, fs, damagedAt(t, noise(5000, 7)[4000:4100]))
			a.set(func(a *memArchive) { a.refuse = nil })
			s = shipTo(t, fs, a)
			defer s.Abandon()
			time.Sleep(2 * baseDelay)
			for i := range 5 {
				put(t, s, "o", "n", fmt.Sprint(i))
				time.Sleep(5 * time.Second)
			}
			if st := s.Stats().Ship; st.Records != 0 || st.Err != nil || st.NeedsBase {
				t.Errorf("the first one: %v: %+v", first, st)
			}
			r, _ := restored(t, a, RestorePoint{})
			r.live("c", "o").want(t, "n", "4")
			r.Abandon()
			r, _ = restored(t, a, RestorePoint{Record: before})
			r.live("c", "o").want(t, key, value)
			r.Abandon()
			if n := strings.Count(a.names(), ".end"); n != 2 {
				t.Errorf("%d bases: %s", n, a.names())
			}
		})
	}
}
