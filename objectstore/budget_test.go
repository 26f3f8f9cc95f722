package objectstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func (l live) putSize(ctx context.Context, key string, size int) error {
	return l.retryFull(ctx, func() error { return l.Put(SpaceKV, []byte(key), make([]byte, size), false) })
}

// TestBudgetOfObjectWaitsForItsCommits lets a write wait while too many bytes of its object are not durable. Writes of
// other objects do not wait.
func TestBudgetOfObjectWaitsForItsCommits(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		held(t, Options{MaxObjectBytes: 1000}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
			release := fs.HoldSyncs()
			defer release()
			other := s.live("c", "b")
			other.put(t, "n", "1")
			other.commitBatch(t)
			synctest.Wait()
			o := s.live("c", "a")
			o.put(t, "n", strings.Repeat("x", 900))
			o.commitBatch(t)
			o.put(t, "m", strings.Repeat("x", 2000)) // its own bytes do not count
			o.put(t, "l", strings.Repeat("x", 2000))
			o.commitBatch(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := o.putSize(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a write with %d bytes not durable: %v", s.Stats().Undurable, err)
			}
			if err := other.putSize(t.Context(), "n", 100); err != nil {
				t.Error(err)
			}
			go func() {
				if err := o.putSize(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
				j.note("let through")
			}()
			j.want(t)
			if dropped {
				o.FenceDropping()
			} else {
				release()
			}
			j.want(t, "let through")
		})
	}
}

// TestBudgetOfHostCountsOpenBatches lets objects write, one after the other, without a commit: they get the limit
// and no more. One of them may exceed it, and another one after that has ended and is durable.
func TestBudgetOfHostCountsOpenBatches(t *testing.T) {
	held(t, Options{MaxHostBytes: 10_000}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		size := rowSize([]byte("kn"), 968)
		var os []live
		for i := range 20 {
			o := s.live("c", fmt.Sprint(i))
			os = append(os, o)
			go func() {
				if err := o.putSize(t.Context(), "n", 968); err == nil {
					j.note(fmt.Sprint(i))
				} else {
					j.note(err.Error())
				}
			}()
			synctest.Wait()
			if n := s.Stats().Undurable; n > 10_000 && i < 9 || n > int64(10_000+size) {
				t.Fatalf("%d objects hold %d bytes", i+1, n)
			}
		}
		j.want(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		release := fs.HoldSyncs()
		defer release()
		os[9].commitBatch(t) // the favored one; its bytes are on their way to the disk
		j.want(t)
		os[0].commitBatch(t)
		os[1].Discard()
		j.want(t)
		release()
		synctest.Wait()
		slices.Sort(j.lines) // they continue concurrently
		j.want(t, "10", "11", "12")
		os[12].Fence() // the incarnation of the favored one ends, its code continues
		j.want(t, "13")
		s.Abandon() // before the fences, which free memory that the last writers might get
		j.want(t, manyErrors(6)...)
		for _, o := range os[2:] {
			o.Fence()
		}
		j.want(t)
	})
}

func manyErrors(n int) (lines []string) {
	for range n {
		lines = append(lines, fmt.Sprintf("%v: %v", ErrFenced, ErrClosed))
	}
	return lines
}

// TestBudgetReturnsToZero counts rows, undos, alarms, outputs and deletions. Their bytes return to the budget when
// they are durable, discarded, rolled back, or dropped by a fence.
func TestBudgetReturnsToZero(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		wants := func(min int64) {
			t.Helper()
			synctest.Wait()
			if n := s.Stats().Undurable; n < min || min == 0 && n != 0 {
				t.Fatalf("%d bytes are not durable, want %d", n, min)
			}
		}
		write := func() {
			o.put(t, "n", strings.Repeat("x", 1000))
			p := o.Batch.Begin()
			for i := range 10 {
				o.put(t, "n", strings.Repeat("x", 1000+i))
			}
			if err := o.EmitSized(entry{j, "rolled back"}, 5000); err != nil {
				t.Fatal(err)
			}
			wants(7000) // the value, its undo, the output
			o.Rollback(p)
			if err := o.EmitSized(entry{j, "sized"}, 5000); err != nil {
				t.Fatal(err)
			}
			o.Emit(entry{j, "plain"})
			o.SetSlot(Slot{Due: due(1)})
			wants(6000)
		}
		write()
		o.Discard()
		wants(0)
		write()
		o.commitBatch(t)
		wants(0)
		j.want(t, "sized", "plain")
		release := fs.HoldSyncs()
		defer release()
		write()
		o.commitBatch(t)
		wants(6000)
		write() // in addition to the layer in flight
		o.commitBatch(t)
		write()
		o.commitBatch(t)
		wants(12_000)
		o.FenceDropping()
		j.want(t, "sized!", "plain!", "sized!", "plain!")
		wants(6000)
		o = o.next()
		if err := o.EmitSized(entry{j, "output alone"}, 3000); err != nil {
			t.Fatal(err)
		}
		o.commitBatch(t)
		wants(9000)
		release()
		j.want(t, "sized", "plain", "output alone")
		wants(0)
		if err := o.DeleteAll(); err != nil {
			t.Fatal(err)
		}
		wants(rowOverhead)
		o.commitBatch(t)
		wants(0)
	})
}

// TestBudgetOfOutputsOfABatch checks that a batch cannot take all memory with outputs, large or small.
func TestBudgetOfOutputsOfABatch(t *testing.T) {
	for _, size := range []int{1, 1 << 20} {
		held(t, Options{}, func(t *testing.T, s *Store, _ *FS, j *releaseLog) {
			o := s.live("c", "a")
			for range 2 {
				var err error
				n := 0
				for ; err == nil && n <= MaxOutputBytes; n++ {
					err = o.EmitSized(entry{j, ""}, size)
				}
				if e, ok := errors.AsType[*LimitError](err); !ok || e.Limit != MaxOutputBytes || e.Size != n*(size+rowOverhead) {
					t.Fatalf("%d outputs of %d bytes: %v", n, size, err)
				}
				if u := s.Stats().Undurable; u > MaxOutputBytes {
					t.Errorf("%d bytes are not durable", u)
				}
				o.Discard()
			}
		})
	}
}

// TestBudgetNeverDeadlocks writes more in each event than there is memory for, with a tiny limit, in events that
// commit, give up, roll back, or leave their code hanging.
func TestBudgetNeverDeadlocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, limit := range []int64{1, 1000, 20_000} {
		held(t, Options{MaxHostBytes: limit, MaxObjectBytes: limit, ReserveBytes: -1}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
			const objects, events = 30, 20
			// One batch of 20 rows may exceed the limit, and so may the batches of ended incarnations with code that still runs.
			const batch = 20*2*(500+rowOverhead+undoOverhead+8) + rowOverhead
			var most, done, fenced, discarded atomic.Int64 // most has the excess over the limit and the ended incarnations
			for n := range objects {
				go func() {
					defer done.Add(1)
					r := rand.New(rand.NewPCG(seed, uint64(n)))
					o := s.live("c", fmt.Sprint(n))
					for range events {
						p := o.Batch.Begin()
						for i := range r.IntN(20) {
							if err := o.putSize(t.Context(), fmt.Sprint(i), r.IntN(500)); err != nil {
								t.Error(err)
								return
							}
							before := discarded.Load()
							excess := s.Stats().Undurable - limit
							ended := fenced.Load() - before // at least as many as have ended and run
							most.Store(max(most.Load(), excess-ended*batch))
						}
						if r.IntN(4) == 0 {
							if err := o.retryFull(t.Context(), o.Batch.DeleteAll); err != nil {
								t.Error(err)
							}
						}
						switch r.IntN(4) {
						case 0:
							for _, out := range o.Rollback(p) {
								out.Release(nil)
							}
						case 1:
							o.Discard()
						case 2:
							fenced.Add(1)
							o.Fence()
							o.Discard()
							discarded.Add(1)
							o = o.next()
							continue
						}
						if err := o.Commit(o.Batch); err != nil {
							t.Error(err)
						}
						if r.IntN(3) == 0 {
							time.Sleep(time.Duration(r.IntN(1000)))
						}
					}
				}()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := done.Load(); n != objects {
				t.Fatalf("%d of %d objects came to their end", n, objects)
			}
			if n := most.Load(); n > batch {
				t.Errorf("%d bytes more than the limit of %d were not durable, want at most %d", n, limit, batch)
			}
			if st := s.Stats(); st.Undurable != 0 || s.budget.committing.Load() != 0 || s.budget.favored.Load() != nil || len(s.budget.queue) > 0 {
				t.Errorf("at rest: %+v, %d committing, favored %v, %d wait", st, s.budget.committing.Load(), s.budget.favored.Load(), len(s.budget.queue))
			}
		})
	}
}

// TestBudgetWaitEndsWithTheStore lets writes wait while the store closes.
func TestBudgetWaitEndsWithTheStore(t *testing.T) {
	held(t, Options{MaxHostBytes: 1000}, func(t *testing.T, s *Store, fs *FS, _ *releaseLog) {
		stuck := s.live("c", "stuck")
		stuck.put(t, "n", strings.Repeat("x", 900))
		favored := s.live("c", "favored")
		if err := favored.putSize(t.Context(), "n", 900); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		waits := s.live("c", "waits")
		go func() { result <- waits.putSize(context.Background(), "n", 900) }()
		synctest.Wait()
		s.Abandon()
		if err := <-result; !errors.Is(err, ErrFenced) || !errors.Is(err, ErrClosed) {
			t.Errorf("a write that waited: %v", err)
		}
	})
}

// TestBatchRepeatsAWriteThatFoundNoMemory has an error that names the write, and another error.
func TestBatchRepeatsAWriteThatFoundNoMemory(t *testing.T) {
	b := open(t, NewMemFS(), Options{}).live("c", "a").Batch
	calls := 0
	err := b.retryFull(t.Context(), func() error {
		if calls++; calls == 1 {
			return fmt.Errorf("row 1: %w", ErrFull)
		}
		return errDisk
	})
	if calls != 2 || err != errDisk {
		t.Errorf("%d calls, %v; want 2, and the error of the last one", calls, err)
	}
}
