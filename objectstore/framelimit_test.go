package objectstore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// spoilFrame gives a frame a content that is no frame.
func spoilFrame(t *testing.T, fs *FS, number uint64) {
	t.Helper()
	withoutArchive(t, fs, func(s *Store) {
		if err := pebbleDB(s).Set(frameKey(number), []byte("no frame"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamageOfTheNewestFrameIsAGap damages the newest frame of a store, its block or its content, while it waits for the archive. Three hosts
// ship after that; for a damaged block each one makes a base.
func TestDamageOfTheNewestFrameIsAGap(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, fs *FS, number uint64)
		bases  int
	}{
		"block": {func(t *testing.T, fs *FS, _ uint64) {
			withoutArchive(t, fs, func(*Store) {}) // flushes the log into a table
			flip(t, fs, damagedAt(t, noise(5000, 7)[4000:4100]))
		}, 4},
		"content": {spoilFrame, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, a := NewMemFS(), newMemArchive()
				s := shipTo(t, fs, a)
				put(t, s, "o", "n", "shipped")
				time.Sleep(2 * time.Second)
				shipped := s.Stats().Ship.Record
				a.set(func(a *memArchive) { a.refuse = errors.New("down") })
				put(t, s, "o", "n", "not shipped")
				put(t, s, "o", "big", noise(5000, 7))
				last := s.Stats().Ship.Record
				s.Abandon()
				c.damage(t, fs, last)
				lost := last
				a.set(func(a *memArchive) { a.refuse = nil })
				for host := range 3 {
					last = shipAfterDamage(t, fs, a, last, host)
				}
				if n := strings.Count(a.names(), ".end"); n != c.bases {
					t.Errorf("%d bases, want %d: %s", n, c.bases, a.names())
				}
				history(t, a) // no number is repeated
				for number, want := range map[uint64]string{shipped: "shipped", last - 1: "host 2 put 3", last: "host 2 put 4", 0: "host 2 put 4"} {
					r, _ := restored(t, a, RestorePoint{Record: number})
					r.live("c", "o").want(t, "n", want)
					r.Abandon()
				}
				_, err := Restore(t.Context(), a, restoredDir, RestorePoint{Record: lost}, &Options{FS: NewMemFS()})
				if !errors.Is(err, ErrNotArchived) && !errors.Is(err, ErrDamagedArchive) {
					t.Errorf("restoring the record of the damaged frame: %v", err)
				}
			})
		})
	}
}

// shipAfterDamage ships five records with another host, and returns the number of the last one. The first host of a test finds the
// damage.
func shipAfterDamage(t *testing.T, fs *FS, a Archive, last uint64, host int) uint64 {
	t.Helper()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(dir, &Options{FS: fs, Ship: &Shipping{Archive: a, Context: t.Context()}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Abandon()
	for i := range 5 {
		put(t, s, "o", "n", fmt.Sprint("host ", host, " put ", i))
		time.Sleep(2 * time.Second)
	}
	st := s.Stats()
	if sh := st.Ship; sh.Records != 0 || sh.Err != nil || sh.NeedsBase || sh.Shipped != sh.Record || sh.Record <= last {
		t.Errorf("host %d, after record %d: %+v", host, last, sh)
	}
	if found := strings.Contains(log.String(), "the newest frame of a record cannot be read"); host == 0 && (!found || st.Ship.Failures != 1 || st.Damaged != 1) {
		t.Errorf("%d failures, %d damaged: %s", st.Ship.Failures, st.Damaged, &log)
	}
	return st.Ship.Record
}

// TestFrameLimitIsBeyondAllFrames makes more records than a limit reserves, and damages the newest frame, whose number is the limit.
func TestFrameLimitIsBeyondAllFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		var last uint64
		for host := range 2 {
			s := shipTo(t, fs, a)
			for i := 0; ; i++ {
				put(t, s, "o", "n", fmt.Sprint(host, i))
				last = s.Stats().Ship.Record
				l, ok, err := s.readFrameLimit()
				if !ok || err != nil || l.number < last || l.number > last+frameLimitStep || l.fork != s.identity.Fork {
					t.Fatalf("after record %d the limit is %+v, %v, %v", last, l, ok, err)
				}
				if l.number == last && i > 10 {
					break
				}
			}
			time.Sleep(2 * time.Second)
			wantConsistent(t, s)
			s.Abandon()
		}
		spoilFrame(t, fs, last)
		a.onPut = func(string) error { return errors.New("down") }
		s := shipTo(t, fs, a) // the archive has no base of it when the next host begins
		put(t, s, "o", "n", "1")
		s.Abandon()
		a.onPut = nil
		shipAfterDamage(t, fs, a, last, 1)
		if states := history(t, a); states[last] == nil || states[last+1] != nil {
			t.Errorf("the archive has the states of %d and the next: %v, %v", last, states[last] != nil, states[last+1] != nil)
		}
	})
}

// TestDamageOfAFrameOfAnotherFork damages the newest frame in a backup: the history of the backup begins without it.
func TestDamageOfAFrameOfAnotherFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		s := shipTo(t, fs, newMemArchive())
		put(t, s, "o", "n", "1")
		if err := pebbleDB(s).Set(frameKey(s.Stats().Ship.Record), []byte("no frame"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		if err := s.Backup(t.Context(), restoredDir); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
		a := newMemArchive()
		s, err := Open(restoredDir, &Options{FS: fs, Ship: &Shipping{Archive: a, Context: t.Context()}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Abandon()
		put(t, s, "o", "n", "2")
		time.Sleep(2 * time.Second)
		wantShipped(t, s, a)
		if st := s.Stats().Ship; st.Record != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDamageOfTheNewestFrameWithoutALimit has a damaged limit: the number of the newest frame is not known, so the host does not start.
func TestDamageOfTheNewestFrameWithoutALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, a := NewMemFS(), newMemArchive()
		s := shipTo(t, fs, a)
		put(t, s, "o", "n", "1")
		last := s.Stats().Ship.Record
		if err := pebbleDB(s).Set(frameLimitKey, []byte("no limit"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
		s = shipTo(t, fs, a) // the first record makes another one
		if l, ok, err := s.readFrameLimit(); !ok || err != nil || l.number <= last {
			t.Errorf("the limit is %+v, %v, %v", l, ok, err)
		}
		if err := pebbleDB(s).Set(frameLimitKey, []byte("no limit"), pebble.Sync); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
		spoilFrame(t, fs, last+1)
		if _, err := Open(dir, &Options{FS: fs, Ship: &Shipping{Archive: a, Context: t.Context()}}); !errors.Is(err, ErrFormat) {
			t.Errorf("Open: %v", err)
		}
		withoutArchive(t, fs, func(s *Store) { s.live("c", "o").want(t, "n", "1") })
	})
}
