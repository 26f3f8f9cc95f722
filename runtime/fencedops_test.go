package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/alarm"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
)

// zombieCode is code of an ended incarnation that continues regardless.
type zombieCode struct {
	h   *Host
	s   *State
	ctx context.Context
	ran atomic.Bool // a function ran that must not run
}

func (g *zombieCode) fn(context.Context) error { g.ran.Store(true); return nil }

// out is an output that must not leave.
func (g *zombieCode) out(err error) {
	if err == nil {
		g.ran.Store(true)
	}
}

const kv = objectstore.SpaceKV

// fencedOps are the ways for code to have an effect on an object, or for it.
var fencedOps = map[string]func(g *zombieCode) error{
	"SetAlarm":      func(g *zombieCode) error { return g.s.SetAlarm(g.ctx, time.Now().Add(time.Hour)) },
	"SetStartAlarm": func(g *zombieCode) error { return g.s.SetStartAlarm(g.ctx, time.Now().Add(time.Hour)) },
	"DeleteAlarm":   func(g *zombieCode) error { return g.s.DeleteAlarm(g.ctx) },
	"ParkedAlarm":   func(g *zombieCode) error { _, _, err := g.s.ParkedAlarm(g.ctx); return err },
	"GetAlarm":      func(g *zombieCode) error { _, _, err := g.s.GetAlarm(g.ctx); return err },
	"Go":            func(g *zombieCode) error { return g.s.Go(g.ctx, "task", g.fn) },
	"GoImmediately": func(g *zombieCode) error { return g.s.GoImmediately(g.ctx, "task", g.fn) },
	"Emit":          func(g *zombieCode) error { return g.s.Emit(g.ctx, g.out) },
	"EmitOutput":    func(g *zombieCode) error { return g.s.EmitOutput(g.ctx, 1, g.out) },
	"Chunk":         func(g *zombieCode) error { return g.s.Chunk(g.ctx, 1, g.out, g.fn) },
	"Bookmark":      func(g *zombieCode) error { _, err := g.s.Bookmark(g.ctx); return err },
	"RestoreTo":     func(g *zombieCode) error { return g.s.RestoreTo(g.ctx, objectstore.RestorePoint{Record: 1}) },
	"Abort":         func(g *zombieCode) error { return g.s.Abort(g.ctx, errors.New("late"), true) },
	"Get":           func(g *zombieCode) error { _, _, err := g.s.Get(g.ctx, nil, kv, []byte("n")); return err },
	"Put":           func(g *zombieCode) error { return g.s.Put(g.ctx, kv, []byte("n"), []byte("ghost"), false) },
	"Delete":        func(g *zombieCode) error { _, err := g.s.Delete(g.ctx, kv, []byte("n"), true); return err },
	"DeleteAll":     func(g *zombieCode) error { return g.s.DeleteAll(g.ctx) },
	"Scan": func(g *zombieCode) (err error) {
		for _, err = range g.s.Scan(g.ctx, objectstore.Bounds{Space: kv}) {
			if err == nil {
				return nil
			}
		}
		return err
	},
	"GetRow": func(g *zombieCode) error { _, _, err := g.s.GetRow(g.ctx, orders, []byte("row")); return err },
	"PutRow": func(g *zombieCode) error {
		_, err := g.s.PutRow(g.ctx, orders, objectstore.RowWrite{Key: []byte("ghost"), Expect: objectstore.AnyVersion})
		return err
	},
	"DeleteRow": func(g *zombieCode) error {
		_, err := g.s.DeleteRow(g.ctx, orders, []byte("row"), objectstore.AnyVersion)
		return err
	},
	"Rows": func(g *zombieCode) (err error) {
		for _, err = range g.s.Rows(g.ctx, orders, objectstore.RowQuery{}) {
			if err == nil {
				return nil
			}
		}
		return err
	},
	"CountRows": func(g *zombieCode) error { _, err := g.s.CountRows(g.ctx, orders, objectstore.RowQuery{}); return err },
	"FeedEnds":  func(g *zombieCode) error { _, _, err := g.s.FeedEnds(g.ctx, "f"); return err },
	"ReadFeed": func(g *zombieCode) error {
		_, err := g.s.ReadFeed(g.ctx, "f", objectstore.Position{}, 1, 0)
		return err
	},
	"WaitFeed": func(g *zombieCode) error {
		_, err := g.s.WaitFeed(g.ctx, "f", objectstore.Position{})
		return err
	},
	"FeedReady": func(g *zombieCode) error {
		_, err := g.s.FeedReady(g.ctx, "f", objectstore.Position{})
		return err
	},
	"Deletions": func(g *zombieCode) error {
		_, err := g.s.Deletions(g.ctx)
		return err
	},
	"BeginWatch": func(g *zombieCode) error {
		_, _, err := g.s.BeginWatch(g.ctx)
		return err
	},
	"Await":    func(g *zombieCode) error { return Await(g.ctx, g.fn) },
	"Wait":     func(g *zombieCode) error { return Wait(g.ctx, g.fn) },
	"Visit":    func(g *zombieCode) error { return Visit(g.ctx, eviction.PlaceEffect) },
	"HoldTurn": func(g *zombieCode) error { return HoldTurn(g.ctx, g.fn) },
	"Sync":     func(g *zombieCode) error { return Sync(g.ctx) },
	"Sleep":    func(g *zombieCode) error { return Sleep(g.ctx, time.Nanosecond) },
	"Exclusive": func(g *zombieCode) error {
		return Exclusive(g.ctx, g.fn)
	},
	"Transaction": func(g *zombieCode) error { return Transaction(g.ctx, g.fn) },
	"Do": func(g *zombieCode) error {
		return do(g.ctx, g.h, "b", "ghost", func(ctx context.Context, _ *counter) error { return g.fn(ctx) })
	},
	"Do with a context that does not end": func(g *zombieCode) error {
		return do(context.WithoutCancel(g.ctx), g.h, "b", "ghost", func(ctx context.Context, _ *counter) error { return g.fn(ctx) })
	},
	"Send": func(g *zombieCode) error {
		sent, err := g.h.Send(g.ctx, id("b"), Call{Op: "ghost", Handler: Func(func(ctx context.Context, _ any) error { return g.fn(ctx) })})
		if err != nil {
			return err
		}
		return <-sent.Done()
	},
}

// unfencedMethods are methods of State, and functions of this package, that have no effect on an
// object; and functions of a Host that need no incarnation.
var unfencedMethods = []string{"ID", "Epoch", "Host", "Closing", "Pin", "StateOf", "DepthOf", "OnSlept", "Import", "ReviveAlarm", "ParkedAlarms", "RestoreObject"}

// TestFenceTestsCoverEveryMethodOfState searches State by reflection, and the source for
// functions with a context: code on top of this package has no other way in.
func TestFenceTestsCoverEveryMethodOfState(t *testing.T) {
	names := 0
	tried := func(what, name string) {
		if names++; fencedOps[name] == nil && !slices.Contains(unfencedMethods, name) {
			t.Errorf("%s is not among the doors that are tried after a fence", what)
		}
	}
	for m := range reflect.TypeFor[*State]().Methods() {
		tried("State."+m.Name, m.Name)
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	exported := regexp.MustCompile(`(?m)^func (\(h \*Host\) )?([A-Z]\w*)(\[[^\]]*\])?\(ctx context\.Context`)
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range exported.FindAllSubmatch(source, -1) {
			tried(file+": "+string(m[2]), string(m[2]))
		}
	}
	if names < len(fencedOps)+len(unfencedMethods)-1 { // one operation is tried twice
		t.Errorf("only %d doors were found", names)
	}
}

// contents returns the whole storage of an object, as text.
func contents(t *testing.T, h *Host) (text string) {
	t.Helper()
	err := do(t.Context(), h, "a", "look", func(ctx context.Context, c *counter) error {
		for row, err := range c.s.Scan(ctx, objectstore.Bounds{Space: kv}) {
			if err != nil {
				return err
			}
			text += fmt.Sprintf("%s=%x ", row.Key, row.Value)
		}
		for row, err := range c.s.Rows(ctx, orders, objectstore.RowQuery{}) {
			if err != nil {
				return err
			}
			text += fmt.Sprintf("%s=%s ", row.Key, row.Value)
		}
		at, ok, err := c.s.GetAlarm(ctx)
		text += fmt.Sprint(at, ok)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestIncarnationThatIsFencedIsRefusedEveryOperation(t *testing.T) {
	// Each leaves a goroutine with the context of an incarnation that has ended.
	haunts := map[string]func(ctx context.Context, go_ func(context.Context)) error{
		"with the turn": func(ctx context.Context, haunt func(context.Context)) error { haunt(ctx); return nil },
		"in an Await": func(ctx context.Context, haunt func(context.Context)) error {
			return Await(ctx, func(ctx context.Context) error { haunt(ctx); return nil })
		},
		"after its event": func(ctx context.Context, haunt func(context.Context)) error { go haunt(ctx); return nil },
		"in a Transaction": func(ctx context.Context, haunt func(context.Context)) error {
			return Transaction(ctx, func(ctx context.Context) error { haunt(ctx); return nil })
		},
		"in a HoldTurn": func(ctx context.Context, haunt func(context.Context)) error {
			return Await(ctx, func(ctx context.Context) error {
				return HoldTurn(ctx, func(ctx context.Context) error { haunt(ctx); return nil })
			})
		},
	}
	class := Class{Name: "counter", New: newCounter, Alarm: func(context.Context, any, alarm.Info) error { return nil }}
	for where, haunt := range haunts {
		for _, mode := range []eviction.EndMode{eviction.EndFence, eviction.EndCrash} {
			t.Run(fmt.Sprintf("%s, mode %d", where, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := open(t, objectstore.NewMemFS(), Options{}, class)
					if _, err := add(t.Context(), h, "a", 5); err != nil {
						t.Fatal(err)
					}
					if err := do(t.Context(), h, "a", "order", func(ctx context.Context, c *counter) error { return c.order(ctx, "row") }); err != nil {
						t.Fatal(err)
					}
					g := &zombieCode{h: h}
					evicted, finished := make(chan struct{}), make(chan struct{})
					go func() {
						_ = do(t.Context(), h, "a", "ghost", func(ctx context.Context, c *counter) error {
							return haunt(ctx, func(ctx context.Context) {
								defer close(finished)
								<-evicted
								g.s, g.ctx = c.s, ctx
								for _, name := range slices.Sorted(maps.Keys(fencedOps)) {
									if err := fencedOps[name](g); !errors.Is(err, ErrFenced) && !errors.Is(err, ErrNoTurn) {
										t.Errorf("%s: %v", name, err)
									}
								}
							})
						})
					}()
					synctest.Wait()
					if !h.Evict(id("a"), mode) {
						t.Fatal("nothing to evict")
					}
					before := contents(t, h)
					close(evicted)
					<-finished
					time.Sleep(time.Minute)
					if after := contents(t, h); after != before {
						t.Errorf("the object had %s and has %s", before, after)
					}
					if g.ran.Load() {
						t.Error("something ran that must not")
					}
				})
			})
		}
	}
}

// A pin of an ended incarnation holds nothing.
func TestPinOfAFencedIncarnationHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		var s *State
		get := func(_ context.Context, c *counter) error { s = c.s; return nil }
		if err := do(t.Context(), h, "a", "get", get); err != nil {
			t.Fatal(err)
		}
		old := s
		h.Evict(id("a"), eviction.EndFence)
		if err := do(t.Context(), h, "a", "get", get); err != nil {
			t.Fatal(err)
		}
		release := old.Pin("ghost")
		synctest.Wait()
		if info, ok := h.Inspect(id("a")); !ok || len(info.Pins) > 0 {
			t.Errorf("pins %v", info.Pins)
		}
		release()
	})
}
