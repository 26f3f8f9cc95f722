package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// pointWatch is a watcher outside of the object, which outlives incarnations and processes.
type pointWatch struct {
	watchQuery
	fold
	seen map[string]string // values by key and version: the log of an outside system
}

// watchPoints is a writer and three watchers of one object.
type watchPoints struct {
	items    *dohost.Collection[item]
	watchers []*pointWatch
}

const pointWrites = 4

// write makes write n, if it was not made before. Each try has its own value, so that a lost try differs from the next one. The second part is
// written as soon as the first is durable, so a watch that wakes for the first may find the second before it is durable.
func (w *watchPoints) write(ctx context.Context, s *dohost.Storage, n, try int) error {
	before, ok, err := w.items.Get(ctx, s, "n")
	if err != nil || ok && before.Value.N >= n {
		return err
	}
	err = w.items.Put(ctx, s, item{ID: string(rune('a' + n%2)), Shelf: []string{"x", "y"}[n/2%2], N: n % 4, Pad: fmt.Sprint(try)})
	if err == nil && n == 4 {
		_, err = w.items.Delete(ctx, s, "a")
	}
	if err == nil {
		err = dohost.AwaitDurable(ctx)
	}
	return errors.Join(err, w.items.Put(ctx, s, item{ID: "n", N: n, Shelf: "y", Pad: fmt.Sprint(try)}))
}

func (w *watchPoints) writeAll(ctx context.Context, h *dohosttest.Host) error {
	tries := 0
	for n := 1; n <= pointWrites; n++ {
		err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
			tries++
			try := tries
			return shops.Get(h, "x").Do(ctx, func(ctx context.Context, s *shop) error { return w.write(ctx, s.store, n, try) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// follow watches until it has seen all writes. After the end of an incarnation it continues at its position.
func (w *watchPoints) follow(ctx context.Context, h *dohosttest.Host, p *pointWatch) error {
	return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
		return shops.Get(h, "x").Do(ctx, func(ctx context.Context, s *shop) error {
			for d, err := range w.items.Watch(ctx, s.store, p.q, &dohost.WatchOptions{After: p.at}) {
				if err != nil {
					return err
				}
				if err := p.take(d); err != nil {
					return err
				}
				last, _, err := w.items.Get(ctx, s.store, "n")
				if err != nil {
					return err
				}
				if end, err := w.items.Feed.End(ctx, s.store); err != nil || d.Kind == dohost.DeltaReady && last.Value.N == pointWrites && d.At == end {
					return err
				}
			}
			return errors.New("a watch ended")
		})
	})
}

// take folds a delta, and compares its row with the earlier rows of the same version.
func (p *pointWatch) take(d dohost.Delta[item]) error {
	if err := p.apply(d); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if d.Kind != dohost.DeltaEnter && d.Kind != dohost.DeltaUpdate {
		return nil
	}
	id := fmt.Sprintf("%s version %d", d.Row.Key, d.Row.Version)
	if was, ok := p.seen[id]; ok && was != rowText(d.Row)+d.Row.Value.Pad && d.Row.Key != "a" { // a begins again at 1
		return fmt.Errorf("%s: saw %s, and later %s: a crash has undone the first", p.name, was, rowText(d.Row)+d.Row.Value.Pad)
	}
	p.seen[id] = rowText(d.Row) + d.Row.Value.Pad
	return nil
}

func (w *watchPoints) check(ctx context.Context, h *dohosttest.Host) error {
	return shops.Get(h, "x").Do(ctx, func(ctx context.Context, s *shop) error {
		for _, p := range w.watchers {
			list, err := w.items.List(ctx, s.store, p.q)
			if err == nil {
				err = p.differsFrom(list, p.q != nil && p.q.Reverse)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		return nil
	})
}

// TestWatchAtEveryPoint has three watchers and a writer, whose incarnations and processes end. The rows of each watcher
// are those of List, and no watcher saw a row that a crash has undone.
func TestWatchAtEveryPoint(t *testing.T) {
	w := &watchPoints{items: itemsWith(0)}
	s := dohosttest.Scenario{
		FullDisk: true,
		Classes: []dohost.Class{dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
			return &shop{st.Storage()}, nil
		}, nil)},
		Reset: func() {
			w.watchers = nil
			for _, name := range []string{"all", "shelf x", "odd"} {
				for _, q := range watchQueries {
					if q.name == name {
						w.watchers = append(w.watchers, &pointWatch{watchQuery: q, seen: map[string]string{}})
					}
				}
			}
		},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			// The writer is first, and the disk slow in the second pass: the watches begin before its rows are durable.
			clients := []*dohosttest.Client{h.Client(func(ctx context.Context) error { return w.writeAll(ctx, h) })}
			for _, p := range w.watchers {
				clients = append(clients, h.Client(func(ctx context.Context) error { return w.follow(ctx, h, p) }))
			}
			var err error
			for _, c := range clients {
				err = errors.Join(err, c.Wait())
			}
			return err
		},
		Check:   w.check,
		Batched: true,
	}
	dohosttest.EveryPoint(t, pointtest.Scenario(s, 30, 40))
}
