package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// step adds one, durably, and returns the moment at which the incarnation's constructor
// had returned and its first event began.
func (s *subject) step(ctx context.Context, _ int) (at time.Time, err error) {
	at = time.Now()
	_, err = s.add(ctx, 1)
	return at, err
}

// recovering ends an incarnation in the middle of an object's work and calls the object
// again: a round measures from the fence to the first step of the next incarnation.
type recovering struct {
	*host
	objects int
	seed    uint64
	rounds  uint64
}

func (r *recovering) work(ctx context.Context, m *meter) error {
	r.rounds++
	draw := rand.New(rand.NewPCG(r.seed, r.rounds))
	w := m.worker()
	for !w.over() {
		stub := subjects.Get(r.host, name(draw.IntN(r.objects)))
		if _, err := dohost.Call(ctx, stub, (*subject).touch, 0); err != nil { // it is alive
			return err
		}
		began := time.Now()
		if !r.Evict(stub.ID(), dohost.Fence) {
			return errors.New("there was no incarnation to end")
		}
		at, err := dohost.Call(ctx, stub, (*subject).step, 0)
		if err != nil {
			return err
		}
		w.ops++
		w.took = append(w.took, at.Sub(began))
	}
	return nil
}

func (r *recovering) verify(ctx context.Context, done int64) error {
	r.evictAll(r.objects)
	var sum int64
	for i := range r.objects {
		n, err := dohost.Call(ctx, subjects.Get(r.host, name(i)), (*subject).get, 0)
		if err != nil {
			return err
		}
		sum += int64(n)
	}
	if sum != done {
		return fmt.Errorf("the objects have taken %d steps, want %d", sum, done)
	}
	return nil
}

func fenceRecovery(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	return b.recoveries(ctx, Row{
		ID: "R1", What: "eviction recovery: fence to the next incarnation's first step, at rest",
		Notes: []string{"1,000 objects with state on disk; the time of a row is from the fence to the first line of the next incarnation's method"},
	}, h)
}

func (b *bench) recoveries(ctx context.Context, r Row, h *host) error {
	var err error
	r.Unit = "recoveries/s"
	r.Target = Target{Text: "p50 ≤ 100 µs, p99 ≤ 2 ms", P50: 100 * time.Microsecond, P99: 2 * time.Millisecond}
	if r.Sides, err = b.compare(ctx, named{ours, &recovering{host: h, objects: 1000, seed: b.seed}}); err != nil {
		return err
	}
	b.add(r)
	return nil
}

// loadedRecovery has 64 callers on other objects beside it.
func loadedRecovery(ctx context.Context, b *bench) error {
	h, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	over, load := make(chan struct{}), make(chan error, 1)
	go func() {
		load <- together(64, func(c int) error {
			stub := subjects.Get(h, fmt.Sprintf("load%d", c))
			for {
				select {
				case <-over:
					return nil
				default:
				}
				if _, err := dohost.Call(ctx, stub, (*subject).add, 1); err != nil {
					return err
				}
			}
		})
	}()
	loaded := &recovering{host: h, objects: 1000, seed: b.seed}
	r := Row{
		ID: "R2", What: "eviction recovery: fence to the next incarnation's first step, under load", Unit: "recoveries/s",
		Notes:  []string{"beside 64 callers of other objects, each of which adds durably in a closed loop"},
		Target: Target{Text: "p50 ≤ 100 µs, p99 ≤ 2 ms", P50: 100 * time.Microsecond, P99: 2 * time.Millisecond},
	}
	figures, err := b.compare(ctx, named{ours, &loadedSide{loaded, func() error { close(over); return <-load }}})
	if err != nil {
		return err
	}
	r.Sides = figures
	b.add(r)
	return nil
}

// loadedSide ends the load before it is asked for what it holds.
type loadedSide struct {
	*recovering
	stop func() error
}

func (l *loadedSide) verify(ctx context.Context, done int64) error {
	return errors.Join(l.stop(), l.recovering.verify(ctx, done))
}
