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
)

// wakeRows is how many rows an object has that is woken, and reads.
const wakeRows = 20

// coldWake calls objects that are on the disk only, each of which reads 20 rows, beside
// a scan of 20 keys.
func coldWake(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	const objects = 1000
	for range wakeRows {
		if err := fill(ctx, b, h, objects, (*subject).append, 1); err != nil {
			return errors.Join(err, h.Close())
		}
	}
	l := &scanning{raw: raw{objects: objects, appends: true}, seed: b.seed}
	if err := l.fill(b); err != nil {
		return errors.Join(err, h.Close())
	}
	r := Row{
		ID: "P6", What: "cold wake: a call that reads 20 rows of an object on disk", Unit: "calls/s",
		Target: Target{Text: "p50 ≤ 40 µs, p99 ≤ 300 µs", P50: 40 * time.Microsecond, P99: 300 * time.Microsecond},
		Notes:  []string{"limit: a scan of 20 keys by a new iterator", "1 caller; the object was evicted before, which is not counted"},
	}
	if r.Sides, err = b.compare(ctx, named{ours, &waking{host: h, seed: b.seed, objects: objects}}, named{limit, l}); err != nil {
		return err
	}
	b.add(r)
	return nil
}

// waking calls objects that were just evicted.
type waking struct {
	*host
	objects int
	seed    uint64
	rounds  uint64
	woken   int64 // incarnations that had not been called before
}

func (s *waking) work(ctx context.Context, m *meter) error {
	s.rounds++
	draw := rand.New(rand.NewPCG(s.seed, s.rounds))
	w := m.worker()
	for !w.over() {
		stub := subjects.Get(s.host, name(draw.IntN(s.objects)))
		s.Evict(stub.ID(), dohost.Fence)
		began := time.Now()
		n, err := dohost.Call(ctx, stub, (*subject).first, 0)
		if err != nil {
			return err
		}
		w.did(began)
		if n == wakeRows {
			s.woken++
		}
	}
	return nil
}

// first returns how many rows there are, if it is the first call of an incarnation.
func (s *subject) first(ctx context.Context, _ int) (int, error) {
	if s.calls++; s.calls > 1 {
		return 0, nil
	}
	rows, err := dohost.List[int](ctx, s.st.Storage(), &dohost.ListOptions{Prefix: "row/"})
	return len(rows), err
}

// show answers with what first returns.
func (s *subject) show(w http.ResponseWriter, r *http.Request) {
	n, err := s.first(r.Context(), 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, n)
}

func (s *waking) verify(_ context.Context, done int64) error {
	if s.woken != done {
		return fmt.Errorf("of %d calls %d found a new incarnation with all of its rows", done, s.woken)
	}
	return nil
}

// scanning is Pebble that reads the rows of an object.
type scanning struct {
	raw
	seed   uint64
	rounds uint64
	rows   int64
}

// fill writes the rows.
func (s *scanning) fill(b *bench) error {
	if err := s.open(b); err != nil {
		return err
	}
	for i := range s.objects {
		for range wakeRows {
			batch, err := s.batch(i)
			if err == nil {
				err = s.db.Apply(batch, pebble.NoSync)
			}
			if err := errors.Join(err, batch.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scanning) work(_ context.Context, m *meter) error {
	s.rounds++
	draw := rand.New(rand.NewPCG(s.seed, s.rounds))
	w := m.worker()
	for !w.over() {
		i := draw.IntN(s.objects)
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

func (s *scanning) verify(_ context.Context, done int64) error {
	if s.rows != done*wakeRows {
		return fmt.Errorf("%d scans found %d rows", done, s.rows)
	}
	return nil
}
