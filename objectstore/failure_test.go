package objectstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var errDisk = errors.New("disk on fire")

func TestSyncFailureFailsTheStore(t *testing.T) {
	j := new(releaseLog)
	failed := make(chan error, 2)
	held(t, Options{OnFail: func(err error) { failed <- err }}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		a, b := s.live("c", "a"), s.live("c", "b")
		a.put(t, "n", "1")
		a.commit(t)
		open := a.Scan(Bounds{Space: SpaceKV})
		if !open.Next() {
			t.Fatal(open.Err())
		}
		sn, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		fs.FailSyncs(errDisk)
		release := fs.HoldSyncs()
		a.put(t, "n", "2")
		a.Emit(entry{j, "in flight"})
		a.commitBatch(t)
		synctest.Wait()
		a.Emit(entry{j, "read of it"})
		a.commitBatch(t)
		a.put(t, "n", "3")
		a.Emit(entry{j, "filling"})
		a.commitBatch(t)
		b.put(t, "n", "1")
		b.Emit(entry{j, "another"})
		b.commitBatch(t)
		b.Emit(entry{j, "kept"})
		throttled := make(chan error, 1)
		b.put(t, "big", strings.Repeat("x", MaxValue))
		for i := range 5 {
			b.put(t, fmt.Sprint(i), strings.Repeat("x", MaxValue))
		}
		b.commitBatch(t)
		if err := b.Put(SpaceKV, []byte("n"), []byte("2"), false); !errors.Is(err, ErrFull) {
			t.Errorf("a write of an object with 12 MiB that are not durable: %v", err)
		}
		go func() { throttled <- b.WaitMemory(context.Background()) }()
		synctest.Wait()
		release()
		j.want(t, "in flight!", "read of it!", "filling!", "another!", "kept!")

		wantDown(t, "throttle", <-throttled)
		wantRefused(t, a, entry{j, "late"})
		if string(open.Value()) != "1" || open.Next() {
			t.Error("the open iterator continues")
		}
		wantDown(t, "open iterator", open.Close())
		_, err = sn.Exists(a.id)
		wantDown(t, "open snapshot", err)
		sn.Close()
		if err := <-failed; !errors.Is(err, errDisk) || errors.Is(err, ErrFenced) {
			t.Errorf("OnFail: %v", err)
		}
		for range 2 {
			if err := s.Close(); !errors.Is(err, errDisk) || !errors.Is(s.Err(), errDisk) {
				t.Errorf("Close: %v, Err: %v", err, s.Err())
			}
		}
		synctest.Wait()
		if len(failed) > 0 {
			t.Error("OnFail was called twice")
		}
		fs.FailSyncs(nil)
		wantAcknowledgedOnly(t, fs)
	})
}

// wantAcknowledgedOnly opens the directory of the failed store. Acknowledged writes must be there, those in flight
// may be, and others must not.
func wantAcknowledgedOnly(t *testing.T, fs *FS) {
	t.Helper()
	s := openAgain(t, fs)
	if s.Clean() {
		t.Error("a failed store counts as cleanly closed")
	}
	s.live("c", "b").absent(t, "n")
	v, _, err := s.live("c", "a").Get(nil, SpaceKV, []byte("n"))
	if err != nil || string(v) != "1" && string(v) != "2" {
		t.Errorf("n is %q, %v", v, err)
	}
}

func wantDown(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrFenced) || !errors.Is(err, errDisk) {
		t.Errorf("%s: %v", what, err)
	}
}

// wantRefused calls every method of a failed store.
func wantRefused(t *testing.T, a live, out Output) {
	t.Helper()
	a.put(t, "n", "4")
	a.Emit(out)
	wantDown(t, "hand-over", a.Commit(a.Batch))
	if outs := a.Discard(); len(outs) != 1 {
		t.Errorf("a refused batch has %d outputs", len(outs))
	}
	_, _, err := a.Get(nil, SpaceKV, []byte("n"))
	wantDown(t, "get", err)
	_, _, err = a.Slot()
	wantDown(t, "slot", err)
	wantDown(t, "scan", a.Scan(Bounds{Space: SpaceKV}).Close())
	_, err = a.store.Snapshot(t.Context())
	wantDown(t, "snapshot", err)
}

func openAgain(t *testing.T, fs *FS) *Store { return open(t, fs, Options{}) }

func TestCloseReportsFailedCleanMark(t *testing.T) {
	fs := NewMemFS()
	s := open(t, fs, Options{})
	fs.FailSyncs(errDisk)
	if err := s.Close(); !errors.Is(err, errDisk) {
		t.Errorf("Close: %v", err)
	}
	fs.FailSyncs(nil)
	if s := openAgain(t, fs.Crash(0, 0)); s.Clean() {
		t.Error("clean without its mark")
	}
}

func TestCloseDrainsCommits(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		first, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		for i := range 3 {
			o.put(t, "n", fmt.Sprint(i))
			o.Emit(entry{j, fmt.Sprint(i)})
			o.commitBatch(t)
			synctest.Wait()
		}
		it := o.Scan(Bounds{Space: SpaceKV})
		if _, err := first.Exists(o.id); err != nil { // keeps the snapshot open until here
			t.Error(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) || !errors.Is(err, ErrClosed) {
			t.Errorf("hand-over while closing: %v", err)
		}
		j.want(t)
		release()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		j.want(t, "0", "1", "2")
		if it.Next() || !errors.Is(it.Close(), ErrClosed) {
			t.Errorf("iterator after Close: %v", it.Err())
		}
		s = openAgain(t, fs)
		s.live("c", "a").want(t, "n", "2")
		if !s.Clean() {
			t.Error("not clean after Close")
		}
	})
}

// TestCloseAndAbandonDuringCommits ends a store during commits of several goroutines. Every output of a successful
// Commit is released, once.
func TestCloseAndAbandonDuringCommits(t *testing.T) {
	for _, end := range []func(*Store){
		func(s *Store) { s.Close() },
		(*Store).Abandon,
	} {
		for range 10 {
			s := open(t, NewMemFS(), Options{})
			var wg sync.WaitGroup
			var accepted, released atomic.Int64
			for i := range 4 {
				wg.Go(func() {
					for n := 0; ; n++ {
						o := s.live("c", fmt.Sprint(i, n))
						o.put(t, "n", "1")
						o.Emit(&counted{&released})
						if o.Commit(o.Batch) != nil {
							return
						}
						accepted.Add(1)
					}
				})
			}
			o := s.live("c", "first")
			o.put(t, "n", "1")
			o.commit(t)
			end(s)
			wg.Wait()
			if accepted.Load() != released.Load() {
				t.Fatalf("%d hand-overs, %d outputs released", accepted.Load(), released.Load())
			}
		}
	}
}

type counted struct{ n *atomic.Int64 }

func (c *counted) Release(error) { c.n.Add(1) }

// TestQueueRefusesCommitsAfterEnd checks the refusal of a Commit that came too late to see that the store has ended.
func TestQueueRefusesCommitsAfterEnd(t *testing.T) {
	q := &queue{wake: make(chan struct{}, 1)}
	r := new(Range)
	if !q.add(r) {
		t.Error("an open queue refuses")
	}
	q.end(false)
	if q.add(r) {
		t.Error("a shut queue takes a range")
	}
	if q.tryStop() {
		t.Error("the committer may leave with a layer in the queue")
	}
	q.take(new(work))
	// Outputs may still be leaving, until the committer has.
	if !q.continueRelease(r) || q.tryStop() {
		t.Error("the committer may leave with outputs in the queue")
	}
	q.take(new(work))
	if !q.tryStop() || q.continueRelease(r) {
		t.Error("outputs are left to a committer that has left")
	}
}

func TestAbandonFailsPendingOutputs(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		for i := range 2 {
			o.put(t, "n", fmt.Sprint(i))
			o.Emit(entry{j, fmt.Sprint(i)})
			o.commitBatch(t)
			synctest.Wait()
		}
		go s.Abandon()
		synctest.Wait()
		release()
		j.want(t, "0!", "1!")
		s = openAgain(t, fs)
		s.live("c", "a").want(t, "n", "0")
	})
}

// childEnv marks the test binary as the child of TestDiskFailureKeepsAcknowledgedWrites: it has the directory, and the
// number of the write that kills the disk.
const childEnv = "OBJECTSTORE_TEST_CHILD"

// TestDiskFailureKeepsAcknowledgedWrites fails every write from the k-th on, which may end a process. So it runs in a
// child, which prints the acknowledged writes. With k = 0 only log files cannot be made, except the first.
func TestDiskFailureKeepsAcknowledgedWrites(t *testing.T) {
	if env := os.Getenv(childEnv); env != "" {
		dyingDisk(t, env)
		os.Exit(0) // Pebble leaks a goroutine when it fails to open
	}
	died := 0
	for k := 0; k < 260; k += 23 {
		d := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDiskFailureKeepsAcknowledgedWrites$")
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childEnv, k, d))
		var said strings.Builder
		child.Stderr = &said
		child.Cancel = func() error { return child.Process.Signal(syscall.SIGQUIT) }
		child.WaitDelay = 10 * time.Second
		out, err := child.Output()
		hangs := ctx.Err() != nil
		cancel()
		if hangs {
			t.Fatalf("disk dead from write %d: the child hangs\n%s", k, &said)
		}
		if err != nil {
			died++
			if !strings.Contains(said.String(), "dohost: ending the process") {
				t.Errorf("disk dead from write %d: %v, and the child said\n%s", k, err, &said)
			}
		}
		if k == 0 && (err != nil || !strings.Contains(string(out), "writing the log: "+errDisk.Error())) {
			t.Errorf("without another log file: %v, and the child said\n%s\n%s", err, out, &said)
		}
		wantAcknowledged(t, d, k, string(out))
	}
	t.Logf("%d children died", died)
}

func wantAcknowledged(t *testing.T, d string, k int, out string) {
	acked := make([]int64, 3)
	for line := range strings.Lines(out) {
		var i int
		var n int64
		if _, err := fmt.Sscanf(line, "acked %d %d", &i, &n); err == nil {
			acked[i] = n
		}
	}
	s, err := Open(d, nil)
	if err != nil {
		t.Fatalf("disk dead from write %d: %v", k, err)
	}
	defer s.Abandon()
	wantLedgers(t, s, fmt.Sprintf("disk dead from write %d", k), acked)
}

func dyingDisk(t *testing.T, env string) {
	var k int64
	var d string
	if _, err := fmt.Sscanf(env, "%d %s", &k, &d); err != nil {
		t.Fatal(err)
	}
	fs := DiskFS()
	var logs atomic.Int64
	fs.OnWrite(func(op, path string, n int64) error {
		if k > 0 && n >= k || k == 0 && op == "create" && strings.HasSuffix(path, ".log") && logs.Add(1) > 1 {
			return errDisk
		}
		return nil
	})
	out := bufio.NewWriterSize(os.Stdout, 1) // nothing is held back
	ledgers := []*ledger{{}, {}, {}}
	for i, l := range ledgers {
		l.reported = func(n int64) { fmt.Fprintf(out, "acked %d %d\n", i, n) }
	}
	if err := crashWorkload(t, d, fs, ledgers); err != nil {
		fmt.Fprintln(out, "the store failed, and the process runs:", err)
	}
}

// cleanAtRelease notes whether its range counts as clean while it is released.
type cleanAtRelease struct {
	r     *Range
	clean chan bool
}

func (o cleanAtRelease) Release(error) { o.clean <- o.r.Clean() }

func TestRangeIsNotCleanWhileDroppedOutputsAreReleased(t *testing.T) {
	for name, end := range map[string]func(s *Store, fs *FS, l live){
		"a failed sync": func(_ *Store, fs *FS, l live) { fs.FailSyncs(errDisk) },
		"a crash":       func(_ *Store, _ *FS, l live) { l.FenceDropping() },
		"an abandoned store": func(s *Store, _ *FS, l live) {
			s.BeginAbandon()
			go s.Abandon()
		},
	} {
		t.Run(name, func(t *testing.T) {
			held(t, Options{}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
				other := s.live("c", "other")
				l := s.live("c", "a")
				release := fs.HoldSyncs()
				other.put(t, "n", "1")
				other.commitBatch(t)
				synctest.Wait() // a record is in flight, and the next one waits for it
				seen := make(chan bool, 1)
				l.put(t, "n", "1")
				l.Emit(cleanAtRelease{l.Range, seen})
				l.commitBatch(t)
				end(s, fs, l)
				release()
				if <-seen {
					t.Error("the range is clean while an output of it is released")
				}
				synctest.Wait()
				if !l.Clean() {
					t.Error("the range is not clean after its last output is released")
				}
			})
		})
	}
}

// brokenFile is a file that cannot be synced.
type brokenFile struct{ vfs.File }

func (brokenFile) Sync() error                { return errDisk }
func (brokenFile) SyncData() error            { return errDisk }
func (brokenFile) SyncTo(int64) (bool, error) { return false, errDisk }

// TestSyncErrorOfTheDiskIsReturned syncs a file of the write-ahead log, and another one, in each of the three ways.
func TestSyncErrorOfTheDiskIsReturned(t *testing.T) {
	for _, wal := range []bool{true, false} {
		f := &faultyFile{File: brokenFile{}, f: NewMemFS(), wal: wal}
		_, to := f.SyncTo(1)
		for name, err := range map[string]error{"Sync": f.Sync(), "SyncData": f.SyncData(), "SyncTo": to} {
			if !errors.Is(err, errDisk) {
				t.Errorf("%s, of the log: %v, returns %v", name, wal, err)
			}
		}
	}
}
