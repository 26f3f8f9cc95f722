package objectstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/invariants"
)

// shipImage is a file system after a power cut.
type shipImage struct {
	fs    *FS
	acked []int64
	at    string
}

// imagesOf returns the images that a power cut leaves before each write of f: with all, with none and with half of the
// unsynced data.
func imagesOf(fs *FS, acked func() []int64, f func()) (images []shipImage) {
	var mu sync.Mutex
	fs.OnWrite(func(op, path string, k int64) error {
		mu.Lock()
		defer mu.Unlock()
		for _, unsynced := range []int{0, 100, 50} {
			images = append(images, shipImage{fs.Crash(unsynced, uint64(k)), acked(), fmt.Sprintf("write %d, %s %s, %d%%", k, op, path, unsynced)})
		}
		return nil
	})
	f()
	fs.OnWrite(nil)
	return images
}

// everyPoint calls f with one of every step images. With the race detector, which is slow, it doubles a step above 1. Three images of
// a write follow one another, so step is no multiple of three.
func everyPoint(t *testing.T, images []shipImage, step int, f func(shipImage)) {
	t.Helper()
	if invariants.Enabled && step > 1 {
		step *= 2
	}
	tried := 0
	for i := 0; i < len(images); i += step {
		f(images[i])
		tried++
	}
	t.Logf("%d images, %d tried", len(images), tried)
	if tried < 20 {
		t.Errorf("only %d images were tried", tried)
	}
}

// shipLedgers lets two hosts work and ship to a folder on the same file system. The second follows an abandoned one.
func shipLedgers(t *testing.T, fs *FS, ledgers []*ledger, hosts int, done func()) {
	for range hosts {
		a, err := OpenDirArchive(fs, archiveDir)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, &Options{FS: fs, MemTable: 64 << 10, Ship: &Shipping{
			Archive: a, Context: context.Background(), part: 2000, shipment: 3000, BaseAfter: 6000,
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range ledgers {
			l.live = s.live("ledger", fmt.Sprint(i))
		}
		for i := range 14 {
			l := ledgers[i%len(ledgers)]
			if err := l.add(t); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				time.Sleep(700 * time.Millisecond)
			}
			if i%5 == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(3 * time.Second)
		done()
		s.Abandon()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// counts returns the batches of each ledger, after a check that they are a prefix.
func counts(t *testing.T, s *Store, n int) (list []int64) {
	t.Helper()
	for i := range n {
		list = append(list, int64((&ledger{live: s.live("ledger", fmt.Sprint(i))}).check(t)))
	}
	return list
}

// TestRestoreIsAPrefixWhereverShippingIsCutOff restores the archive that each power cut leaves. The restored store
// has a prefix of each ledger that is not longer than that of the store, and a later host ships the rest.
func TestRestoreIsAPrefixWhereverShippingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		ledgers := []*ledger{{}, {}, {}}
		images := imagesOf(fs, func() []int64 { return acknowledged(ledgers) }, func() {
			shipLedgers(t, fs, ledgers, 2, func() {})
		})
		none, restoredSome := 0, 0
		everyPoint(t, images, 7, func(im shipImage) {
			var have []int64
			_, err := Restore(t.Context(), ReadDirArchive(im.fs, archiveDir), restoredDir, RestorePoint{}, &Options{FS: im.fs})
			switch {
			case errors.Is(err, ErrNotArchived):
				none++
				have = make([]int64, len(ledgers))
			case err != nil:
				t.Fatalf("%s: %v", im.at, err)
			default:
				restoredSome++
				r := openAt(t, im, restoredDir, nil)
				have = counts(t, r, len(ledgers))
				wantConsistent(t, r)
				r.Abandon()
			}
			a, err := OpenDirArchive(im.fs, archiveDir)
			if err != nil {
				t.Fatalf("%s: %v", im.at, err)
			}
			s := openAt(t, im, dir, a)
			for i, n := range counts(t, s, len(ledgers)) {
				if have[i] > n || n < im.acked[i] {
					t.Errorf("%s: ledger %d has %d in the archive, %d in the store, %d were acknowledged", im.at, i, have[i], n, im.acked[i])
				}
			}
			time.Sleep(3 * time.Second)
			want := counts(t, s, len(ledgers))
			if st := s.Stats().Ship; st.Records != 0 || st.NeedsBase {
				t.Errorf("%s: the next host ships not all: %+v", im.at, st)
			}
			s.Abandon()
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), a, restoredDir+"2", RestorePoint{}, &Options{FS: im.fs}); err != nil {
				t.Fatalf("%s: after the next host: %v", im.at, err)
			}
			r := openAt(t, im, restoredDir+"2", nil)
			if got := counts(t, r, len(ledgers)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: after the next host the archive has %d, the store %d", im.at, got, want)
			}
			r.Abandon()
		})
		if none == 0 || restoredSome < 10 {
			t.Errorf("%d images without a base, %d that were restored", none, restoredSome)
		}
	})
}

// openAt opens a store of an image.
func openAt(t *testing.T, im shipImage, dir string, a Archive) *Store {
	t.Helper()
	o := &Options{FS: im.fs}
	if a != nil {
		o.Ship = &Shipping{Archive: a, Context: context.Background()}
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatalf("%s: %s: %v", im.at, dir, err)
	}
	return s
}

// TestRestoreIsAWholeStoreOrNoneWhereverItIsCutOff takes an image before each write of a restore, and fails each write.
func TestRestoreIsAWholeStoreOrNoneWhereverItIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := NewMemFS()
		ledgers := []*ledger{{}, {}, {}}
		shipLedgers(t, source, ledgers, 1, func() {})
		want := fmt.Sprint(acknowledged(ledgers))
		from := ReadDirArchive(source, archiveDir)
		restore := func(fs *FS) error {
			_, err := Restore(t.Context(), from, restoredDir, RestorePoint{}, &Options{FS: fs, MemTable: 16 << 10})
			return err
		}
		whole := func(fs *FS, at string) bool {
			t.Helper()
			s, err := Open(restoredDir, &Options{FS: fs})
			if errors.Is(err, ErrForeign) {
				if _, err := Restore(t.Context(), from, restoredDir, RestorePoint{}, &Options{FS: fs}); err == nil {
					t.Errorf("%s: a restore into the files of another one", at)
				}
				return false
			}
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			defer s.Abandon()
			return fmt.Sprint(counts(t, s, len(ledgers))) == want
		}
		fs := NewMemFS()
		writes := 0
		images := imagesOf(fs, func() []int64 { writes++; return nil }, func() {
			if err := restore(fs); err != nil {
				t.Fatal(err)
			}
		})
		if !whole(fs, "the end") {
			t.Fatal("the restored store is not that of the archive")
		}
		stores := 0
		everyPoint(t, images, 1, func(im shipImage) {
			names, _ := im.fs.base.List(restoredDir)
			if len(names) == 0 || len(names) == 1 && names[0] == lockName {
				return // nothing was restored
			}
			if whole(im.fs, im.at) {
				stores++
			} else if done, _ := im.fs.base.List(restoredDir); strings.Contains(fmt.Sprint(done), formatName+" ") {
				t.Errorf("%s: a part of a store has the file %s: %v", im.at, formatName, done)
			}
		})
		if stores == 0 {
			t.Error("no image is a store")
		}
		failed := 0
		for k := 1; k < writes/3; k += 5 {
			fs := NewMemFS()
			full := errors.New("the disk is full")
			var reached atomic.Bool // the engine may need fewer writes this time
			fs.OnWrite(func(op, path string, n int64) error {
				if n >= int64(k) && op != "remove" && !strings.Contains(path, "MANIFEST") && !strings.Contains(path, "marker") {
					reached.Store(true)
					return full
				}
				return nil
			})
			if err := restore(fs); !reached.Load() {
				break
			} else if err == nil || !strings.Contains(err.Error(), "full") {
				t.Errorf("with a full disk from write %d on: %v", k, err)
			}
			failed++
		}
		if failed < 5 {
			t.Errorf("%d restores with a full disk", failed)
		}
	})
}
