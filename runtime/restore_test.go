package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// TestEventsInTheQueueRunOnTheRestoredState restores an object while an event runs and others wait.
func TestEventsInTheQueueRunOnTheRestoredState(t *testing.T) {
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

// TestRestoreThatFailsLeavesTheObjectAlone tries moments that cannot be restored, and a context that has ended.
func TestRestoreThatFailsLeavesTheObjectAlone(t *testing.T) {
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
