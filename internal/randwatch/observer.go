package randwatch

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.StoredReport

	mu       sync.Mutex
	moments  map[dohost.Position]moment
	born     map[string]int  // the version of the model that has first had a note, by its description
	emitted  int             // the last version of the model whose output has left
	newest   dohost.Position // of the feed, durable or not
	changed  time.Time       // when newest was reached
	watchers []*watcher
}

// moment is the notes at a position of their feed.
type moment struct {
	serial int // of the model
	notes  map[string]noteAt
}

// NewObserver returns an Observer.
func NewObserver() *Observer {
	w := new(Observer)
	w.Reset()
	return w
}

// Reset begins a new run.
func (w *Observer) Reset() {
	w.Clear()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moments, w.born, w.newest, w.changed = map[dohost.Position]moment{{}: {}}, map[string]int{}, dohost.Position{}, time.Time{}
	w.watchers, w.emitted = newWatchers(), 0
}

// emit records that the output of a version of the model has left.
func (w *Observer) emit(serial int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.emitted = max(w.emitted, serial)
	w.Acknowledge(serial)
}

// recordMoment records the notes at the end of their feed, which was at another position before. The moments after that are those of
// batches that were not committed.
func (w *Observer) recordMoment(before dohost.Position, m *model) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.moments, func(at dohost.Position, _ moment) bool { return at.Log == before.Log && at.Offset > before.Offset })
	if _, ok := w.moments[m.End]; ok {
		return // this version has changed no note
	}
	last := w.moments[before]
	w.newest, w.changed, w.moments[m.End] = m.End, time.Now(), moment{m.Serial, maps.Clone(m.Notes)}
	for id, n := range m.Notes {
		if old, ok := last.notes[id]; !ok || old.String() != n.String() {
			w.born[n.String()] = m.Serial
		}
	}
}

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	w := NewObserver()
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w)},
		Reset:   w.Reset,
		Places:  randtest.Places(),
		Run:     work.Run(w.act),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}, &w.Report
}

// Send makes the object execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h *dohosttest.Host, p Program) error {
	return w.StoredReport.Send(p.String(), func() (int, error) { return dohost.Call(ctx, boards.Get(h, "a"), (*board).run, p) })
}

// Check compares the object, which is at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	err := boards.Get(h, "a").Do(ctx, func(ctx context.Context, b *board) error {
		m, err := b.load(ctx)
		if err != nil {
			return err
		}
		return w.checkWatchers(ctx, b, m)
	})
	return errors.Join(err, w.Err())
}
