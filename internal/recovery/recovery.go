package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dohost/dohost/ledger"
)

// Options set the size of a measurement. All numbers are at least one.
type Options struct {
	Dir     string // an empty folder, on the disk to measure
	Seed    uint64 // selects the fenced objects and the times of kills
	Objects int    // to fence
	Fences  int    // the number of fences at rest, busy and under load each
	Workers int    // in the middle of a step when their process ends
	// Ends is the number of processes to end in each way; at rest, where each end measures one object, it is
	// five times as many.
	Ends int
	// Rest is how long objects are idle before they are fenced at rest: once a second the host frees the parts
	// that only a busy object needs. Zero means 4 s.
	Rest time.Duration
	// Work is the approximate run time of a process before it is ended; at rest, at most 8 ms.
	Work time.Duration
	// Progress is called with progress messages, if it is not nil.
	Progress func(format string, args ...any)
}

func (o Options) progressf(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(format, args...)
	}
}

// Distribution contains the durations of recoveries of one kind.
type Distribution struct {
	ID   string // of the table row
	What string
	Took []time.Duration // sorted
	Cost *Cost           // nil if no process ends
}

// At returns a percentile of the durations.
func (d *Distribution) At(percent float64) time.Duration {
	had := int(math.Ceil(percent * float64(len(d.Took)) / 100))
	return d.Took[max(had, 1)-1]
}

// loadCallers is the number of concurrent callers for fences under load.
const loadCallers = 64

// restWork bounds Options.Work for a process that is ended at rest. A step takes less, unless the disk needs
// milliseconds for a sync: then the end may interrupt a step.
const restWork = 8 * time.Millisecond

// scenario is a row with ends of processes.
type scenario struct {
	id, what string
	times    int
	endScenario
}

// Run measures all kinds of ends. If steps are lost or doubled, Run returns an error and no figures.
func Run(ctx context.Context, o Options) ([]Distribution, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Rest = cmp.Or(o.Rest, 4*time.Second)
	fences, err := o.fences(ctx)
	if err != nil {
		return nil, fmt.Errorf("fences: %w", err)
	}
	ends, err := o.run(ctx, o.ends())
	if err != nil {
		return nil, err
	}
	ds := append(fences, ends...)
	for i := range ds {
		slices.Sort(ds[i].Took)
	}
	return ds, nil
}

// RunOperations measures SIGKILL under load with each step as an operation of package ledger, for each policy. If steps are
// lost or doubled, or a policy has repeated an effect that it must not repeat, RunOperations returns an error and no
// figures. Fences and Rest have no meaning. Dir may be that of Run.
func RunOperations(ctx context.Context, o Options) ([]Distribution, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	ds, err := o.run(ctx, o.operations())
	for i := range ds {
		slices.Sort(ds[i].Took)
	}
	return ds, err
}

func (o Options) check() error {
	if min(o.Objects, o.Fences, o.Workers, o.Ends) < 1 || o.Work < time.Millisecond {
		return fmt.Errorf("recovery: %d objects, %d fences, %d workers, %d ends, %v of work: "+
			"want at least one of each, and at least 1ms of work", o.Objects, o.Fences, o.Workers, o.Ends, o.Work)
	}
	if o.Rest < 0 {
		return fmt.Errorf("recovery: %v of rest: want 0 or more", o.Rest)
	}
	return nil
}

// run measures scenarios.
func (o Options) run(ctx context.Context, scenarios []scenario) (ds []Distribution, err error) {
	for _, k := range scenarios {
		dir := filepath.Join(o.Dir, k.id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		took, bill, err := k.endScenario.run(ctx, o, dir, k.times)
		if err := cmp.Or(err, bill.wrong()); err != nil {
			return nil, fmt.Errorf("%s: %w", k.what, err)
		}
		ds = append(ds, Distribution{ID: k.id, What: k.what, Took: took, Cost: &bill})
	}
	return ds, nil
}

// operations returns the scenarios of RunOperations.
func (o Options) operations() (all []scenario) {
	for id, p := range map[string]ledger.Policy{"R6": ledger.PolicyAtMostOnce, "R6i": ledger.PolicyIdempotent, "R6r": ledger.PolicyReconcile} {
		all = append(all, scenario{
			id, fmt.Sprintf("as R4, with each step as an operation of package ledger: %v", p),
			o.Ends, endScenario{workers: o.Workers, kill: true, work: o.Work, policy: p},
		})
	}
	slices.SortFunc(all, func(a, b scenario) int { return cmp.Compare(a.id, b.id) })
	return all
}

// ends returns the scenarios that end processes.
func (o Options) ends() []scenario {
	atRest := min(o.Work, restWork)
	return []scenario{
		{
			"P12", "SIGKILL, at rest: from the start of the next process to the handler of an overdue alarm",
			5 * o.Ends, endScenario{workers: 1, kill: true, work: atRest, pause: 4 * atRest},
		},
		{
			"R4", fmt.Sprintf("SIGKILL, under load: from the kill to the next step of each of %d objects "+
				"that were in the middle of one", o.Workers),
			o.Ends, endScenario{workers: o.Workers, kill: true, work: o.Work},
		},
		{
			"R5", fmt.Sprintf("restart of the host, under load: from the start of Close, the same %d objects", o.Workers),
			o.Ends, endScenario{workers: o.Workers, work: o.Work},
		},
	}
}

// fences measures fences: at rest, busy, under load, and after the host was opened again.
func (o Options) fences(ctx context.Context) (ds []Distribution, err error) {
	dir := filepath.Join(o.Dir, "fences")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := openFenced(dir, o.Objects)
	if err != nil {
		return nil, err
	}
	open := true
	defer func() {
		if open {
			err = errors.Join(err, f.close())
		}
	}()
	if _, err := f.callAll(ctx); err != nil { // so that all exist
		return nil, err
	}
	ds, err = o.fenceWarm(ctx, f)
	if err == nil {
		err = f.verify(ctx)
	}
	open = false
	if err := errors.Join(err, f.close()); err != nil {
		return nil, err
	}
	steps := f.steps
	if f, err = openFenced(dir, o.Objects); err != nil {
		return nil, err
	}
	open, f.steps = true, steps
	o.progressf("cold wakes")
	cold, err := f.callAll(ctx)
	if err == nil {
		err = f.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	return append(ds, Distribution{
		ID: "R3", What: "cold: each object's first call after the host was opened, to its first step", Took: cold,
	}), nil
}

// fenceWarm measures in a host with objects that were called before.
func (o Options) fenceWarm(ctx context.Context, f *fenceHost) ([]Distribution, error) {
	o.progressf("fences at rest")
	rested, err := f.fenceIdle(ctx, o.Seed, o.Fences, o.Rest)
	if err != nil {
		return nil, err
	}
	o.progressf("fences of busy objects")
	busy, err := f.fence(ctx, o.Seed, o.Fences)
	if err != nil {
		return nil, err
	}
	o.progressf("fences under load")
	var loaded []time.Duration
	err = f.underLoad(ctx, loadCallers, func() (err error) {
		loaded, err = f.fence(ctx, o.Seed+1, o.Fences)
		return err
	})
	return []Distribution{
		{ID: "R1", Took: rested, What: fmt.Sprintf("fence, at rest: %d objects that were idle for %v, "+
			"from the fence to the next incarnation's first step", o.Objects, o.Rest)},
		{ID: "R1b", Took: busy, What: "fence, busy a moment before: the same objects, each called just before its fence"},
		{ID: "R2", Took: loaded, What: fmt.Sprintf("fence, under load: as R1b, with %d callers of other objects",
			loadCallers)},
	}, err
}
