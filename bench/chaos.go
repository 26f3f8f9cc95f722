package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// underChaos is P3 with an eviction every ten calls on average, beside P3 without.
func underChaos(ctx context.Context, b *bench) error {
	calm, err := b.open(dohost.Options{}, nil)
	if err != nil {
		return err
	}
	var ended atomic.Int64
	h, err := b.open(dohost.Options{
		Chaos: dohost.Chaos{Rate: 0.1, Places: []eviction.Place{"end"}, Seed: b.seed},
		Listener: dohost.Listener{Fenced: func(e dohost.Ended) {
			if e.Why.Reason == runtime.ReasonChaos {
				ended.Add(1)
			}
		}},
	}, nil)
	if err != nil {
		return err
	}
	side := &counting{host: h, objects: 1000, callers: 64, method: (*subject).add, retry: true}
	r := Row{
		ID: "P17", What: "P3 with an eviction every 10 calls", Unit: "calls/s",
		Target: Target{Text: "≥ 0.5 of P3 without, nothing lost or doubled", Beside: "no chaos", Least: 0.5},
	}
	r.Sides, err = b.compare(ctx, named{ours, side}, named{"no chaos", &counting{host: calm, objects: 1000, callers: 64, method: (*subject).add}})
	if err != nil {
		return err
	}
	if side.unknown.Load() > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d calls with an unknown outcome", side.unknown.Load()))
	}
	r.Notes = append(r.Notes, fmt.Sprintf("after an event has ended; E1 evicts everywhere. %d evictions in %d calls", ended.Load(), r.Sides[0].Checked))
	b.add(r)
	return nil
}
