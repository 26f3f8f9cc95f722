package objectstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// releaseLog records releases in order.
type releaseLog struct {
	mu    sync.Mutex
	lines []string
}

func (j *releaseLog) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// want compares the records since the last call.
func (j *releaseLog) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, lines) {
		t.Errorf("noted %q, want %q", j.lines, lines)
	}
	j.lines = nil
}

// entry is an output with a name that is recorded, with ! if it must not leave.
type entry struct {
	j    *releaseLog
	name string
}

func (e entry) Release(err error) {
	if err != nil {
		e.name += "!"
	}
	e.j.note(e.name)
}

func (l live) commitBatch(t *testing.T) {
	t.Helper()
	if err := l.Commit(l.Batch); err != nil {
		t.Fatal(err)
	}
}

// held runs f in a bubble, with a store and control of its syncs.
func held(t *testing.T, o Options, f func(t *testing.T, s *Store, fs *FS, j *releaseLog)) {
	synctest.Test(t, func(t *testing.T) {
		fs := NewMemFS()
		s := open(t, fs, o)
		f(t, s, fs, new(releaseLog))
	})
}

func TestOutputWaitsForAllEarlierCommits(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		o.put(t, "n", "6")
		o.Emit(entry{j, "write"})
		o.commitBatch(t)
		j.want(t)

		// A read in a batch of its own has seen n=6, which can still be lost.
		o.want(t, "n", "6")
		o.Emit(entry{j, "read"})
		o.commitBatch(t)
		j.want(t)

		// So has one of the next incarnation.
		o.Fence()
		next := live{Range: o.Range, e: s.NewEpoch()}
		next.Range.Begin(next.e)
		next.Batch = next.NewBatch(next.e)
		next.want(t, "n", "6")
		next.Emit(entry{j, "next incarnation"})
		next.commitBatch(t)
		j.want(t)

		// Another object has nothing to wait for.
		b := s.live("c", "b")
		b.Emit(entry{j, "other"})
		b.commitBatch(t)
		j.want(t, "other")

		if o.Clean() {
			t.Error("clean with outputs withheld")
		}
		release()
		j.want(t, "write", "read", "next incarnation")
		if !o.Clean() {
			t.Error("not clean after the release")
		}
	})
}

func TestOutputIsNotDelayedByLaterWrites(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		o.put(t, "n", "1")
		o.Emit(entry{j, "one"})
		o.commitBatch(t)
		synctest.Wait()
		o.Emit(entry{j, "read of one"})
		o.commitBatch(t)
		o.put(t, "n", "2")
		o.Emit(entry{j, "two"})
		o.commitBatch(t)
		j.want(t)

		again := fs.HoldSyncs()
		defer again()
		release()
		j.want(t, "one", "read of one")
		again()
		j.want(t, "two")
	})
}

func TestWriteWithNoWaitReleasesOutputImmediately(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		if err := o.Put(SpaceKV, []byte("n"), []byte("1"), true); err != nil {
			t.Fatal(err)
		}
		o.Emit(entry{j, "at once"})
		o.commitBatch(t)
		j.want(t, "at once")

		o.Sync(entry{j, "sync"})
		o.commitBatch(t)
		j.want(t)

		// It could leave, but not before earlier commits.
		o.Emit(entry{j, "behind"})
		o.commitBatch(t)
		j.want(t)

		release()
		j.want(t, "sync", "behind")
	})
}

func TestOutputsOfOneBatchKeepTheirOrder(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		o.put(t, "n", "1")
		o.commitBatch(t)
		synctest.Wait()
		if err := o.Put(SpaceKV, []byte("m"), []byte("1"), true); err != nil {
			t.Fatal(err)
		}
		o.Emit(entry{j, "a"}) // waits for n alone
		o.Sync(entry{j, "b"}) // waits for m
		o.Emit(entry{j, "c"}) // would wait for n alone, but follows b
		o.commitBatch(t)
		again := fs.HoldSyncs()
		defer again()
		release()
		j.want(t, "a")
		again()
		j.want(t, "b", "c")
	})
}

// numbered is an output that counts the releases and notices disorder.
type numbered struct {
	n    int64
	last *atomic.Int64
	bad  *atomic.Int64
}

func (o *numbered) Release(error) {
	if o.last.Swap(o.n) != o.n-1 {
		o.bad.Add(1)
	}
}

// commitAnd hands the batch over and calls then before it releases outputs, as if the goroutine were interrupted
// there.
func (l live) commitAnd(batch *Batch, then func()) error {
	l.mu.Lock()
	err := l.admitLocked(batch)
	var now []emission
	mustRelease := false
	if err == nil {
		now, mustRelease = l.commitLocked(batch)
	}
	l.mu.Unlock()
	then()
	if mustRelease && l.releasePass(now) {
		l.releaseLoop()
	}
	return err
}

// TestReleaseOrder commits from one goroutine after the other, mostly without writes, so that they and the committer
// release concurrently.
func TestReleaseOrder(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	o := s.live("c", "a")
	var last, bad atomic.Int64
	var turn sync.Mutex
	var n int64
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 5000 {
				turn.Lock()
				n++
				batch := o.NewBatch(o.e)
				if (i+w)%16 == 0 {
					if err := batch.Put(SpaceKV, []byte("n"), fmt.Append(nil, n), false); err != nil {
						t.Error(err)
					}
				}
				batch.Emit(&numbered{n: n, last: &last, bad: &bad})
				if err := o.commitAnd(batch, turn.Unlock); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if bad.Load() > 0 || last.Load() != n {
		t.Errorf("%d of %d outputs out of order, the last is %d", bad.Load(), n, last.Load())
	}
}

// slow is an output with a slow release.
type slow struct {
	entry
	until chan struct{}
}

func (s slow) Release(err error) {
	<-s.until
	s.entry.Release(err)
}

// TestReleaseRunsInOneGoroutineAtATime commits while the previous output is being released, once by a committing
// goroutine and once by the committer.
func TestReleaseRunsInOneGoroutineAtATime(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		for _, write := range []bool{false, true} {
			until := make(chan struct{})
			if write {
				o.put(t, "n", "1")
			}
			o.Emit(slow{entry{j, "first"}, until})
			go func() { o.commitBatch(t) }()
			synctest.Wait()
			for _, name := range []string{"read", "write"} {
				next := o.NewBatch(o.e)
				if name == "write" {
					if err := next.Put(SpaceKV, []byte("n"), []byte("2"), false); err != nil {
						t.Error(err)
					}
				}
				next.Emit(entry{j, name})
				if err := o.Commit(next); err != nil {
					t.Error(err)
				}
				synctest.Wait() // the write becomes durable, unless the committer is blocked
			}
			if o.Clean() {
				t.Error("clean while outputs leave")
			}
			j.want(t)
			close(until)
			j.want(t, "first", "read", "write")
			if !o.Clean() {
				t.Error("not clean after the release")
			}
		}
	})
}

// committingOutput commits during its release, so that another output may leave whenever one has left.
type committingOutput struct {
	o    live
	stop atomic.Bool
	done chan struct{}
}

func (m *committingOutput) Release(error) {
	if m.stop.Load() {
		close(m.done)
		return
	}
	batch := m.o.NewBatch(m.o.e)
	batch.Emit(m)
	if err := m.o.Commit(batch); err != nil {
		close(m.done)
	}
}

// TestReleaseLoopIsBounded has one range with endless outputs. It delays neither the goroutine that began it nor another
// range.
func TestReleaseLoopIsBounded(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	m := &committingOutput{o: s.live("c", "busy"), done: make(chan struct{})}
	m.o.Emit(m)
	m.o.commitBatch(t)
	other := s.live("c", "other")
	other.put(t, "n", "1")
	other.commit(t)
	m.stop.Store(true)
	<-m.done
}
