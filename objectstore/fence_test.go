package objectstore

import (
	"errors"
	"testing"
	"testing/synctest"
)

// next begins another incarnation on the range.
func (l live) next() live {
	n := live{Range: l.Range, e: l.store.NewEpoch()}
	n.Range.Begin(n.e)
	n.Batch = n.NewBatch(n.e)
	return n
}

func (l live) absent(t testing.TB, key string) {
	t.Helper()
	v, ok, err := l.Get(nil, SpaceKV, []byte(key))
	if err != nil || ok {
		t.Fatalf("Get(%q) = %q, %v, %v; want none", key, v, ok, err)
	}
}

func TestFenceRefusesLaterCommits(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		o.put(t, "n", "7")
		o.Emit(entry{j, "before"})
		o.commitBatch(t)
		o.put(t, "n", "8")
		o.Emit(entry{j, "after"})
		o.Fence()
		if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) {
			t.Fatalf("hand-over after the fence: %v", err)
		}
		n := o.next()
		n.want(t, "n", "7")
		if err := o.Commit(o.Batch); !errors.Is(err, ErrFenced) {
			t.Fatalf("hand-over under the next incarnation: %v", err)
		}
		// A refused batch and its outputs are still the caller's.
		if outs := o.Discard(); len(outs) != 1 || outs[0] != (entry{j, "after"}) {
			t.Fatalf("outputs of the refused batch: %v", outs)
		}
		release()
		j.want(t, "before")
		n.want(t, "n", "7")
	})
}

func TestFenceDroppingKeepsBatchInFlight(t *testing.T) {
	held(t, Options{}, func(t *testing.T, s *Store, fs *FS, j *releaseLog) {
		o := s.live("c", "a")
		release := fs.HoldSyncs()
		defer release()
		o.put(t, "n", "1")
		o.Emit(entry{j, "in flight"})
		o.commitBatch(t)
		synctest.Wait()
		o.put(t, "n", "2")
		o.SetSlot(Slot{Due: due(1), Generation: 1})
		o.Emit(entry{j, "filling"})
		o.commitBatch(t)
		undurable := s.Stats().Undurable
		o.FenceDropping()
		j.want(t, "filling!")
		if now := s.Stats().Undurable; now >= undurable || now <= 0 {
			t.Errorf("undurable bytes %d, then %d", undurable, now)
		}
		n := o.next()
		n.want(t, "n", "1")
		if _, ok, _ := n.Slot(); ok {
			t.Error("the dropped slot is still there")
		}
		n.put(t, "m", "1")
		n.commitBatch(t)
		release()
		j.want(t, "in flight")
		n.want(t, "n", "1")
		n.want(t, "m", "1")
		if u := s.Stats().Undurable; u != 0 {
			t.Errorf("%d bytes undurable at rest", u)
		}
	})
}

func TestCommitRefusesForeignBatch(t *testing.T) {
	s := open(t, NewMemFS(), Options{})
	a, b := s.live("c", "a"), s.live("c", "b")
	b.put(t, "n", "1")
	if err := a.Commit(b.Batch); !errors.Is(err, ErrFenced) {
		t.Errorf("batch of another range: %v", err)
	}
	if err := a.Commit(b.NewBatch(a.e)); !errors.Is(err, ErrFenced) {
		t.Errorf("batch of another range, with the owner's epoch: %v", err)
	}
	var name *NameError
	bad := s.live("c", "a\x00b")
	bad.put(t, "n", "1")
	if err := bad.Commit(bad.Batch); !errors.As(err, &name) {
		t.Errorf("range with a bad name: %v", err)
	}
	none := s.Range(ID{"c", "z"})
	if err := none.Commit(none.NewBatch(Epoch{})); !errors.Is(err, ErrFenced) {
		t.Errorf("range without an owner: %v", err)
	}
}
