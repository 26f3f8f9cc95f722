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

// side does the measured work, in its own directory.
type side interface {
	// work works until the time is over, and counts every operation.
	work(ctx context.Context, m *meter) error
	// verify returns an error unless exactly the counted operations of all rounds are in the store.
	verify(ctx context.Context, done int64) error
	// syncs counts those of the log so far.
	syncs() int64
	close() error
}

// meter counts the operations of a round's workers.
type meter struct {
	until   time.Time
	mu      sync.Mutex
	workers []*worker
}

// worker counts for one goroutine, as cheaply as possible, because counting slows the measured work down.
type worker struct {
	m    *meter
	ops  int64
	took []time.Duration
	each int64 // the number of operations that one call of took represents
}

// worker begins a worker.
func (m *meter) worker() *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &worker{m: m, each: 1}
	m.workers = append(m.workers, w)
	return w
}

// over reports whether the round is over.
func (w *worker) over() bool { return !time.Now().Before(w.m.until) }

// did counts an operation that began at a time.
func (w *worker) did(began time.Time) {
	w.ops++
	w.took = append(w.took, time.Since(began))
}

// each runs n workers concurrently, and waits for all of them.
func (m *meter) each(n int, fn func(i int, w *worker) error) error {
	return together(n, func(i int) error { return fn(i, m.worker()) })
}

// ops is the number of operations of all workers, after their end.
func (m *meter) ops() (n int64) {
	for _, w := range m.workers {
		n += w.ops
	}
	return n
}

// shortest and longest bound the histogram, which has three significant digits.
const (
	shortest = time.Duration(1)
	longest  = 10 * time.Minute
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest), int64(longest), 3)
}

// record adds n operations that took this time together.
func record(h *hdrhistogram.Histogram, took time.Duration, n int64) error {
	return h.RecordValues(int64(min(max(shortest, took), longest)), n)
}

// histogram adds up all workers, after their end.
func (m *meter) histogram() (*hdrhistogram.Histogram, error) {
	h := newHistogram()
	for _, w := range m.workers {
		for _, took := range w.took {
			if err := record(h, took, w.each); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// together runs n calls of fn concurrently, and waits for all of them.
func together(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// round is the result of one round of a side.
type round struct {
	rate    float64 // operations a second
	seconds float64
	allocs  uint64
	syncs   int64
	ops     int64
	hist    *hdrhistogram.Histogram
}

func oneRound(ctx context.Context, s side, d time.Duration) (round, error) {
	m := &meter{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	syncs, began := s.syncs(), time.Now()
	m.until = began.Add(d)
	err := s.work(ctx, m)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	syncs = s.syncs() - syncs
	if err != nil {
		return round{}, err
	}
	hist, err := m.histogram()
	return round{
		rate: float64(m.ops()) / took.Seconds(), seconds: took.Seconds(), allocs: after.Mallocs - before.Mallocs,
		syncs: syncs, ops: m.ops(), hist: hist,
	}, err
}

// named is a side with its name.
type named struct {
	name string
	side
}

func closeAll(sides []named) (err error) {
	for _, s := range sides {
		err = errors.Join(err, s.close())
	}
	return err
}

// compare runs rounds of each side, in turn, and verifies the contents of the sides at the end. The first round of
// each warms up. It closes the sides.
func (b *bench) compare(ctx context.Context, sides ...named) (figures []Figure, err error) {
	defer func() { err = errors.Join(err, closeAll(sides)) }()
	if b.alone {
		for ; len(sides) > 1; sides = sides[:len(sides)-1] {
			if err := sides[len(sides)-1].close(); err != nil {
				return nil, err
			}
		}
	}
	done := make([]int64, len(sides))
	rounds := make([][]round, len(sides))
	for n := range b.rounds + 1 {
		for i := range sides {
			at := (i + n) % len(sides) // no side is always first
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
		f := summarize(rounds[i])
		if o, ok := s.side.(outside); ok {
			r, err := o.traced(ctx, b.duration)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			done[i] += r.ops
			f.Syncs, f.Allocs = float64(r.syncs)/float64(max(1, r.ops)), 0
		}
		if err := s.verify(ctx, done[i]); err != nil {
			return nil, fmt.Errorf("%s has no figure: %w", s.name, err)
		}
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
