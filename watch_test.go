package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// storeroom is an object with items.
func storeroom(t *testing.T, fs *objectstore.FS, o *dohost.Options) *dohost.Host {
	t.Helper()
	return openOn(t, fs, o, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
		return &shop{st.Storage()}, nil
	}, nil))
}

func inItems(t *testing.T, h *dohost.Host, f func(ctx context.Context, s *dohost.Storage) error) {
	t.Helper()
	err := shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error { return f(ctx, s.store) })
	if err != nil {
		t.Fatal(err)
	}
}

func putItems(items *dohost.Collection[item], of ...item) func(context.Context, *dohost.Storage) error {
	return func(ctx context.Context, s *dohost.Storage) error {
		for _, i := range of {
			if err := items.Put(ctx, s, i); err != nil {
				return err
			}
		}
		return nil
	}
}

// watchText watches on a goroutine of its own. The result has a word for each delta, and the last error.
type watchText struct {
	words []string
	at    []dohost.Position
	err   error
}

func (w *watchText) text() string { return strings.Join(w.words, " ") }

func watchItems(t *testing.T, h *dohost.Host, items *dohost.Collection[item], q *dohost.Query[item], o *dohost.WatchOptions,
	body func(ctx context.Context, s *dohost.Storage, d dohost.Delta[item]) error,
) *watchText {
	w := &watchText{}
	go func() {
		w.err = shops.Get(h, "x").Do(t.Context(), func(ctx context.Context, s *shop) error {
			for d, err := range items.Watch(ctx, s.store, q, o) {
				if err != nil {
					return err
				}
				w.words, w.at = append(w.words, strings.TrimSpace(d.Kind.String()+" "+d.Row.Key)), append(w.at, d.At)
				if body != nil {
					if err := body(ctx, s.store, d); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}()
	synctest.Wait()
	return w
}

func TestWatchMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		without, values := *items, *items
		without.Feed, values.Feed = nil, &dohost.Feed{Name: "items", Values: true}
		watch := func(ctx context.Context, s *dohost.Storage, c *dohost.Collection[item], q *dohost.Query[item], o *dohost.WatchOptions) (err error) {
			n := 0
			for _, err = range c.Watch(ctx, s, q, o) {
				n++
			}
			if n != 1 {
				t.Errorf("%d deltas", n)
			}
			return err
		}
		inItems(t, h, func(ctx context.Context, s *dohost.Storage) error {
			for name, err := range map[string]error{
				"no feed":      watch(ctx, s, &without, nil, nil),
				"no before":    watch(ctx, s, &values, nil, nil),
				"limit":        watch(ctx, s, items, &dohost.Query[item]{Limit: 1}, nil),
				"heartbeat":    watch(ctx, s, items, nil, &dohost.WatchOptions{Heartbeat: -1}),
				"no index":     watch(ctx, s, items, &dohost.Query[item]{Index: "none"}, nil),
				"equal prefix": watch(ctx, s, items, &dohost.Query[item]{Equal: "a", Prefix: "a"}, nil),
				"no turn":      watch(t.Context(), s, items, nil, nil),
				"transaction":  dohost.Transaction(ctx, func(ctx context.Context) error { return watch(ctx, s, items, nil, nil) }),
			} {
				if !errors.Is(err, dohost.ErrMisuse) {
					t.Errorf("%s: %v; want ErrMisuse", name, err)
				}
			}
			return nil
		})
	})
}

// TestWatchNoticesADeleteAllWithoutHistory deletes rows that no feed has recorded, while the watch waits and while its
// loop does.
func TestWatchNoticesADeleteAllWithoutHistory(t *testing.T) {
	for _, inLoop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := storeroom(t, objectstore.NewMemFS(), nil)
			items := itemsWith(0)
			old := *items
			old.Feed = nil
			inItems(t, h, putItems(&old, item{ID: "a"}))
			proceed := make(chan struct{})
			w := watchItems(t, h, items, nil, nil, func(ctx context.Context, _ *dohost.Storage, d dohost.Delta[item]) error {
				if !inLoop || d.Kind != dohost.DeltaReady {
					return nil
				}
				_, _, err := dohost.Recv(ctx, proceed)
				return err
			})
			inItems(t, h, func(ctx context.Context, s *dohost.Storage) error { return s.DeleteAll(ctx) })
			close(proceed)
			synctest.Wait()
			if got := w.text(); got != "reset enter a ready reset ready" {
				t.Errorf("in the loop: %t: %s", inLoop, got)
			}
		})
	}
}

// TestWatchNoticesADeleteAllBeforeItReads deletes rows that no feed has recorded while the watch gives up the turn to read a change. Its
// position has no log, so the first change after the DeleteAll follows it.
func TestWatchNoticesADeleteAllBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		old := *items
		old.Feed = nil
		inItems(t, h, putItems(&old, item{ID: "a"}))
		proceed, holds := make(chan struct{}), make(chan struct{})
		first := true
		w := watchItems(t, h, items, nil, nil, func(ctx context.Context, _ *dohost.Storage, d dohost.Delta[item]) error {
			if d.Kind != dohost.DeltaReady || !first {
				return nil
			}
			first = false
			_, _, err := dohost.Recv(ctx, proceed)
			close(holds)
			time.Sleep(time.Second) // with the turn, until the DeleteAll is in the queue
			return err
		})
		inItems(t, h, putItems(items, item{ID: "b"}))
		close(proceed)
		<-holds
		inItems(t, h, func(ctx context.Context, s *dohost.Storage) error {
			return errors.Join(s.DeleteAll(ctx), items.Put(ctx, s, item{ID: "c"}), s.Sync(ctx))
		})
		synctest.Wait()
		if got := w.text(); got != "reset enter a ready reset enter c ready" {
			t.Error(got)
		}
	})
}

// TestWatchDoesNotYieldUndurableWritesOfItsLoop writes in the loop while nothing becomes durable.
func TestWatchDoesNotYieldUndurableWritesOfItsLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := storeroom(t, fs, nil)
		items := itemsWith(0)
		inItems(t, h, putItems(items, item{ID: "a"}))
		var release func()
		w := watchItems(t, h, items, nil, nil, func(ctx context.Context, s *dohost.Storage, d dohost.Delta[item]) error {
			if d.Kind != dohost.DeltaReady || release != nil {
				return nil
			}
			release = fs.HoldSyncs()
			return items.Put(ctx, s, item{ID: "b"})
		})
		if got := w.text(); got != "reset enter a ready" {
			t.Errorf("before the write is durable: %s", got)
		}
		release()
		synctest.Wait()
		if got := w.text(); got != "reset enter a ready enter b ready" {
			t.Errorf("after it: %s", got)
		}
	})
}

// TestWatchRepeatsAChangeOfSeveralDeltas continues after the first of two deltas.
func TestWatchRepeatsAChangeOfSeveralDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		inItems(t, h, putItems(items, item{ID: "a"}, item{ID: "a", Tags: []string{"new", "old"}}))
		first := watchItems(t, h, items, nil, nil, nil)
		start := dohost.Position{Log: first.at[len(first.at)-1].Log, Offset: 1}
		w := watchItems(t, h, items, &dohost.Query[item]{Index: "tag"}, &dohost.WatchOptions{After: start}, nil)
		if w.text() != "enter a enter a ready" || w.at[0] != start || w.at[1].Offset != 2 {
			t.Fatalf("%s at %v", w.text(), w.at)
		}
		if w = watchItems(t, h, items, &dohost.Query[item]{Index: "tag"}, &dohost.WatchOptions{After: w.at[0]}, nil); w.text() != "enter a enter a ready" {
			t.Errorf("after the first: %s", w.text())
		}
	})
}

// TestWatchesOfAnObjectAreBounded begins one more than an object may have by default.
func TestWatchesOfAnObjectAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		var all []*watchText
		for range 257 {
			all = append(all, watchItems(t, h, items, nil, nil, nil))
		}
		if last := all[256]; !errors.Is(last.err, dohost.ErrOverloaded) || !strings.Contains(last.err.Error(), "256 watches and") || all[255].err != nil {
			t.Errorf("of 257 watches: %v, %v", all[255].err, last.err)
		}
	})
}

// TestWatchOfAnotherHistoryIsReset continues at positions of a store that its backup does not have, and has.
func TestWatchOfAnotherHistoryIsReset(t *testing.T) {
	dir := t.TempDir()
	items := itemsWith(0)
	class := dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) { return &shop{st.Storage()}, nil }, nil)
	position := func(h *dohost.Host, i item) (at dohost.Position) {
		inItems(t, h, func(ctx context.Context, s *dohost.Storage) (err error) {
			if err := items.Put(ctx, s, i); err != nil {
				return err
			}
			at, err = items.Feed.End(ctx, s)
			return err
		})
		return at
	}
	h, err := dohost.Open(dir+"/store", nil, class)
	if err != nil {
		t.Fatal(err)
	}
	common := position(h, item{ID: "a"})
	if err := h.Backup(t.Context(), dir+"/backup"); err != nil {
		t.Fatal(err)
	}
	lost := position(h, item{ID: "b"})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h, err = dohost.Open(dir+"/backup", nil, class)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	position(h, item{ID: "c"})
	for _, c := range []struct {
		after dohost.Position
		want  string
	}{{common, "enter c ready"}, {lost, "reset enter a enter c ready"}, {dohost.Position{Log: "no log", Offset: 1 << 60}, "reset enter a enter c ready"}} {
		var got []string
		inItems(t, h, func(ctx context.Context, s *dohost.Storage) error {
			for d, err := range items.Watch(ctx, s, nil, &dohost.WatchOptions{After: c.after}) {
				if err != nil {
					return err
				}
				got = append(got, strings.TrimSpace(d.Kind.String()+" "+d.Row.Key))
				if d.Kind == dohost.DeltaReady {
					break
				}
			}
			return nil
		})
		if strings.Join(got, " ") != c.want {
			t.Errorf("after %v: %q; want %s", c.after, got, c.want)
		}
	}
}

// TestWatchEndsWhenTheHostCloses also counts the watches of an object.
func TestWatchEndsWhenTheHostCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), &dohost.Options{MaxEvents: 6})
		items := itemsWith(0)
		var all []*watchText
		for range 4 {
			all = append(all, watchItems(t, h, items, nil, nil, nil))
		}
		if last := all[3]; !errors.Is(last.err, dohost.ErrOverloaded) || all[2].err != nil {
			t.Errorf("of four watches, with a limit of three: %v, %v", all[2].err, last.err)
		}
		begun := time.Now()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("Close took %v", took)
		}
		synctest.Wait()
		for _, w := range all[:3] {
			if !errors.Is(w.err, dohost.ErrClosed) {
				t.Errorf("the watch ended with %v; want ErrClosed", w.err)
			}
		}
	})
}

// TestWatchGivesUpWithATinyFeed writes so much during the list of the rows that the feed never has all changes.
func TestWatchGivesUpWithATinyFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(1)
		for n := range 300 { // more than a page
			inItems(t, h, putItems(items, item{ID: fmt.Sprint(n)}))
		}
		resets := 0
		w := watchItems(t, h, items, nil, nil, func(ctx context.Context, s *dohost.Storage, d dohost.Delta[item]) error {
			if d.Kind == dohost.DeltaReset {
				resets++
			}
			if d.Row.Key == "0" {
				return putItems(items, item{ID: "0"}, item{ID: "0"}, item{ID: "0"})(ctx, s)
			}
			return nil
		})
		if _, ok := errors.AsType[*dohost.FeedError](w.err); !ok || !strings.Contains(w.err.Error(), "too few entries") || resets != 11 {
			t.Errorf("after %d resets: %v", resets, w.err)
		}
	})
}

// TestWatchRepeatsReadyAsItsHeartbeat also gives up the turn: writes of other events are not delayed.
func TestWatchRepeatsReadyAsItsHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storeroom(t, objectstore.NewMemFS(), nil)
		items := itemsWith(0)
		w := watchItems(t, h, items, nil, &dohost.WatchOptions{Heartbeat: time.Second}, nil)
		time.Sleep(2500 * time.Millisecond)
		inItems(t, h, putItems(items, item{ID: "a"}))
		synctest.Wait()
		if got := w.text(); got != "reset ready ready ready enter a ready" {
			t.Error(got)
		}
	})
}
