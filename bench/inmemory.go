package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// inMemory compares a call that does nothing on the disk with passing a value to another goroutine and back, through
// buffered channels.
func inMemory(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	e := &echo{in: make(chan int, 1), out: make(chan int, 1)}
	go e.serve()
	r := Row{
		ID: "P5", What: "call in memory, 1 caller, uncontended", Unit: "calls/s",
		Target: Target{Text: "≥ 0.5 of the limit", Reference: limit, MinRatio: 0.5},
		Notes:  []string{"limit: a value handed to another goroutine and back by buffered channels"},
	}
	if r.Sides, err = b.compare(ctx, named{ours, &inMemorySide{host: h}}, named{limit, e}); err != nil {
		return err
	}
	b.add(r)
	return nil
}

// burst is the number of operations between two readings of the clock, if one takes less time than the reading.
const burst = 64

// inMemorySide is dohost under one caller.
type inMemorySide struct{ *host }

func (t *inMemorySide) work(ctx context.Context, m *meter) error {
	w := m.worker()
	s := subjects.Get(t.host, name(0))
	return w.bursts(func() error {
		_, err := dohost.Call(ctx, s, (*subject).touch, 0)
		return err
	})
}

// bursts repeats an operation, and counts for each its share of the burst's time.
func (w *worker) bursts(fn func() error) error {
	w.each = burst
	for !w.over() {
		began := time.Now()
		for range burst {
			if err := fn(); err != nil {
				return err
			}
		}
		w.ops += burst
		w.took = append(w.took, time.Since(began)/burst)
	}
	return nil
}

// verify asks the object, which counts.
func (t *inMemorySide) verify(ctx context.Context, done int64) error {
	n, err := dohost.Call(ctx, subjects.Get(t.host, name(0)), (*subject).touch, 0)
	if err == nil && int64(n) != done+1 {
		err = fmt.Errorf("the object has counted %d calls, want %d", n-1, done)
	}
	return err
}

// echo is a goroutine that returns each value that it receives.
type echo struct {
	in, out chan int
	sum     int64 // of the returned values
}

func (e *echo) serve() {
	for v := range e.in {
		e.out <- v
	}
	close(e.out)
}

func (e *echo) work(_ context.Context, m *meter) error {
	w := m.worker()
	return w.bursts(func() error {
		e.in <- 1
		e.sum += int64(<-e.out)
		return nil
	})
}

func (e *echo) verify(_ context.Context, done int64) error {
	if e.sum != done {
		return errors.New("a value was lost between the goroutines")
	}
	return nil
}

func (e *echo) syncs() int64 { return 0 }

func (e *echo) close() error { close(e.in); <-e.out; return nil }
