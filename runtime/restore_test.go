package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// shipping opens a host that ships to a folder on the same file system.
func shipping(t *testing.T, fs *objectstore.FS, classes ...Class) *Host {
	t.Helper()
	a, err := objectstore.OpenDirArchive(fs, "/archive")
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, fs, Options{Store: objectstore.Options{Ship: &objectstore.Shipping{Archive: a}}}, classes...)
	t.Cleanup(func() { _ = errors.Join(h.Close(), a.Close()) })
	time.Sleep(5 * time.Second) // the first base: moments before it cannot be restored
	return h
}

// pausedArchive refuses objects while it is down.
type pausedArchive struct {
	objectstore.Archive
	down atomic.Bool
}

func (a *pausedArchive) Put(ctx context.Context, name string, content []byte) error {
	if a.down.Load() {
		return errors.New("down")
	}
	return a.Archive.Put(ctx, name, content)
}

// pausedShipping opens a host that ships to an archive that is down after the first base.
func pausedShipping(t *testing.T) (*Host, *pausedArchive) {
	t.Helper()
	dir, err := objectstore.OpenDirArchive(objectstore.NewMemFS(), "/archive")
	if err != nil {
		t.Fatal(err)
	}
	a := &pausedArchive{Archive: dir}
	h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{Ship: &objectstore.Shipping{Archive: a}}})
	time.Sleep(5 * time.Second)
	a.down.Store(true)
	return h, a
}

// bookmark returns the bookmark of the counter of that name.
func bookmark(t *testing.T, h *Host, name string) objectstore.RestorePoint {
	t.Helper()
	var b objectstore.Bookmark
	err := do(t.Context(), h, name, "bookmark", func(ctx context.Context, c *counter) (err error) {
		b, err = c.s.Bookmark(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return objectstore.RestorePoint{Bookmark: b}
}

func wantTotal(t *testing.T, h *Host, name string, want int) {
	t.Helper()
	if n, err := add(t.Context(), h, name, 0); err != nil || n != want {
		t.Errorf("the counter has %d, %v; want %d", n, err, want)
	}
}

func wantRestored(t *testing.T, err error) {
	t.Helper()
	if why, ok := errors.AsType[*Fenced](err); !ok || why.Reason != ReasonRestored {
		t.Errorf("%v; want the end of the incarnation by a restore", err)
	}
}

// TestQueuedEventsRunOnTheRestoredState restores an object while an event runs and others wait.
func TestQueuedEventsRunOnTheRestoredState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		for _, n := range []int{1, 10} {
			if _, err := add(t.Context(), h, "a", n); err != nil {
				t.Fatal(err)
			}
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 100); err != nil {
			t.Fatal(err)
		}
		running, queued := make(chan error, 1), [3]chan string{make(chan string, 1), make(chan string, 1), make(chan string, 1)}
		go func() {
			running <- do(t.Context(), h, "a", "wait", func(ctx context.Context, c *counter) error {
				if _, err := c.add(ctx, 1000); err != nil {
					return err
				}
				if err := Sync(ctx); err != nil { // the record before the replacement has this write
					return err
				}
				if _, err := c.add(ctx, 5000); err != nil {
					return err
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		for i := range 3 {
			go func() {
				n, err := add(t.Context(), h, "a", 1)
				queued[i] <- fmt.Sprint(n, err)
			}()
			synctest.Wait()
			if len(queued[i]) > 0 {
				t.Fatalf("call %d did not wait", i)
			}
		}
		undo, err := h.RestoreObject(t.Context(), id("a"), earlier)
		if err != nil {
			t.Fatal(err)
		}
		wantRestored(t, <-running)
		for want := range 3 {
			if got := <-queued[want]; got != fmt.Sprint(12+want, nil) {
				t.Errorf("a call that waited got %s, want %d", got, 12+want)
			}
		}
		if undo <= earlier.Bookmark {
			t.Errorf("the bookmark before the replacement is %s, the one of the restored state %s", undo, earlier.Bookmark)
		}
		if _, err := h.RestoreObject(t.Context(), id("a"), objectstore.RestorePoint{Bookmark: undo}); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 1111)
		if _, err := h.RestoreObject(t.Context(), id("none"), earlier); err != nil {
			t.Errorf("an object that was never there: %v", err)
		}
		wantTotal(t, h, "none", 0)
		if _, err := h.RestoreObject(t.Context(), ID{Class: "none", Name: "a"}, earlier); !errors.Is(err, ErrNoClass) {
			t.Errorf("an object of an unknown class: %v", err)
		}
	})
}

// TestFailedRestoreLeavesTheObjectAlone tries moments that cannot be restored, and a context that has ended.
func TestFailedRestoreLeavesTheObjectAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		now := bookmark(t, h, "a")
		info, _ := h.Inspect(id("a"))
		ended, end := context.WithCancelCause(t.Context())
		reason := errors.New("enough")
		end(reason)
		for _, c := range []struct {
			ctx  context.Context
			to   objectstore.RestorePoint
			want error
		}{
			{t.Context(), objectstore.RestorePoint{Record: 999}, objectstore.ErrNotArchived},
			{t.Context(), objectstore.RestorePoint{Bookmark: "x"}, objectstore.ErrBookmark},
			{ended, now, reason},
		} {
			if _, err := h.RestoreObject(c.ctx, id("a"), c.to); !errors.Is(err, c.want) {
				t.Errorf("as of %v: %v, want %v", c.to, err, c.want)
			}
		}
		if err := h.lookup(id("a")).deferReplacement(ended, &replacement{}, nil); !errors.Is(err, reason) {
			t.Errorf("a replacement with a context that has ended: %v", err)
		}
		given := &replacement{} // its caller has given up
		given.taken.Store(true)
		if after, _ := h.Inspect(id("a")); after.Epoch != info.Epoch {
			t.Errorf("the incarnation is %v, was %v", after.Epoch, info.Epoch)
		}
		if err := h.lookup(id("a")).deferReplacement(t.Context(), given, nil); err != nil {
			t.Error(err)
		}
		wantTotal(t, h, "a", 1)
	})
}

// TestRestoreWaitsForAnImport restores an object while an import has it, and gives up, and then waits.
func TestRestoreWaitsForAnImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		if _, err := add(t.Context(), h, "b", 1); err != nil {
			t.Fatal(err)
		}
		o := h.classes["counter"].objectOf("a")
		if ok, err := o.claim(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		now := bookmark(t, h, "b")
		o.mu.Lock()
		o.deferredSlots = &slotEdit{delivery: &delivery{alarm: objectstore.Alarm{ID: o.id()}}} // as a failed delivery leaves
		o.mu.Unlock()
		brief, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if _, err := h.RestoreObject(brief, id("a"), now); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the object is imported: %v", err)
		}
		calls := make(chan error, 2)
		go func() { _, err := add(t.Context(), h, "a", 1); calls <- err }()
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), now); calls <- err }()
		time.Sleep(5 * time.Second)
		if len(calls) > 0 {
			t.Errorf("a call or a restore did not wait: %v", <-calls)
		}
		o.endClaim()
		begun := time.Now()
		for range 2 {
			if err := <-calls; err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the restore waited %v for the events", waited)
		}
		wantTotal(t, h, "a", 1)
	})
}

// listedArchive counts its lists: each restore makes one.
type listedArchive struct {
	objectstore.Archive
	lists atomic.Int64
}

func (a *listedArchive) List(ctx context.Context) ([]objectstore.ArchiveObject, error) {
	a.lists.Add(1)
	return a.Archive.List(ctx)
}

// TestRestoresThatWaitAreBounded restores more objects than may have their state in memory, while none of them can be replaced.
func TestRestoresThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, err := objectstore.OpenDirArchive(objectstore.NewMemFS(), "/archive")
		if err != nil {
			t.Fatal(err)
		}
		a := &listedArchive{Archive: dir}
		h := open(t, objectstore.NewMemFS(), Options{Store: objectstore.Options{Ship: &objectstore.Shipping{Archive: a}}})
		time.Sleep(5 * time.Second)
		if _, err := add(t.Context(), h, "b", 1); err != nil {
			t.Fatal(err)
		}
		now := bookmark(t, h, "b")
		time.Sleep(5 * time.Second)
		before := a.lists.Load()
		ctx, giveUp := context.WithCancel(t.Context())
		results := make(chan error, maxRestores+1)
		var claimed []*object
		for i := range maxRestores + 1 {
			name := fmt.Sprint("imported", i)
			o := h.classes["counter"].objectOf(name)
			if ok, err := o.claim(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			claimed = append(claimed, o)
			go func() { _, err := h.RestoreObject(ctx, id(name), now); results <- err }()
		}
		time.Sleep(5 * time.Second)
		if n := a.lists.Load() - before; n != maxRestores {
			t.Errorf("%d of %d restores have read the archive, want %d", n, maxRestores+1, maxRestores)
		}
		giveUp()
		for range maxRestores + 1 {
			if err := <-results; !errors.Is(err, context.Canceled) {
				t.Errorf("a restore that was given up: %v", err)
			}
		}
		for _, o := range claimed {
			o.endClaim()
		}
		if _, err := h.RestoreObject(t.Context(), id("b"), now); err != nil {
			t.Error(err)
		}
		wantTotal(t, h, "b", 1)
	})
}

// TestBookmarkBeforeAReplacementHasAllCommits restores an object with commits that the disk does not have yet.
func TestBookmarkBeforeAReplacementHasAllCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := shipping(t, fs)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		state, err := h.store.ArchivedState(t.Context(), id("a"), earlier)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		answered := make(chan error, 1)
		go func() {
			answered <- do(t.Context(), h, "a", "no wait", func(ctx context.Context, c *counter) error {
				return c.s.Put(ctx, kv, []byte("x"), []byte{0, 0, 0, 0, 0, 0, 0, 7}, true)
			})
		}()
		synctest.Wait()
		type result struct {
			undo objectstore.Bookmark
			err  error
		}
		results := make(chan result, 1)
		go func() {
			r := &replacement{state: state, done: make(chan struct{})}
			err := h.lookup(id("a")).deferReplacement(t.Context(), r, nil)
			results <- result{r.undo, errors.Join(err, r.wait(t.Context()))}
		}()
		time.Sleep(time.Second)
		if len(results) > 0 || len(answered) == 0 {
			t.Error("the restore did not wait for the disk, or a call that writes without waiting did")
		}
		release()
		r := <-results
		if err := errors.Join(<-answered, r.err); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 1)
		if _, err := h.RestoreObject(t.Context(), id("a"), objectstore.RestorePoint{Bookmark: r.undo}); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 11)
		err = do(t.Context(), h, "a", "get", func(ctx context.Context, c *counter) error {
			if x, err := c.get(ctx, "x"); err != nil || x != 7 {
				t.Errorf("x is %d, %v", x, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestDeferredSlotWritesComeBeforeAReplacement restores an alarm that has failed, while a slot write of another alarm is due.
func TestDeferredSlotWritesComeBeforeAReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS(), Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error {
			return errors.New("failed")
		}})
		setAlarm(t, h, "a", time.Second)
		time.Sleep(1100 * time.Millisecond) // the next attempt is two seconds after the first
		failed := objectstore.RestorePoint{Record: h.Store().Stats().Ship.Record}
		if err := do(t.Context(), h, "a", "delete", func(ctx context.Context, c *counter) error { return c.s.DeleteAlarm(ctx) }); err != nil {
			t.Fatal(err)
		}
		h.Evict(id("a"), eviction.EndFence)
		o := h.classes["counter"].objectOf("a")
		if ok, err := o.claim(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		o.mu.Lock()
		o.deferredSlots = &slotEdit{delivery: &delivery{alarm: objectstore.Alarm{ID: o.id()}}}
		o.mu.Unlock()
		restored := make(chan error, 1)
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), failed); restored <- err }()
		time.Sleep(1200 * time.Millisecond) // the archive has it
		o.endClaim()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		sn, err := h.Store().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer sn.Close()
		if slot, ok, err := sn.Slot(id("a")); !ok || err != nil || slot.Attempt != 1 {
			t.Errorf("the restored alarm is %+v, %v, %v", slot, ok, err)
		}
	})
}

// TestRestoreEndsTheBackOffOfAConstructor restores an object whose constructor fails because of its state.
func TestRestoreEndsTheBackOffOfAConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS(), Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
			c := &counter{s: s}
			if n, err := c.get(ctx, "n"); err != nil || n > 9 {
				return nil, errors.Join(err, errors.New("too many"))
			}
			return c, nil
		}})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		h.Evict(id("a"), eviction.EndFence)
		time.Sleep(5 * time.Second)
		for range 5 {
			if _, err := add(t.Context(), h, "a", 1); !errors.Is(err, ErrConstructor) {
				t.Errorf("with the broken state: %v", err)
			}
		}
		if _, err := h.RestoreObject(t.Context(), id("a"), earlier); err != nil {
			t.Fatal(err)
		}
		wantTotal(t, h, "a", 1)
	})
}

// TestObjectRestoresItself calls RestoreTo.
func TestObjectRestoresItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := shipping(t, objectstore.NewMemFS())
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		restore := func(to objectstore.RestorePoint) error {
			return do(t.Context(), h, "a", "restore", func(ctx context.Context, c *counter) error {
				if _, err := c.add(ctx, 100); err != nil {
					return err
				}
				err := c.s.RestoreTo(ctx, to)
				if errors.Is(err, ErrFenced) {
					if _, late := c.add(ctx, 1000); !errors.Is(late, ErrFenced) {
						t.Errorf("a write after RestoreTo: %v", late)
					}
					return err
				}
				_, addErr := c.add(ctx, 100) // it has the turn
				return errors.Join(err, addErr)
			})
		}
		if err := restore(objectstore.RestorePoint{Record: 999}); !errors.Is(err, objectstore.ErrNotArchived) {
			t.Errorf("a moment to come: %v", err)
		}
		wantTotal(t, h, "a", 211)
		wantRestored(t, restore(earlier))
		wantTotal(t, h, "a", 1)
		err := do(t.Context(), h, "b", "restore", func(ctx context.Context, _ *counter) error {
			other := h.lookup(id("a"))
			return (*State)(other.incarnation).RestoreTo(ctx, earlier)
		})
		if !errors.Is(err, ErrNoTurn) {
			t.Errorf("with the context of another object: %v", err)
		}
		err = do(t.Context(), h, "a", "transaction", func(ctx context.Context, c *counter) error {
			return Transaction(ctx, func(ctx context.Context) error {
				_, err := c.s.Bookmark(ctx)
				if !errors.Is(err, ErrInTransaction) {
					t.Errorf("Bookmark in a transaction: %v", err)
				}
				return c.s.RestoreTo(ctx, earlier)
			})
		})
		if !errors.Is(err, ErrInTransaction) {
			t.Errorf("RestoreTo in a transaction: %v", err)
		}
		wantTotal(t, h, "a", 1)
	})
}

// TestRestoreOfAnEvictedIncarnationDoesNothing evicts an object that waits in RestoreTo for the archive.
func TestRestoreOfAnEvictedIncarnationDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := pausedShipping(t)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		if _, err := add(t.Context(), h, "a", 10); err != nil {
			t.Fatal(err)
		}
		restored := make(chan error, 1)
		go func() {
			restored <- do(t.Context(), h, "a", "restore", func(ctx context.Context, c *counter) error { return c.s.RestoreTo(ctx, earlier) })
		}()
		synctest.Wait()
		h.Evict(id("a"), eviction.EndFence)
		a.down.Store(false)
		if err := <-restored; !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		wantTotal(t, h, "a", 11)
		inc := h.lookup(id("a")).incarnation
		h.Evict(id("a"), eviction.EndFence)
		wantTotal(t, h, "a", 11)
		if _, err := h.restoreObject(t.Context(), id("a"), earlier, inc); !errors.Is(err, ErrFenced) {
			t.Errorf("for an incarnation that has ended: %v", err)
		}
		wantTotal(t, h, "a", 11)
	})
}

// alarmCounter has a constructor that deletes the alarm, if its name says so, and counts its alarms.
func alarmCounter(fired *[]string) Class {
	return Class{Name: "counter", New: func(ctx context.Context, s *State) (any, error) {
		c := &counter{s: s}
		if strings.HasPrefix(s.ID().Name, "deletes") {
			if n, err := c.get(ctx, "wakes"); err != nil || n > 0 {
				return c, errors.Join(err, s.DeleteAlarm(ctx))
			}
		}
		return c, nil
	}, Alarm: func(_ context.Context, o any, _ alarm.Info) error {
		*fired = append(*fired, o.(*counter).s.ID().Name)
		return nil
	}}
}

// TestRestoredAlarms restores alarms that are due, and removes alarms by a restore while their delivery waits.
func TestRestoredAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired []string
		h := shipping(t, objectstore.NewMemFS(), alarmCounter(&fired))
		wantFired := func(when string, names ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if fmt.Sprint(fired) != fmt.Sprint(names) {
				t.Errorf("%s: the alarms of %q have fired, want %q", when, fired, names)
			}
		}
		without := bookmark(t, h, "a")
		setAlarm(t, h, "a", 10*time.Second)
		with := bookmark(t, h, "a")
		time.Sleep(time.Minute)
		wantFired("when it is due", "a")
		for range 2 {
			if _, err := h.RestoreObject(t.Context(), id("a"), with); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		wantFired("after two restores", "a", "a", "a")
		setAlarm(t, h, "a", 10*time.Second)
		if _, err := h.RestoreObject(t.Context(), id("a"), without); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantFired("after a restore without an alarm", "a", "a", "a")

		fired = nil
		for _, name := range []string{"b", "deletes b"} {
			without := bookmark(t, h, name)
			if _, err := add(t.Context(), h, name, 1); err != nil {
				t.Fatal(err)
			}
			err := do(t.Context(), h, name, "wakes", func(ctx context.Context, c *counter) error {
				return c.s.Put(ctx, kv, []byte("wakes"), []byte{0, 0, 0, 0, 0, 0, 0, 1}, false)
			})
			if err != nil {
				t.Fatal(err)
			}
			setAlarm(t, h, name, 5*time.Second)
			ended := make(chan error, 2)
			for range 2 { // one that runs, and one that waits
				go func() {
					ended <- do(t.Context(), h, name, "wait", func(ctx context.Context, _ *counter) error { <-ctx.Done(); return context.Cause(ctx) })
				}()
				synctest.Wait()
			}
			time.Sleep(10 * time.Second) // the delivery waits, too
			h.Evict(id(name), eviction.EndFence)
			synctest.Wait() // the second one runs, and the delivery waits in its incarnation
			if _, err := h.RestoreObject(t.Context(), id(name), without); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(<-ended, <-ended); !errors.Is(err, ErrFenced) {
				t.Error(err)
			}
			wantFired("after a restore of " + name)
			wantTotal(t, h, name, 0)
		}
	})
}

// TestRestoresAmongOtherEndsOfIncarnations restores, evicts and calls an object at random. Two keys are always equal.
func TestRestoresAmongOtherEndsOfIncarnations(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := shipping(t, objectstore.NewMemFS())
				both := func(ctx context.Context, write bool) error {
					return do(ctx, h, "a", "both", func(ctx context.Context, c *counter) error {
						x, err := c.get(ctx, "x")
						y, err2 := c.get(ctx, "y")
						if err := errors.Join(err, err2); err != nil || !write {
							return err
						}
						if x != y {
							t.Errorf("x is %d, and y is %d", x, y)
						}
						v := []byte{0, 0, 0, 0, 0, 0, byte(x >> 8), byte(x + 1)}
						return errors.Join(c.s.Put(ctx, kv, []byte("x"), v, false), c.s.Put(ctx, kv, []byte("y"), v, false))
					})
				}
				if err := both(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				first := h.Store().Stats().Ship.Record
				var wg sync.WaitGroup
				var mu sync.Mutex
				restored := 0
				for worker := range 6 {
					rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
					wg.Go(func() {
						for range 30 {
							time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
							var err error
							switch {
							case worker < 3:
								err = both(t.Context(), true)
							case worker == 3:
								h.Evict(id("a"), []eviction.EndMode{eviction.EndFence, eviction.EndCrash}[rnd.IntN(2)])
							default:
								number := first + rnd.Uint64N(h.Store().Stats().Ship.Record-first+1)
								_, err = h.RestoreObject(t.Context(), id("a"), objectstore.RestorePoint{Record: number})
								if err == nil {
									mu.Lock()
									restored++
									mu.Unlock()
								}
							}
							if err != nil && !errors.Is(err, ErrFenced) {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				if err := both(t.Context(), false); err != nil {
					t.Error(err)
				}
				if restored < 40 {
					t.Errorf("only %d restores", restored)
				}
			})
		})
	}
}

// TestHostClosesDuringARestore closes a host whose archive takes no records.
func TestHostClosesDuringARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := pausedShipping(t)
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		now := bookmark(t, h, "a")
		done := make(chan error, 1)
		go func() { _, err := h.RestoreObject(t.Context(), id("a"), now); done <- err }()
		synctest.Wait()
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) || time.Since(begun) > 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

// TestDeliveryDuringAReplacementIsComparedBeforeAConstructor replaces an alarm that becomes due while the disk does not answer: no
// incarnation begins for its delivery.
func TestDeliveryDuringAReplacementIsComparedBeforeAConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		var constructed atomic.Int32
		h := shipping(t, fs, Class{
			Name:  "counter",
			New:   func(ctx context.Context, s *State) (any, error) { constructed.Add(1); return newCounter(ctx, s) },
			Alarm: func(context.Context, any, alarm.Info) error { t.Error("the replaced alarm fired"); return nil },
		})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		earlier := bookmark(t, h, "a")
		setAlarm(t, h, "a", 10*time.Second)
		state, err := h.store.ArchivedState(t.Context(), id("a"), earlier)
		if err != nil {
			t.Fatal(err)
		}
		release := fs.HoldSyncs()
		restored := make(chan error, 1)
		go func() {
			r := &replacement{state: state, done: make(chan struct{})}
			err := h.lookup(id("a")).deferReplacement(t.Context(), r, nil)
			restored <- errors.Join(err, r.wait(t.Context()))
		}()
		time.Sleep(10 * time.Second)
		if len(restored) > 0 {
			t.Error("the restore did not wait for the disk")
		}
		release()
		if err := <-restored; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := constructed.Load(); n != 1 {
			t.Errorf("%d incarnations began, want 1", n)
		}
	})
}
