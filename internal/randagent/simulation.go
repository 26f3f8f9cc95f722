package randagent

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/hostof"
	"github.com/dohost/dohost/internal/randtest"
)

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return NewObserver().Scenario(work)
}

// Scenario returns a scenario that does the work of a run with this observer, and its report.
func (w *Observer) Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w), ChildClass(w)},
		Options: dohost.Options{Listener: w.Listener()},
		Reset:   w.Reset,
		Run:     work.Run(w.act),
		Places:  randtest.Places(),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}, &w.Report
}

// Send makes the agent execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h *dohosttest.Host, p Program) error {
	return w.StoredReport.Send(p.String(), func() (int, error) { return dohost.Call(ctx, machines.Get(h, "a"), (*machine).run, p) })
}

// Check compares the agent, which is at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	dead, err := dohost.CallNoArg(ctx, machines.Get(h, "a"), (*machine).retryDead)
	if dead > 0 {
		err = errors.Join(err, h.WaitIdle(0))
	}
	if err == nil { // each client that is connected gets this state
		err = errors.Join(w.Send(ctx, h, Program{ID: -w.Next(), Code: []Instr{{Op: SetState, N: 1}}}), h.WaitIdle(0))
	}
	if err == nil {
		_, err = dohost.CallNoArg(ctx, machines.Get(h, "a"), (*machine).rest)
	}
	return errors.Join(err, w.checkChildren(ctx, h))
}

// retryDead passes dead fibers to their hook again, and returns their number.
func (a *machine) retryDead(ctx context.Context) (int, error) {
	if _, err := a.load(ctx); err != nil {
		return 0, err
	}
	dead, err := a.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
	if err != nil {
		return 0, err
	}
	for _, f := range dead {
		if a.incarnation < maxHooks {
			a.w.Faultf("%+v is dead in incarnation %d", f, a.incarnation)
		}
		a.w.forget(f.ID)
		if _, err := a.Fibers().Retry(ctx, f.ID); err != nil {
			return 0, err
		}
	}
	return len(dead), nil
}

// rest checks that all work has ended.
func (a *machine) rest(ctx context.Context) (struct{}, error) {
	m, err := a.load(ctx)
	if err != nil {
		return struct{}{}, err
	}
	for _, f := range m.Fibers {
		_, expires := f.expires()
		switch {
		case f.open():
			a.w.Faultf("at rest %v has not ended", f)
		case f.notifies() && !f.Notified && !a.gaveUp(f):
			a.w.Faultf("at rest OnFiberEnded has not been called for %v", f)
		case expires && !f.Gone:
			a.w.Faultf("at rest %v is kept", f)
		}
	}
	for name := range m.Runs {
		a.w.Faultf("at rest %s has not ended", name)
	}
	if len(m.Timers) > 0 || len(m.Queue) > 0 {
		a.w.Faultf("at rest there are the schedules %v and the items %v", m.timers(), m.Queue)
	}
	a.checkChanges(m)
	if err := a.checkRows(ctx, m); err != nil {
		return struct{}{}, err
	}
	a.w.checkConnections(m, hostof.State(a.Object()).(*dohost.Host))
	return struct{}{}, nil
}
