package randinbox

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	w := NewObserver()
	return w.scenario(work), &w.Report
}

func (w *Observer) scenario(work Workload) dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w)},
		Options: dohost.Options{Listener: w.Listener()},
		Reset:   w.Reset,
		Run:     work.Run(w.act),
		Places:  randtest.Places(),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}
}

// Send makes the object execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h *dohosttest.Host, p Program) error {
	return w.StoredReport.Send(p.String(), func() (int, error) { return dohost.Call(ctx, offices.Get(h, "a"), (*office).run, p) })
}

// Check compares the object, which is at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	_, err := dohost.CallNoArg(ctx, offices.Get(h, "a"), (*office).rest)
	return errors.Join(err, w.Err())
}

// rest checks that all work has ended: each row that waits is parked, or no agent has its name.
func (o *office) rest(ctx context.Context) (struct{}, error) {
	m, err := o.load(ctx)
	if err != nil {
		return struct{}{}, err
	}
	if left := m.unfinished(); len(left) > 0 {
		o.w.Faultf("at rest the rows %q are not answered", left)
	}
	for _, c := range m.Calls {
		if c.State != agent.RowsParked {
			o.w.Faultf("at rest there is %v", c)
		}
		if c.ParkedIn == o.incarnation && !o.w.reportedParked(c.ID) {
			o.w.Faultf("%v is parked, and was not reported", c)
		}
	}
	for _, asked := range m.requests() {
		if !asked.Processed.IsZero() && asked.From != "forger" && m.replyTo(asked) == nil {
			o.w.Faultf("at rest there is no reply to %s", rowText(asked))
		}
	}
	if pending, err := o.Rows().Pending(ctx); err != nil || pending {
		o.w.Faultf("at rest rows are pending: %t, %v", pending, err)
	}
	return struct{}{}, o.w.checkWatchers(ctx, o, m)
}
