package objectstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const standbyDir = "/standby"

// standbyOf opens a standby, which is closed when the test ends.
func standbyOf(t *testing.T, fs *FS, a Archive) *Standby {
	t.Helper()
	y, err := OpenStandby(standbyDir, a, &Options{FS: fs, MemTable: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := y.Close(); err != nil {
			t.Error(err)
		}
	})
	return y
}

// runPass runs one pass over the archive.
func (y *Standby) runPass(t *testing.T) error {
	t.Helper()
	_, err := y.pass(t.Context())
	return err
}

// wantState compares the rows of the standby with the archive's history, which is computed without the codec.
func (y *Standby) wantState(t *testing.T, at string, states map[uint64]map[string]string, record uint64) {
	t.Helper()
	st := y.Status()
	if st.Record != record {
		t.Errorf("%s: the standby has record %d, want %d", at, st.Record, record)
		return
	}
	if record == 0 {
		if s, err := y.Store(); err == nil {
			t.Errorf("%s: a standby without a record has the store %v", at, s.Identity())
		}
		return
	}
	s, err := y.Store()
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	want, got := maps.Clone(states[record]), rowsOf(t, s)
	delete(want, "h")
	delete(got, "l")
	if !maps.Equal(got, want) {
		t.Errorf("%s: as of record %d the standby has %q, want %q", at, record, got, want)
	}
}

// wantWaits wants a pass that ends without an error, and this reason to wait.
func (y *Standby) wantWaits(t *testing.T, why string) {
	t.Helper()
	if err := y.runPass(t); err != nil {
		t.Fatal(err)
	}
	if got := y.Status().Waiting; !strings.Contains(got, why) || (why == "") != (got == "") {
		t.Errorf("the standby waits because %q, want %q", got, why)
	}
}

// TestStandbyFollowsARunningHost lets a standby follow a host from an empty archive on, over restarts of both. Then it is promoted.
func TestStandbyFollowsARunningHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostFS, fs, a := NewMemFS(), NewMemFS(), newMemArchive()
		y := standbyOf(t, fs, a)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		follow := func(y *Standby) { go func() { ended <- y.Follow(ctx) }() }
		follow(y)
		time.Sleep(3 * time.Second)
		if st := y.Status(); !strings.Contains(st.Waiting, "no complete base") || st.Record != 0 {
			t.Errorf("with an empty archive the status is %+v", st)
		}
		if _, err := OpenStandby(standbyDir, a, &Options{FS: fs}); !errors.Is(err, ErrLocked) {
			t.Errorf("a second standby without a base: %v", err)
		}
		for host := range 2 {
			s := shipTo(t, hostFS, a)
			for i := range 5 {
				put(t, s, "o", "n", fmt.Sprint(host, i))
				time.Sleep(900 * time.Millisecond)
			}
			time.Sleep(5 * time.Second)
			states := history(t, a)
			y.wantState(t, fmt.Sprint("host ", host), states, s.Stats().Ship.Record)
			if st := y.Status(); st.Lag != 0 || st.LagTime != 0 || st.Waiting != "" || st.Identity != s.Identity() || st.Archived != st.Record {
				t.Errorf("the status is %+v", st)
			}
			if _, err := OpenStandby(standbyDir, a, &Options{FS: fs}); !errors.Is(err, ErrLocked) {
				t.Errorf("a second standby: %v", err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Close(), y.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(standbyDir, &Options{FS: fs}); !errors.Is(err, ErrStandby) {
				t.Errorf("a host on a standby: %v", err)
			}
			y = standbyOf(t, fs, a)
			ctx, stop = context.WithCancel(t.Context())
			follow(y)
		}
		defer stop()
		ro := shipTo(t, hostFS, a) // one more host record
		time.Sleep(3 * time.Second)
		last := ro.Stats().Ship.Record
		st, err := y.Promote(t.Context())
		if err != nil || !st.Promoted || st.Record != last {
			t.Fatalf("promoted as of %+v, %v; want record %d", st, err, last)
		}
		if err := <-ended; err != nil {
			t.Errorf("Follow of a promoted standby: %v", err)
		}
		y.wantState(t, "promoted", history(t, a), last)
		put(t, ro, "o", "n", "after the promotion")
		time.Sleep(3 * time.Second)
		if err := y.runPass(t); err != nil {
			t.Error(err)
		}
		y.wantState(t, "after the promotion", history(t, a), last)
		if err := errors.Join(y.Close(), ro.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenStandby(standbyDir, a, &Options{FS: fs}); !errors.Is(err, ErrNotStandby) {
			t.Errorf("a standby on a promoted one: %v", err)
		}
		if _, err := Open(standbyDir, &Options{FS: fs, Ship: &Shipping{Archive: a, Context: t.Context()}}); !errors.Is(err, ErrForeignArchive) {
			t.Errorf("the promoted store with the archive of the old one: %v", err)
		}
		wantPromoted(t, fs, ro.Identity())
	})
}

// wantPromoted opens a promoted store, lets it ship, and lets another standby follow it.
func wantPromoted(t *testing.T, fs *FS, old Identity) {
	t.Helper()
	b := newMemArchive()
	p, err := Open(standbyDir, &Options{FS: fs, Ship: &Shipping{Archive: b, Context: context.Background()}})
	if err != nil {
		t.Fatal(err)
	}
	if id := p.Identity(); id.Store != old.Store || id.Fork == old.Fork {
		t.Errorf("the promoted store is %v, it followed %v", id, old)
	}
	wantConsistent(t, p)
	p.live("c", "o").want(t, "n", "1 4")
	put(t, p, "o", "n", "mine")
	time.Sleep(3 * time.Second)
	put(t, p, "o", "n", "mine too")
	time.Sleep(3 * time.Second)
	y := standbyOf(t, NewMemFS(), b)
	y.wantWaits(t, "")
	y.wantState(t, "a standby of the promoted store", history(t, b), p.Stats().Ship.Record)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStandbyIsAPrefixWhereverItIsCutOff takes an image before each write of a standby, while the archive grows, and of its promotion.
// The next standby has the state of one record, which is none that the first one had not reported, and continues to the end.
func TestStandbyIsAPrefixWhereverItIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hostFS, fs, whole, grown := NewMemFS(), NewMemFS(), newMemArchive(), newMemArchive()
		copyArchive(t, hostFS, whole)
		states := history(t, whole)
		last := slices.Max(slices.Collect(maps.Keys(states)))
		y := standbyOf(t, fs, grown)
		images := imagesOf(fs, func() []int64 { return []int64{int64(y.Status().Record)} }, func() {
			for _, name := range slices.Sorted(maps.Keys(whole.objects)) {
				grown.objects[name] = whole.objects[name]
				if err := y.runPass(t); err != nil {
					t.Fatal(err)
				}
			}
			y.wantState(t, "the end", states, last)
			if _, err := y.Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		// Not a share of the unsynced data: the engine syncs its MANIFEST and the marker that names it in one step.
		images = slices.DeleteFunc(images, func(im shipImage) bool { return strings.HasSuffix(im.at, "50%") })
		begun, none, promoted := 0, 0, 0
		everyPoint(t, images, 1, func(im shipImage) {
			y, err := OpenStandby(standbyDir, whole, &Options{FS: im.fs, MemTable: 64 << 10})
			if errors.Is(err, ErrNotStandby) {
				promoted++
				s := openAt(t, im, standbyDir, nil)
				if got, want := rowsOf(t, s), maps.Clone(states[last]); len(got) != len(want)-1 {
					t.Errorf("%s: the promoted store has %d rows, want %d", im.at, len(got), len(want)-1)
				}
				s.Abandon()
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", im.at, err)
			}
			record := y.Status().Record
			y.wantState(t, im.at, states, record)
			if record < uint64(im.acked[0]) {
				t.Errorf("%s: the standby has record %d, and had %d", im.at, record, im.acked[0])
			}
			if record == 0 {
				none++
			} else {
				begun++
			}
			if err := y.runPass(t); err != nil {
				t.Fatalf("%s: %v", im.at, err)
			}
			y.wantState(t, im.at+", continued", states, last)
			if s, err := y.Store(); err == nil {
				wantConsistent(t, s)
			}
			if err := y.Close(); err != nil {
				t.Fatal(err)
			}
		})
		if begun == 0 || none == 0 || promoted == 0 {
			t.Errorf("%d images without a state, %d with one, %d promoted: want all kinds", none, begun, promoted)
		}
		t.Logf("%d records; %d images without a state, %d with one, %d promoted", last, none, begun, promoted)
	})
}

// copyArchive fills an archive with the objects of two hosts.
func copyArchive(t *testing.T, hostFS *FS, to *memArchive) {
	t.Helper()
	shipLedgers(t, hostFS, []*ledger{{}, {}, {}}, 2, func() {})
	from := ReadDirArchive(hostFS, archiveDir)
	list, err := from.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		if to.objects[o.Name], err = from.Get(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
}
