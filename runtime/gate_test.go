package runtime

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// call1 starts a call of fn on the object a, for its outputs.
func call1(ctx context.Context, h *Host, fn func(context.Context, *counter) error) (returned *atomic.Bool) {
	returned = new(atomic.Bool)
	go func() {
		_ = do(ctx, h, "a", "case", fn)
		returned.Store(true)
	}()
	return returned
}

func TestGateHoldsOutputsUntilTheirWritesAreDurable(t *testing.T) {
	write := func(ctx context.Context, c *counter) error { return c.put(ctx, "n", 7) }
	// Each starts something with an output that must not be seen while the sync is held.
	outputs := map[string]func(ctx context.Context, h *Host, left *atomic.Bool){
		"result": func(ctx context.Context, h *Host, left *atomic.Bool) {
			go func() { _ = do(ctx, h, "a", "w", write); left.Store(true) }()
		},
		"error": func(ctx context.Context, h *Host, left *atomic.Bool) {
			go func() {
				err := do(ctx, h, "a", "w", func(ctx context.Context, c *counter) error {
					return errors.Join(errors.New("no"), write(ctx, c))
				})
				left.Store(err != nil)
			}()
		},
		"call": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				if err := write(ctx, c); err != nil {
					return err
				}
				return do(ctx, h, "b", "callee", func(context.Context, *counter) error { left.Store(true); return nil })
			})
		},
		"fn of Await": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				if err := write(ctx, c); err != nil {
					return err
				}
				return Await(ctx, func(context.Context) error { left.Store(true); return nil })
			})
		},
		"Emit": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				return errors.Join(c.s.Emit(ctx, func(error) { left.Store(true) }), write(ctx, c))
			})
		},
		"Emit without the turn": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				if err := write(ctx, c); err != nil {
					return err
				}
				return Wait(ctx, func(ctx context.Context) error {
					return c.s.Emit(ctx, func(error) { left.Store(true) })
				})
			})
		},
		"task": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				return errors.Join(c.s.Go(ctx, "task", func(context.Context) error { left.Store(true); return nil }), write(ctx, c))
			})
		},
		"end of Sync": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				err := errors.Join(write(ctx, c), Sync(ctx))
				left.Store(true)
				return err
			})
		},
		"end of Sync after a NoWait write": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				err := errors.Join(c.s.Put(ctx, objectstore.SpaceKV, []byte("n"), []byte("7"), true), Sync(ctx))
				left.Store(true)
				return err
			})
		},
		"end of HoldTurn": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, func(ctx context.Context, c *counter) error {
				return Await(ctx, func(ctx context.Context) error {
					err := HoldTurn(ctx, func(ctx context.Context) error { return write(ctx, c) })
					left.Store(true)
					return err
				})
			})
		},
		"answer of an event that only reads": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, write)
			synctest.Wait()
			go func() {
				var n int
				err := do(ctx, h, "a", "r", func(ctx context.Context, c *counter) (err error) {
					n, err = c.get(ctx, "n")
					return err
				})
				left.Store(err == nil && n == 7)
			}()
		},
		"answer of the next incarnation's first event": func(ctx context.Context, h *Host, left *atomic.Bool) {
			call1(ctx, h, write)
			synctest.Wait()
			h.Evict(id("a"), eviction.EndFence)
			go func() {
				var n int
				err := do(ctx, h, "a", "r", func(ctx context.Context, c *counter) (err error) {
					n, err = c.get(ctx, "n")
					return err
				})
				left.Store(err == nil && n == 7)
			}()
		},
	}
	for name, start := range outputs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := objectstore.NewMemFS()
				h := open(t, fs, Options{})
				if _, err := add(t.Context(), h, "a", 1); err != nil {
					t.Fatal(err)
				}
				release := fs.HoldSyncs()
				var left atomic.Bool
				start(t.Context(), h, &left)
				time.Sleep(10 * time.Second)
				if left.Load() {
					t.Error("it left before the sync")
				}
				release()
				time.Sleep(time.Second)
				if !left.Load() {
					t.Error("it has not left after the sync")
				}
			})
		})
	}
}

func TestGateIgnoresNoWaitWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		release := fs.HoldSyncs()
		defer release()
		ran := call1(t.Context(), h, func(ctx context.Context, c *counter) error {
			return c.s.Put(ctx, objectstore.SpaceKV, []byte("n"), []byte("7"), true)
		})
		synctest.Wait()
		if !ran.Load() {
			t.Error("the answer waits for a NoWait write")
		}
		waits := call1(t.Context(), h, func(ctx context.Context, c *counter) error { return c.put(ctx, "m", 1) })
		synctest.Wait()
		if waits.Load() {
			t.Error("a write after a NoWait write does not hold its answer back")
		}
	})
}

// While a sync is held the object continues to run; its outputs leave in order, whether or
// not an event wrote, and the calls that it makes arrive in order.
func TestOutputsAreReleasedInTheOrderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		release := fs.HoldSyncs()
		var mu sync.Mutex
		var out, arrived, want []string
		note := func(list *[]string, what string) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, what)
		}
		for i := range 100 {
			what := fmt.Sprint(i)
			want = append(want, what)
			call1(t.Context(), h, func(ctx context.Context, c *counter) error {
				if i%3 == 0 {
					if err := c.put(ctx, "n", i); err != nil {
						return err
					}
				}
				if err := c.s.Emit(ctx, func(error) { note(&out, what) }); err != nil {
					return err
				}
				return do(ctx, h, "b", "arrive", func(context.Context, *counter) error { note(&arrived, what); return nil })
			})
			synctest.Wait()
			if i == 50 {
				if len(out) > 0 {
					t.Fatalf("%v left before the sync", out)
				}
				release()
				release = fs.HoldSyncs()
			}
		}
		release()
		synctest.Wait()
		if !slices.Equal(out, want) {
			t.Errorf("outputs left as %v", out)
		}
		if !slices.Equal(arrived, want) {
			t.Errorf("calls arrived as %v", arrived)
		}
	})
}

func TestSyncsAreSharedByAThousandCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := open(t, fs, Options{})
		fs.OnWrite(func(op, path string, _ int64) error {
			if op == "sync" && strings.HasSuffix(path, ".log") {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		before := fs.Syncs()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				n, err := add(t.Context(), h, "a", 1)
				if err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if have := durable(t, fs, "a"); have < n {
						t.Errorf("answered %d, and a power cut leaves %d", n, have)
					}
				}
			})
		}
		wg.Wait()
		fs.OnWrite(nil)
		if syncs := fs.Syncs() - before; syncs >= 100 {
			t.Errorf("%d syncs", syncs)
		} else {
			t.Logf("%d syncs for 1,000 calls", syncs)
		}
		if n, err := add(t.Context(), h, "a", 0); err != nil || n != 1000 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// TestSyncsAreSharedByManyObjectsOnOneCore has callers of different objects on one core, so only
// one runs at a time: each would find the committer waiting for it.
func TestSyncsAreSharedByManyObjectsOnOneCore(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(1))
	fs := objectstore.NewMemFS()
	h := open(t, fs, Options{})
	const callers, calls = 64, 20
	before := fs.Syncs()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range calls {
				if _, err := add(t.Context(), h, fmt.Sprint(i), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if syncs := fs.Syncs() - before; syncs > callers*calls/8 {
		t.Errorf("%d syncs for %d calls", syncs, callers*calls)
	} else {
		t.Logf("%d syncs for %d calls", syncs, callers*calls)
	}
}

// durable returns the counter's value after a power cut.
func durable(t *testing.T, fs *objectstore.FS, name string) int {
	t.Helper()
	h, err := Open("data", Options{Store: objectstore.Options{FS: fs.Crash(0, 1)}}, []Class{{Name: "counter", New: newCounter}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	n, err := add(t.Context(), h, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
