package randchat

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// places are the places where endings differ in their effect. Storage operations are not among them.
var places = []dohost.Place{
	dohost.PlaceConstruct, dohost.PlaceStart, dohost.PlaceAlarm, dohost.PlaceTransaction, dohost.PlaceCommit, dohost.PlaceCommitted,
	dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceRelease, dohost.PlaceAwait, dohost.PlaceEffect, dohost.PlaceAwaited, dohost.PlaceResume,
	dohost.PlaceOutcome, dohost.PlaceEnd,
}

// scenario returns a scenario with everything but its work.
func scenario(w *Observer) dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: Classes(w),
		Reset:   w.Reset,
		Places:  places,
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}
}

// Simulation returns a simulation of random programs. It counts the compared instructions in steps.
func Simulation(steps *atomic.Int64) dohosttest.Simulation {
	return simulation(NewObserver(), steps)
}

func simulation(w *Observer, steps *atomic.Int64) dohosttest.Simulation {
	s := dohosttest.Simulation{Scenario: scenario(w), Chance: 0.006, Ops: []dohosttest.Op{{
		Name: "instruction", Weight: 12,
		Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error { return w.Execute(ctx, h, w.Draw(r)) },
	}, {
		Name: "time",
		Do: func(_ context.Context, h *dohosttest.Host, r *rand.Rand) error {
			h.Advance(time.Duration(r.IntN(20)) * time.Second)
			return nil
		},
	}}}
	s.Reset = func() {
		steps.Add(int64(w.Steps()))
		w.Reset()
	}
	return s
}

// Programs returns a scenario with instructions that a seed draws, of two callers.
func Programs(seed uint64, each int) dohosttest.Scenario {
	w := NewObserver()
	w.calm = true
	s := scenario(w)
	s.Run = randtest.TwoClients(seed, each, func(ctx context.Context, h *dohosttest.Host, r *rand.Rand, number int) error {
		time.Sleep(time.Duration(number) * time.Microsecond) // the callers begin one after the other
		return w.Execute(ctx, h, w.Draw(r))
	})
	return s
}

// Execute executes an instruction. It returns the faults of the run.
func (w *Observer) Execute(ctx context.Context, h *dohosttest.Host, in Instr) error {
	w.Sent(in.String())
	switch in.Op {
	case Ask, Wait, Cancel, Clear, Decide, Operate, Audit, End:
		return w.call(ctx, h, in)
	}
	return w.do(ctx, h, in)
}
