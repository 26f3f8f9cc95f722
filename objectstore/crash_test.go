package objectstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost/internal/invariants"
)

// ledger is an object that counts its batches: each writes its number to three rows and the alarm, which reveals a
// torn batch, and appends a row, which reveals a hole.
type ledger struct {
	live
	n        int
	acked    atomic.Int64
	reported func(n int64) // nil, or called when n was acknowledged
}

type ledgerAck struct {
	l *ledger
	n int64
}

func (a ledgerAck) Release(err error) {
	if err != nil {
		return
	}
	a.l.acked.Store(a.n)
	if a.l.reported != nil {
		a.l.reported(a.n)
	}
}

func (l *ledger) add(t failer) error {
	l.n++
	n := strconv.Itoa(l.n)
	for _, key := range []string{"x", "y", "z"} {
		l.put(t, key, n)
	}
	l.put(t, fmt.Sprintf("row%04d", l.n), n)
	l.SetSlot(Slot{Due: due(int64(l.n)), Generation: uint64(l.n), AtStart: l.n%2 == 0})
	l.Emit(ledgerAck{l, int64(l.n)})
	return l.Commit(l.Batch)
}

// check returns the number of surviving batches, after a check that they are a prefix.
func (l *ledger) check(t *testing.T) int {
	t.Helper()
	v, ok, err := l.Get(nil, SpaceKV, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		v = []byte("0")
	}
	n, err := strconv.Atoi(string(v))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := 1; i <= n; i++ {
		want = append(want, fmt.Sprintf("row%04d=%d", i, i))
	}
	if n > 0 {
		for _, key := range []string{"x", "y", "z"} {
			want = append(want, fmt.Sprintf("%s=%d", key, n))
		}
	}
	got, err := collect(l.Scan(Bounds{Space: SpaceKV}))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s holds %q, %v; want %q", l.id, got, err, want)
	}
	slot, _, err := l.Slot()
	if err != nil || slot.Generation != uint64(n) {
		t.Fatalf("%s has slot %+v, %v; want that of %d", l.id, slot, err, n)
	}
	return n
}

// wantLedgers checks a store that was opened after a failure: each ledger has a prefix of its batches, and all that were
// acknowledged.
func wantLedgers(t *testing.T, s *Store, after string, acked []int64) {
	t.Helper()
	for i, n := range acked {
		if got := (&ledger{live: s.live("ledger", fmt.Sprint(i))}).check(t); int64(got) < n {
			t.Errorf("%s: ledger %d has %d, %d was acknowledged", after, i, got, n)
		}
	}
	wantConsistent(t, s)
}

// acknowledged returns the acknowledged batches of each ledger.
func acknowledged(ledgers []*ledger) (acked []int64) {
	for _, l := range ledgers {
		acked = append(acked, l.acked.Load())
	}
	return acked
}

// crashWorkload opens a store and works until it is done or the store stops. The ledgers record the acknowledged
// batches.
func crashWorkload(t *testing.T, d string, fs *FS, ledgers []*ledger) error {
	// A small memtable causes flushes and rotations of the log during the run.
	s, err := Open(d, &Options{FS: fs, MemTable: 64 << 10})
	if err != nil {
		return err
	}
	for i, l := range ledgers {
		l.live = s.live("ledger", fmt.Sprint(i))
	}
	pad := string(make([]byte, 4000))
	for i := range 60 {
		l := ledgers[i%len(ledgers)]
		l.put(t, "x", pad) // overwritten immediately
		if err = l.add(t); err != nil {
			break
		}
		other := s.live("pad", fmt.Sprint(i))
		other.put(t, "p", pad)
		if i%5 == 0 {
			done := newReleased()
			other.Sync(done)
			if err = other.Commit(other.Batch); err == nil {
				err = <-done
			}
			continue
		}
		if err = other.Commit(other.Batch); err != nil {
			break
		}
	}
	return errors.Join(err, s.Close())
}

// TestCrashAtEveryWrite takes the image that a power cut leaves before each
// write of the workload, and before that of a restart, with all and with none of
// the unsynced data.
func TestCrashAtEveryWrite(t *testing.T) {
	type image struct {
		fs    *FS
		acked []int64
		k     int64
		op    string
	}
	var mu sync.Mutex // Pebble writes from several goroutines
	var images []image
	fs := NewMemFS()
	ledgers := []*ledger{{}, {}, {}}
	fs.OnWrite(func(op, path string, k int64) error {
		mu.Lock()
		defer mu.Unlock()
		acked := acknowledged(ledgers)
		for _, unsynced := range []int{0, 100, 50} {
			images = append(images, image{fs.Crash(unsynced, uint64(k)), acked, k, op + " " + path})
		}
		return nil
	})
	if err := crashWorkload(t, dir, fs, ledgers); err != nil {
		t.Fatal(err)
	}
	fs.OnWrite(nil)
	step := 1
	if invariants.Enabled { // the race detector
		step = 5
	}
	t.Logf("%d images, 1 of %d of them tried", len(images), step)
	for i := 0; i < len(images); i += step {
		im := images[i]
		s, err := Open(dir, &Options{FS: im.fs})
		if err != nil {
			t.Fatalf("write %d (%s): %v", im.k, im.op, err)
		}
		wantLedgers(t, s, fmt.Sprintf("write %d (%s)", im.k, im.op), im.acked)
		s.Abandon()
	}
}
