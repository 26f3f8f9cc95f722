package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Names of sides.
const (
	ours  = "dohost"
	limit = "limit"
)

// side does the work that is measured, in its own directory.
type side interface {
	// work does it until the time is over, and counts every operation.
	work(ctx context.Context, m *meter) error
	// verify says whether all that was counted, in all rounds, is there, and nothing else.
	verify(ctx context.Context, done int64) error
	// syncs counts those of the log so far.
	syncs() int64
	close() error
}

// meter counts what the workers of a round do.
type meter struct {
	until time.Time
	mu    sync.Mutex
	hist  *hdrhistogram.Histogram // in ns
	ops   int64
}

// shortest and longest are what a histogram tells apart: to three digits.
const (
	shortest = 1
	longest  = int64(10 * time.Minute)
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortest, longest, 3) }

// worker counts for one goroutine.
type worker struct {
	m    *meter
	hist *hdrhistogram.Histogram
	ops  int64
}

// worker begins one. Its done adds what it has counted.
func (m *meter) worker() *worker { return &worker{m: m, hist: newHistogram()} }

// over says that the round is.
func (w *worker) over() bool { return !time.Now().Before(w.m.until) }

// did counts an operation that began then.
func (w *worker) did(began time.Time) error {
	w.ops++
	return w.hist.RecordValue(max(shortest, time.Since(began).Nanoseconds()))
}

func (w *worker) done() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.hist.Merge(w.hist)
	w.m.ops += w.ops
}

// each runs workers at once, and waits for all of them.
func (m *meter) each(n int, fn func(i int, w *worker) error) error {
	return together(n, func(i int) error {
		w := m.worker()
		defer w.done()
		return fn(i, w)
	})
}

// together runs so many at once, and waits for all of them.
func together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// round is what one round of a side gave.
type round struct {
	rate    float64 // operations a second
	seconds float64
	allocs  uint64
	syncs   int64
	ops     int64
	hist    *hdrhistogram.Histogram
}

func oneRound(ctx context.Context, s side, d time.Duration) (round, error) {
	m := &meter{hist: newHistogram()}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	syncs, began := s.syncs(), time.Now()
	m.until = began.Add(d)
	err := s.work(ctx, m)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	return round{
		rate: float64(m.ops) / took.Seconds(), seconds: took.Seconds(), allocs: after.Mallocs - before.Mallocs,
		syncs: s.syncs() - syncs, ops: m.ops, hist: m.hist,
	}, err
}

// named is a side with its name.
type named struct {
	name string
	side
}

// compare has each side do a round, in turn, and asks them at the end for what they
// hold. The first of their rounds warms up.
func (b *bench) compare(ctx context.Context, sides ...named) (figures []Figure, err error) {
	defer func() {
		for _, s := range sides {
			err = errors.Join(err, s.close())
		}
	}()
	done := make([]int64, len(sides))
	rounds := make([][]round, len(sides))
	for n := range b.rounds + 1 {
		for i := range sides {
			at := (i + n) % len(sides) // nobody is always first
			r, err := oneRound(ctx, sides[at], b.duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[at].name, err)
			}
			done[at] += r.ops
			if n > 0 {
				rounds[at] = append(rounds[at], r)
			}
		}
		b.progress("round %d of %d", n, b.rounds)
	}
	for i, s := range sides {
		if err := s.verify(ctx, done[i]); err != nil {
			return nil, fmt.Errorf("%s has no figure: %w", s.name, err)
		}
		f := summarize(rounds[i])
		f.Side, f.Checked = s.name, done[i]
		figures = append(figures, f)
	}
	return figures, nil
}

// summarize makes one figure of several rounds.
func summarize(rounds []round) Figure {
	f := Figure{}
	hist := newHistogram()
	var ops, syncs, allocs float64
	for _, r := range rounds {
		f.Rounds = append(f.Rounds, r.rate)
		hist.Merge(r.hist)
		ops += float64(r.ops)
		syncs += float64(r.syncs)
		allocs += float64(r.allocs)
	}
	f.Value = median(f.Rounds)
	f.P50 = time.Duration(hist.ValueAtQuantile(50))
	f.P99 = time.Duration(hist.ValueAtQuantile(99))
	if ops > 0 {
		f.Syncs, f.Allocs = syncs/ops, allocs/ops
	}
	return f
}

func median[T cmp.Ordered](xs []T) (m T) {
	if len(xs) == 0 {
		return m
	}
	sorted := slices.Sorted(slices.Values(xs))
	return sorted[len(sorted)/2]
}
