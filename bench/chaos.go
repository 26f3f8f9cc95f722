package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// evictionsPerCall is the number of evictions for each call under chaos.
const evictionsPerCall = 0.1

// underChaos compares P3 with an eviction every ten calls on average to P3 without evictions.
func underChaos(ctx context.Context, b *bench) error {
	return b.chaotic(ctx, Row{
		ID: "P17", What: "P3 with an eviction every 10 calls",
		Target: Target{Text: "≥ 0.5 of P3 without, nothing lost or doubled", Reference: noChaosSide, MinRatio: 0.5},
		Notes:  []string{"after an event has ended; P17a and E1 evict everywhere"},
	}, dohost.Chaos{Rate: evictionsPerCall, Places: []eviction.Place{eviction.PlaceEnd}, Seed: b.seed})
}

// underChaosAnywhere evicts as often, at every place where an incarnation can end.
func underChaosAnywhere(ctx context.Context, b *bench) error {
	rate, err := b.rateAnywhere(ctx)
	if err != nil {
		return err
	}
	return b.chaotic(ctx, Row{
		ID: "P17a", What: "P3 with an eviction every 10 calls, at any place",
		Target: Target{Text: "≥ 0.5 of P3 without", Reference: noChaosSide, MinRatio: 0.5},
		Notes:  []string{fmt.Sprintf("with a chance of %.2g %% at each visit to a place", 100*rate)},
	}, dohost.Chaos{Rate: rate, Seed: b.seed})
}

// noChaosSide is the side without chaos.
const noChaosSide = "no chaos"

// chaotic compares P3 under chaos with P3 without.
func (b *bench) chaotic(ctx context.Context, r Row, c dohost.Chaos) error {
	steady, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	side, ended, err := b.openChaotic(c)
	if err != nil {
		return errors.Join(err, steady.Close())
	}
	without := &counting{host: steady, objects: 1000, callers: 64, method: (*subject).add}
	r.Unit = "calls/s"
	if r.Sides, err = b.compare(ctx, named{ours, side}, named{noChaosSide, without}); err != nil {
		return err
	}
	r.Notes = append(r.Notes, fmt.Sprintf("%d evictions in %d calls", ended.Load(), r.Sides[0].Checked))
	if n := side.unknown.Load(); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d further calls had an unknown outcome, and may have counted: "+
			"the sum is known to within that number; E1 reads the object after each", n))
	}
	b.add(r)
	return nil
}

// openChaotic opens the host of P3 under chaos, and counts the incarnations that chaos ends.
func (b *bench) openChaotic(c dohost.Chaos) (side *counting, ended *atomic.Int64, err error) {
	ended = new(atomic.Int64)
	h, err := b.open(dohost.Options{Chaos: c, Listener: dohost.Listener{Fenced: func(e dohost.Ended) {
		if e.Cause.Reason == dohost.ReasonChaos {
			ended.Add(1)
		}
	}}}, nil)
	return &counting{host: h, objects: 1000, callers: 64, method: (*subject).add, retry: true}, ended, err
}

// rateAnywhere finds the chance of an eviction at each visit to a place that gives evictionsPerCall: it counts
// evictions under a small chance.
func (b *bench) rateAnywhere(ctx context.Context) (rate float64, err error) {
	const small, enough, most = 0.005, 200, 1_000_000
	side, ended, err := b.openChaotic(dohost.Chaos{Rate: small, Seed: b.seed})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, side.close()) }()
	var calls int64
	for ended.Load() < enough {
		r, err := oneRound(ctx, side, b.duration)
		if err != nil {
			return 0, err
		}
		if calls += r.ops; calls > most {
			return 0, fmt.Errorf("%d evictions in %d calls, with a chance of %v at each visit", ended.Load(), calls, small)
		}
	}
	return min(1, small*evictionsPerCall*float64(calls)/float64(ended.Load())), nil
}
