package randprog

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// scenario returns a scenario with everything but its work.
func scenario(w *Observer) dohosttest.Scenario {
	options := dohost.Options{Listener: w.Listener()}
	w.watch(&options)
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w)},
		Options: options,
		Reset:   w.Reset,
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}
}

// Simulation returns a simulation whose clients send random programs. It counts the compared instructions in steps.
func Simulation(steps *atomic.Int64) dohosttest.Simulation {
	w := NewObserver()
	s := dohosttest.Simulation{Scenario: scenario(w), Ops: []dohosttest.Op{{
		Name: "program",
		Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
			return w.Send(ctx, h, w.chooseObject(r), Draw(r, w.Next()))
		},
	}, {
		Name: "HTTP request",
		Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
			return w.SendHTTP(ctx, h, r.IntN(Objects), Draw(r, w.Next()))
		},
	}, {
		Name: "connect",
		Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
			k := r.IntN(Objects)
			if w.full(objectName(k)) {
				return w.Message(ctx, h, r, k, drawWithSockets(r, w.Next()))
			}
			return w.Connect(ctx, h, r, k, drawWithSockets(r, w.Next()))
		},
	}, {
		Name: "message", Weight: 2,
		Do: func(ctx context.Context, h *dohosttest.Host, r *rand.Rand) error {
			return w.Message(ctx, h, r, r.IntN(Objects), drawWithSockets(r, w.Next()))
		},
	}, {
		Name: "leave",
		Do:   func(_ context.Context, _ *dohosttest.Host, r *rand.Rand) error { return w.Leave(r, r.IntN(Objects)) },
	}, {
		Name: "fill or free the disk",
		Do: func(_ context.Context, _ *dohosttest.Host, r *rand.Rand) error {
			return w.FillDisk(r.IntN(3) == 0)
		},
	}, {
		Name: "back up",
		Do:   func(ctx context.Context, h *dohosttest.Host, _ *rand.Rand) error { return w.Backup(ctx, h.Host()) },
	}}}
	s.Reset = func() {
		steps.Add(int64(w.Steps()))
		w.Reset()
	}
	return s
}

// Programs returns a scenario with programs that a seed draws, of two clients.
func Programs(seed uint64, each int) dohosttest.Scenario {
	w := NewObserver()
	s := scenario(w)
	s.Run = randtest.TwoClients(seed, each, w.act)
	return s
}

// act draws an operation of a client of [Programs]: sockets get most of them.
func (w *Observer) act(ctx context.Context, h *dohosttest.Host, r *rand.Rand, id int) error {
	switch k := r.IntN(Objects); r.IntN(6) {
	case 0:
		return w.Send(ctx, h, objectName(k), Draw(r, id))
	case 1:
		return w.SendHTTP(ctx, h, k, Draw(r, id))
	case 2:
		return w.Leave(r, k)
	default:
		return w.Message(ctx, h, r, k, drawWithSockets(r, id))
	}
}

// Send makes an object execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h dohost.Locator, object string, p Program) error {
	w.Sent(object + ": " + p.String())
	answer, err := dohost.Call(ctx, machines.Get(h, object), (*machine).run, request{Name: p.name(), Code: p.Code})
	w.answered(object, p.name(), answer, err)
	return w.Err()
}

// Check compares the objects, which are at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	for _, name := range w.all() {
		read := Program{-w.Next(), []Instr{{Op: List}, {Op: ListRows}, {Op: ReadFeed}, {Op: GetAlarm}}}
		if err := w.Send(ctx, h, name, read); err != nil {
			return err
		}
		w.checkAlarm(name)
	}
	w.checkClients(h)
	for k := range Objects { // which the idle eviction has ended
		if err := w.Send(ctx, h, objectName(k), Program{-w.Next(), []Instr{{Op: Sockets}, {Op: List}}}); err != nil {
			return err
		}
	}
	return w.Err()
}
