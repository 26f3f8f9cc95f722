package dohost_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// watchModel has an object with items, watchers of it, and the state after each change.
type watchModel struct {
	h     *dohost.Host
	fs    *objectstore.FS
	items *dohost.Collection[item]
	large bool // some rows have half a page

	now     map[string]dohost.Row[item]
	end     dohost.Position
	changes int                             // so far
	durable int                             // changes that are durable
	history map[dohost.Position]watchMoment // by the position after the change
	runs    []*watchRun

	resumed, reset int // watches, of all checks
}

// watchMoment is the state after a change.
type watchMoment struct {
	rows   map[string]dohost.Row[item]
	change int
}

// watchRun is a watcher on a goroutine of its own. Its fields are read while the goroutine waits.
type watchRun struct {
	watchQuery
	fold
	within bool          // the change of the last delta has further ones
	slow   chan struct{} // nil: it does not wait; otherwise for each delta
	cancel context.CancelFunc
	err    error // of a delta, or of the end
	ended  bool
}

func (m *watchModel) do(ctx context.Context, f func(ctx context.Context, s *dohost.Storage) error) error {
	return shops.Get(m.h, "x").Do(ctx, func(ctx context.Context, s *shop) error { return f(ctx, s.store) })
}

// start begins a watch, after an earlier one or anew.
func (m *watchModel) start(ctx context.Context, t *rapid.T, earlier *watchRun) {
	r := &watchRun{}
	o := &dohost.WatchOptions{}
	if earlier != nil {
		r.watchQuery, r.fold, o.After = earlier.watchQuery, earlier.fold, earlier.at
	} else {
		r.watchQuery = rapid.SampledFrom(watchQueries).Draw(t, "query")
	}
	if rapid.Bool().Draw(t, "slow") {
		r.slow = make(chan struct{}, 1000)
	}
	stop, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	m.runs = append(m.runs, r)
	go func() {
		err := m.do(context.WithoutCancel(stop), func(turn context.Context, s *dohost.Storage) error {
			watch, cancel := context.WithCancel(turn)
			defer cancel()
			defer context.AfterFunc(stop, cancel)()
			for d, err := range m.items.Watch(watch, s, r.q, o) {
				if err == nil {
					err = m.take(r, d)
				}
				if err == nil && r.slow != nil {
					_, _, err = dohost.Recv(watch, r.slow)
				}
				if err != nil {
					return err
				}
			}
			return errors.New("the loop has ended")
		})
		if r.err == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, dohost.ErrFenced) {
			r.err = err
		}
		r.ended = true
	}()
	synctest.Wait()
}

// take folds a delta, and compares the rows with the state at the position of a DeltaReady.
func (m *watchModel) take(r *watchRun, d dohost.Delta[item]) error {
	r.err = r.apply(d)
	r.within = !r.listing && d.Kind != dohost.DeltaReady && !m.hasChange(d)
	if r.err == nil && d.Kind == dohost.DeltaReady {
		r.err = m.atReady(r, d.At)
	}
	return r.err
}

// hasChange reports whether the change of a delta is one of those until d.At.
func (m *watchModel) hasChange(d dohost.Delta[item]) bool {
	row, ok := m.history[d.At].rows[d.Row.Key]
	same := ok && row.Version == d.Row.Version
	if d.Kind == dohost.DeltaExit { // has the row as it was
		return !same
	}
	return same
}

func (m *watchModel) atReady(r *watchRun, at dohost.Position) error {
	moment, ok := m.history[at]
	if !ok || moment.change > m.durable {
		return fmt.Errorf("ready at %v, after change %d, and %d are durable", at, moment.change, m.durable)
	}
	state := moment.rows
	n := 0
	for _, row := range r.rows {
		want := state[row.Key]
		if row.Version != want.Version || !row.Value.equal(want.Value) {
			return fmt.Errorf("at %v there is %s; want %s", at, rowText(row), rowText(want))
		}
	}
	for _, row := range state {
		n += r.places(row.Value)
	}
	if n != len(r.rows) {
		return fmt.Errorf("at %v there are %d rows; want %d", at, len(r.rows), n)
	}
	return nil
}

// edit is a drawn write.
type edit struct {
	item   item
	large  bool
	delete bool
}

func drawEdits(t *rapid.T) []edit {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) edit {
		e := edit{delete: rapid.IntRange(0, 4).Draw(t, "delete") == 0}
		e.item.ID = rapid.SampledFrom([]string{"a", "b", "bb", "c", "d", "\xff\x00"}).Draw(t, "id")
		e.item.Shelf = rapid.SampledFrom([]string{"", "x", "x", "y"}).Draw(t, "shelf")
		e.item.N = rapid.IntRange(0, 4).Draw(t, "n")
		e.item.Tags = rapid.SliceOfN(rapid.SampledFrom([]string{"gift", "new", "old"}), 0, 3).Draw(t, "tags")
		e.large = rapid.Bool().Draw(t, "large")
		return e
	}), 1, 4).Draw(t, "edits")
}

// write makes edits in one batch. With held, it returns before they are durable.
func (m *watchModel) write(ctx context.Context, t *rapid.T, edits []edit, held bool) {
	done := make(chan error, 1)
	go func() {
		done <- m.do(ctx, func(ctx context.Context, s *dohost.Storage) error {
			for _, e := range edits {
				if err := m.edit(ctx, s, e); err != nil {
					return err
				}
			}
			if !held {
				m.durable = m.changes
			}
			return nil
		})
	}()
	synctest.Wait()
	if held {
		return
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (m *watchModel) edit(ctx context.Context, s *dohost.Storage, e edit) error {
	now := map[string]dohost.Row[item]{}
	for k, r := range m.now {
		now[k] = r
	}
	if e.delete {
		if existed, err := m.items.Delete(ctx, s, e.item.ID); err != nil || !existed {
			return err
		}
		delete(now, e.item.ID)
	} else {
		if m.large && e.large {
			e.item.Pad = strings.Repeat("p", 130<<10)
		}
		if err := m.items.Put(ctx, s, e.item); err != nil {
			return err
		}
		now[e.item.ID] = dohost.Row[item]{Key: e.item.ID, Value: e.item, Version: now[e.item.ID].Version + 1}
	}
	m.now = now
	var err error
	m.end, err = m.items.Feed.End(ctx, s)
	m.changes++
	m.history[m.end] = watchMoment{now, m.changes}
	return err
}

func (m *watchModel) deleteAll(ctx context.Context, t *rapid.T) {
	err := m.do(ctx, func(ctx context.Context, s *dohost.Storage) error {
		m.changes++
		m.now, m.end, m.durable = nil, dohost.Position{}, m.changes
		m.history[m.end] = watchMoment{change: m.changes}
		return s.DeleteAll(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// check lets slow watchers read everything, and compares all watchers with List.
func (m *watchModel) check(ctx context.Context, t *rapid.T) {
	for _, r := range m.runs {
		for r.slow != nil && !r.ended && len(r.slow) < 500 {
			r.slow <- struct{}{}
		}
	}
	synctest.Wait()
	for _, r := range m.runs {
		if r.err != nil {
			t.Fatalf("%s: %v", r.name, r.err)
		}
		if r.ended {
			continue
		}
		if r.last != dohost.DeltaReady || r.at != m.end {
			t.Fatalf("%s: after all changes the last delta is %v at %v; want ready at %v", r.name, r.last, r.at, m.end)
		}
		err := m.do(ctx, func(ctx context.Context, s *dohost.Storage) error {
			list, err := m.items.List(ctx, s, r.q)
			return errors.Join(err, r.differsFrom(list, r.q != nil && r.q.Reverse))
		})
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
	}
}

// stop ends watchers, and begins others at their positions.
func (m *watchModel) stop(ctx context.Context, t *rapid.T, all bool) {
	runs := m.runs
	m.runs = nil
	for _, r := range runs {
		if !all && rapid.Bool().Draw(t, "keep") {
			m.runs = append(m.runs, r)
			continue
		}
		r.cancel()
		synctest.Wait()
		if !r.ended || r.err != nil {
			t.Fatalf("%s: after its end: ended %t, %v", r.name, r.ended, r.err)
		}
		if rapid.Bool().Draw(t, "resume") && !r.within {
			resets := r.resets
			m.start(ctx, t, r)
			m.resumed++
			m.reset += m.runs[len(m.runs)-1].resets - resets
		}
	}
}

func (m *watchModel) actions(ctx context.Context) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"write":  func(t *rapid.T) { m.write(ctx, t, drawEdits(t), false) },
		"write ": func(t *rapid.T) { m.write(ctx, t, drawEdits(t), false) },
		"step": func(t *rapid.T) {
			for _, r := range m.runs {
				for n := rapid.IntRange(0, 4).Draw(t, "steps"); r.slow != nil && n > 0 && len(r.slow) < 500; n-- {
					r.slow <- struct{}{}
				}
			}
			synctest.Wait()
		},
		"hold": func(t *rapid.T) {
			release := m.fs.HoldSyncs()
			defer release() // also if a draw panics
			m.write(ctx, t, drawEdits(t), true)
			m.start(ctx, t, nil)
			m.write(ctx, t, drawEdits(t), true)
			m.durable = m.changes
			release()
			synctest.Wait()
		},
		"start":     func(t *rapid.T) { m.start(ctx, t, nil) },
		"stop":      func(t *rapid.T) { m.stop(ctx, t, false) },
		"deleteAll": func(t *rapid.T) { m.deleteAll(ctx, t) },
		"evict": func(t *rapid.T) {
			m.h.Evict(shops.Get(m.h, "x").ID(), dohost.EndFence)
			synctest.Wait()
			m.stop(ctx, t, true)
		},
		"check": func(t *rapid.T) { m.check(ctx, t) },
	}
}

// TestWatchModel compares drawn watches, fast and slow ones, with a model at each DeltaReady, and with List at rest.
func TestWatchModel(t *testing.T) {
	kinds := [dohost.DeltaReady + 1]int{}
	resumed, reset, checks := 0, 0, 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) { // a bubble has no Deadline
			checks++
			m := &watchModel{
				fs: objectstore.NewMemFS(), items: itemsWith(rapid.SampledFrom([]int{0, 2, 5, 20}).Draw(rt, "keep")),
				large:   rapid.IntRange(0, 9).Draw(rt, "large") == 0,
				history: map[dohost.Position]watchMoment{{}: {}},
			}
			m.h = openOn(t, m.fs, nil, dohost.Bind(shops, func(_ context.Context, st *dohost.State) (*shop, error) {
				return &shop{st.Storage()}, nil
			}, nil))
			defer m.h.Close()
			rt.Repeat(m.actions(t.Context()))
			m.check(t.Context(), rt)
			for _, r := range m.runs {
				for k, n := range r.kinds {
					kinds[k] += n
				}
			}
			resumed, reset = resumed+m.resumed, reset+m.reset
		})
	})
	t.Logf("%d checks; deltas by kind: %v; %d watches were continued, and %d of them reset", checks, kinds, resumed, reset)
	if !t.Failed() && (resumed == reset || reset == 0 || kinds[dohost.DeltaUpdate] == 0 || kinds[dohost.DeltaExit] == 0) {
		t.Error("some kind of delta did not occur, or no watch was continued without a reset")
	}
}
