package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/engine"
)

// wakeRows is the number of rows that an object reads when it wakes.
const wakeRows = 20

// Parameters of a cold wake.
const (
	// coldObjects is enough that the table entry of an object is gone before its next call.
	coldObjects = 50_000
	// forgotten is the time from an eviction until the entry is gone: the host checks once a second.
	forgotten = 2 * time.Second
)

// coldWake calls objects that are only on the disk, compared with a scan of 20 keys. Each object reads 20 rows.
func coldWake(ctx context.Context, b *bench) error {
	n := min(coldObjects, b.objects)
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	if err := fill(ctx, b, h, n, (*subject).appendMany, wakeRows); err != nil {
		return errors.Join(err, h.Close())
	}
	if err := h.reopenInTables(); err != nil {
		return errors.Join(err, h.Close())
	}
	l := &scanSide{raw: raw{objects: n, appends: true}, walk: newWalk(b.seed, n)}
	if err := l.fill(b); err != nil {
		return errors.Join(err, h.Close())
	}
	s := &coldWakeSide{host: h, walk: newWalk(b.seed, n), evicted: make([]time.Time, n)}
	r := Row{
		ID: "P6", What: fmt.Sprintf("cold wake: a call that reads %d rows of an object on disk", wakeRows), Unit: "calls/s",
		Target: Target{Text: "p50 ≤ 40 µs, p99 ≤ 300 µs", P50: 40 * time.Microsecond, P99: 300 * time.Microsecond},
	}
	if r.Sides, err = b.compare(ctx, named{ours, s}, named{limit, l}); err != nil {
		return err
	}
	size := n * wakeRows * (len(l.key(0, 1)) + len(value(1)))
	r.Notes = []string{
		fmt.Sprintf("limit: a scan of %d keys by a new iterator", wakeRows),
		fmt.Sprintf("1 caller, which calls %s objects in a random order and evicts each after its call; "+
			"the eviction counts in the rate, but not in p50 and p99", number(float64(n))),
		fmt.Sprintf("the rows are in tables: about %.2g MiB of keys and values, with a block cache of at least %d MiB",
			float64(size)/(1<<20), engine.Cache>>20),
		fmt.Sprintf("%.4g %% of the calls met an object without a table entry: one that was called for the first time, "+
			"or evicted %v before", 100*float64(s.absent)/float64(s.calls), forgotten),
	}
	b.add(r)
	return nil
}

// walk visits objects in an order that is drawn, so that each occurs again only after all others.
type walk struct {
	order []int
	next  int
}

func newWalk(seed uint64, n int) *walk {
	return &walk{order: rand.New(rand.NewPCG(seed, uint64(n))).Perm(n)}
}

// step is the next object.
func (w *walk) step() int {
	i := w.order[w.next]
	w.next = (w.next + 1) % len(w.order)
	return i
}

// coldWakeSide calls objects that have no incarnation.
type coldWakeSide struct {
	*host
	walk    *walk
	evicted []time.Time // each object, last
	calls   int64
	absent  int64 // calls of objects that were not in the host's table
	woken   int64 // incarnations that had not been called before
}

func (s *coldWakeSide) work(ctx context.Context, m *meter) error {
	w := m.worker()
	for !w.over() {
		i := s.walk.step()
		stub := subjects.Get(s.host, name(i))
		began := time.Now()
		n, err := dohost.Call(ctx, stub, (*subject).first, 0)
		if err != nil {
			return err
		}
		w.did(began)
		s.calls++
		if n == wakeRows {
			s.woken++
		}
		if began.Sub(s.evicted[i]) > forgotten {
			s.absent++
		}
		if !s.Evict(stub.ID(), dohost.EndFence) {
			return fmt.Errorf("%v was called, and is not alive", stub.ID())
		}
		s.evicted[i] = time.Now()
	}
	return nil
}

// first returns the number of rows, if it is the first call of an incarnation.
func (s *subject) first(ctx context.Context, _ int) (int, error) {
	if s.calls++; s.calls > 1 {
		return 0, nil
	}
	rows, err := dohost.List[int](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "row/"})
	return len(rows), err
}

// show answers with the result of first.
func (s *subject) show(w http.ResponseWriter, r *http.Request) {
	n, err := s.first(r.Context(), 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, n)
}

func (s *coldWakeSide) verify(_ context.Context, done int64) error {
	if s.woken != done {
		return fmt.Errorf("of %d calls %d found a new incarnation with all of its rows", done, s.woken)
	}
	return nil
}

// scanSide is Pebble that reads the rows of an object.
type scanSide struct {
	raw
	walk *walk
	rows int64
}

// fill writes the rows, and moves them to tables.
func (s *scanSide) fill(b *bench) error {
	if err := s.open(b); err != nil {
		return err
	}
	for i := range s.objects {
		batch := s.db.NewBatch()
		var err error
		for row := 0; row < wakeRows && err == nil; row++ {
			err = s.set(batch, i)
		}
		if err == nil {
			err = s.db.Apply(batch, pebble.NoSync)
		}
		if err := errors.Join(err, batch.Close()); err != nil {
			return errors.Join(err, s.db.Close())
		}
	}
	return s.reopenInTables()
}

func (s *scanSide) work(_ context.Context, m *meter) error {
	w := m.worker()
	for !w.over() {
		i := s.walk.step()
		began := time.Now()
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: s.key(i, 1), UpperBound: s.key(i, wakeRows+1)})
		if err != nil {
			return err
		}
		for it.First(); it.Valid(); it.Next() {
			s.rows++
		}
		if err := it.Close(); err != nil {
			return err
		}
		w.did(began)
	}
	return nil
}

func (s *scanSide) verify(_ context.Context, done int64) error {
	if s.rows != done*wakeRows {
		return fmt.Errorf("%d scans found %d rows", done, s.rows)
	}
	return nil
}
