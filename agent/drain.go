package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// DrainSource is pending work that is done in cycles: see [Drain]. Pending and Cycle are required.
type DrainSource struct {
	// Pending reports whether there is work.
	Pending func(ctx context.Context) (bool, error)
	// Cycle does a bounded part of the work.
	Cycle func(ctx context.Context) error
	// Between is called after each cycle, before the next call of Pending. It is meant for heartbeats, and to save cursors.
	Between func(ctx context.Context) error
}

// DrainOptions bounds a [Drain]. Nil means the defaults.
type DrainOptions struct {
	// MaxCycles bounds the cycles. Zero means 50; negative means no bound.
	MaxCycles int
	// MaxTime is the time after which no cycle begins. Zero means 25 s; negative means no bound.
	MaxTime time.Duration
}

func (o *DrainOptions) withDefaults() DrainOptions {
	var d DrainOptions
	if o != nil {
		d = *o
	}
	return DrainOptions{MaxCycles: cmp.Or(d.MaxCycles, 50), MaxTime: cmp.Or(d.MaxTime, 25*time.Second)}
}

// WorkState is the state of the work that a [Drain] or a wake leaves.
type WorkState int

// The states of work.
const (
	WorkPending WorkState = iota // there is more work
	WorkDone                     // no work is pending
)

// String returns "pending" or "done".
func (s WorkState) String() string {
	if s == WorkDone {
		return "done"
	}
	return "pending"
}

// Drained is the result of a [Drain].
type Drained struct {
	Cycles int
	Work   WorkState // after the last cycle
}

// Drain runs cycles until no work is pending or a limit is reached.
//
// Errors: the errors of the functions, with the number of complete cycles; [dohost.ErrMisuse] without a Pending or a Cycle; the context's cause,
// if it has ended before a cycle.
func Drain(ctx context.Context, src DrainSource, o *DrainOptions) (d Drained, err error) {
	if src.Pending == nil || src.Cycle == nil {
		return d, fmt.Errorf("agent: Drain without the function Pending or Cycle: %w", dohost.ErrMisuse)
	}
	limits := o.withDefaults()
	for begin := time.Now(); ; {
		pending, err := src.Pending(ctx)
		switch {
		case err != nil:
			return d, err
		case !pending:
			d.Work = WorkDone
			return d, nil
		case limits.MaxCycles > 0 && d.Cycles == limits.MaxCycles, limits.MaxTime > 0 && time.Since(begin) >= limits.MaxTime:
			return d, nil
		case ctx.Err() != nil:
			return d, context.Cause(ctx)
		}
		if err := src.Cycle(ctx); err != nil {
			return d, err
		}
		d.Cycles++
		if src.Between != nil {
			if err := src.Between(ctx); err != nil {
				return d, err
			}
		}
	}
}
