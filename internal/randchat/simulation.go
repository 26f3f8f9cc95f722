package randchat

import (
	"cmp"
	"context"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return NewObserver().Scenario(work)
}

// Scenario returns a scenario that does the work of a run with this observer, and its report.
func (w *Observer) Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	w.noEnds, w.budget, w.guarded, w.policy = work.NoEnds, work.Budget, work.Guarded, cmp.Or(work.Policy, chat.PolicyQueue)
	return dohosttest.Scenario{
		Classes: Classes(w),
		Reset:   w.Reset,
		Places:  randtest.Places(),
		Run:     randtest.Run(work.Callers, work.Faults, func(in Instr) int { return in.At }, w.Execute),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}, &w.Report
}

// Execute executes an instruction. It returns the faults of the run.
func (w *Observer) Execute(ctx context.Context, h *dohosttest.Host, in Instr) error {
	w.Sent(randtest.Literal(in))
	if w.faulty(in) {
		w.Faultf("%s is not as expected", in.Op)
	}
	switch in.Op {
	case Pass:
		h.Advance(time.Duration(in.N) * time.Second)
		return nil
	case Ask, Wait, Cancel, Clear, Decide, Operate, Audit, End, Complete, Grant:
		return w.call(ctx, h, in)
	}
	return w.do(ctx, h, in)
}
