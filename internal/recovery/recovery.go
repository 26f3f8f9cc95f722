package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Options say how much is measured. All numbers are at least one.
type Options struct {
	Dir     string // an empty folder, on the disk that is meant
	Seed    uint64 // draws which object is ended, and when a process
	Objects int    // that are fenced
	Fences  int    // of them, at rest and under load
	Workers int    // in the middle of something when their process ends
	Ends    int    // of processes, in each way
	// Work is about how long a process works before it is ended.
	Work time.Duration
	// Progress is told how far it is. Nil if nobody asks.
	Progress func(format string, args ...any)
}

func (o Options) tell(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(format, args...)
	}
}

// Distribution is how long recoveries of one kind took.
type Distribution struct {
	ID   string // of the row in the tables
	What string
	Took []time.Duration // in order
	Bill *Bill           // nil where no process ends
}

// At is the time within which so many of a hundred had gone on.
func (d *Distribution) At(percent float64) time.Duration {
	n := len(d.Took)
	i := int(percent / 100 * float64(n))
	return d.Took[min(i, n-1)]
}

// loadCallers are those beside the fences under load.
const loadCallers = 64

// Run measures all kinds. What was lost or doubled is an error, and there are no figures.
func Run(ctx context.Context, o Options) ([]Distribution, error) {
	if o.Objects < 1 || o.Fences < 1 || o.Workers < 1 || o.Ends < 1 || o.Work < time.Millisecond {
		return nil, fmt.Errorf("recovery: %d objects, %d fences, %d workers, %d ends, %v of work: want at least one of each, and a millisecond",
			o.Objects, o.Fences, o.Workers, o.Ends, o.Work)
	}
	ds, err := o.fences(ctx)
	if err != nil {
		return nil, fmt.Errorf("fences: %w", err)
	}
	for _, k := range []struct {
		id, what string
		ending
	}{
		{"P12", "SIGKILL, at rest: from the start of the next process to the handler of an overdue alarm", ending{workers: 1, kill: true, pause: 4 * o.Work}},
		{"R4", fmt.Sprintf("SIGKILL, under load: from the kill to the next step of each of %d objects that were in the middle of one", o.Workers),
			ending{workers: o.Workers, kill: true}},
		{"R5", fmt.Sprintf("restart of the host, under load: from the order to close, the same %d objects", o.Workers), ending{workers: o.Workers}},
	} {
		dir := filepath.Join(o.Dir, k.id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		took, bill, err := k.run(ctx, o, dir, o.Ends)
		if err == nil && bill.Lost+bill.Doubled > 0 {
			err = fmt.Errorf("%d steps were lost and %d doubled", bill.Lost, bill.Doubled)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.what, err)
		}
		ds = append(ds, Distribution{ID: k.id, What: k.what, Took: took, Bill: &bill})
	}
	for i := range ds {
		slices.Sort(ds[i].Took)
	}
	return ds, nil
}

// fences measures in a host that lives on: warm, under load, and after it was opened
// again.
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
	if _, err := f.cold(ctx); err != nil { // so that all are there
		return nil, err
	}
	o.tell("fences at rest")
	warm, err := f.fence(ctx, o.Seed, o.Fences)
	if err != nil {
		return nil, err
	}
	o.tell("fences under load")
	var loaded []time.Duration
	err = f.loaded(ctx, loadCallers, func() (err error) {
		loaded, err = f.fence(ctx, o.Seed+1, o.Fences)
		return err
	})
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
	o.tell("cold wakes")
	cold, err := f.cold(ctx)
	if err == nil {
		err = f.verify(ctx)
	}
	if err != nil {
		return nil, err
	}
	return []Distribution{
		{ID: "R1", What: fmt.Sprintf("fence, at rest: %d objects, from the fence to the next incarnation's first step", o.Objects), Took: warm},
		{ID: "R2", What: fmt.Sprintf("fence, under load: the same beside %d callers of other objects", loadCallers), Took: loaded},
		{ID: "R3", What: "cold: each object's first call after the host was opened, to its first step", Took: cold},
	}, nil
}
