package randprog

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Scenario returns a scenario that does the work of a run, and its report.
func Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	return NewObserver().Scenario(work)
}

// Scenario returns a scenario that does the work of a run with this observer, and its report.
func (w *Observer) Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	options := dohost.Options{Listener: w.Listener()}
	w.watch(&options)
	return dohosttest.Scenario{
		Classes: []dohost.Class{Class(w)},
		Options: options,
		Reset:   w.Reset,
		Run:     randtest.Run(work.Callers, work.Faults, func(a Act) int { return a.At }, w.act),
		Check:   func(ctx context.Context, h *dohosttest.Host) error { return w.Check(ctx, h) },
	}, &w.Report
}

// Send makes an object execute a program. It returns the faults of the run, and no errors of the call.
func (w *Observer) Send(ctx context.Context, h dohost.Locator, object string, p Program) error {
	w.Sent(object + ": " + p.String())
	answer, err := dohost.Call(ctx, machines.Get(h, object), (*machine).run, request{Name: nameOf(p), Code: p.Code})
	w.answered(object, nameOf(p), answer, err)
	return w.Err()
}

// Check compares the objects, which are at rest, with the model.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	for _, name := range w.all() {
		read := Program{ID: -w.Next(), Code: []Instr{{Op: List}, {Op: ListRows}, {Op: ReadFeed}, {Op: GetAlarm}}}
		if err := w.Send(ctx, h, name, read); err != nil {
			return err
		}
		w.checkAlarm(name)
	}
	w.checkClients(h)
	for k := range Objects { // which the idle eviction has ended
		if err := w.Send(ctx, h, objectName(k), Program{ID: -w.Next(), Code: []Instr{{Op: Sockets}, {Op: List}}}); err != nil {
			return err
		}
	}
	return w.Err()
}
