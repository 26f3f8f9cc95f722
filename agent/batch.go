package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// InterruptedFiber is a fiber that [StartFiber] started in an incarnation that ended before the
// fiber did, for [OnRecovery]. While the hook has not returned, one of Resume, Complete and Fail
// decides about it, with a ctx that holds the turn; what is decided stands at once, whatever the
// hook returns.
type InterruptedFiber struct {
	ID      string
	Kind    string
	Created time.Time
	// Attempt counts its failures and interruptions, including this one.
	Attempt int

	c    *core
	row  *fiberRow
	over bool // the hook has returned
}

// Checkpoint decodes what the fiber has last stashed, or was started with, into v.
func (f *InterruptedFiber) Checkpoint(v any) error {
	_, err := decode(f.row.Snapshot, v)
	return err
}

// Resume has the fiber go on from its last checkpoint, as a task of its own. In the constructor it
// begins when the hook has returned.
//
// Errors: [ErrFiberDone] if it is decided already, or somebody has cancelled it;
// [dohost.ErrOverloaded] when the object has too many tasks.
func (f *InterruptedFiber) Resume(ctx context.Context) error {
	return f.decide(ctx, func(ctx context.Context, r *fiberRow, now int64) error { return f.c.takeUp(ctx, r, now, false) })
}

// Complete ends the fiber as completed, with a result that is nil or is kept as JSON.
//
// Errors: [ErrFiberDone], as for Resume; one for a result that is not JSON.
func (f *InterruptedFiber) Complete(ctx context.Context, result any) error {
	var raw json.RawMessage
	if result != nil {
		var err error
		if raw, err = marshal(result); err != nil {
			return err
		}
	}
	return f.end(ctx, FiberCompleted, func(r *fiberRow) { r.Result = raw })
}

// Fail ends the fiber as failed, with the text of why, of which 4 KiB are kept.
//
// Errors: [ErrFiberDone], as for Resume; one for a why that is nil.
func (f *InterruptedFiber) Fail(ctx context.Context, why error) error {
	if why == nil {
		return errors.New("agent: a fiber fails for a reason: why is nil")
	}
	return f.end(ctx, FiberFailed, func(r *fiberRow) { r.Error = text(why) })
}

func (f *InterruptedFiber) end(ctx context.Context, status FiberStatus, with func(*fiberRow)) error {
	return f.decide(ctx, func(ctx context.Context, r *fiberRow, now int64) error {
		r.interrupted()
		with(r)
		f.c.close(r, status, now)
		return f.c.putFiber(ctx, *r)
	})
}

func (f *InterruptedFiber) decide(ctx context.Context, do func(context.Context, *fiberRow, int64) error) error {
	c := f.c
	if f.over {
		return ErrFiberDone
	}
	var decided fiberRow
	err := fresh(ctx, func() error {
		return dohost.Transaction(ctx, func(ctx context.Context) error {
			row, ok, err := fiberRows.Get(ctx, c.store(), f.ID)
			if err != nil {
				return err
			}
			if !ok || !row.Value.lost(c.life) {
				return ErrFiberDone
			}
			if err := do(ctx, &row.Value, time.Now().UnixMilli()); err != nil {
				return err
			}
			decided = row.Value
			return c.rearm(ctx)
		})
	})
	if err == nil {
		outcome := string(decided.Status)
		if decided.open() {
			outcome = resume.String()
		}
		c.recovered(ctx, &decided, outcome, nil)
	}
	return err
}

// errLeft is why a fiber has failed that OnRecovery has not decided about.
var errLeft = errors.New("agent: OnRecovery has left it")

// OnRecovery decides about the fibers that [StartFiber] started and that did not come to their end.
// It is given at once all that may go on, the oldest first; those that were interrupted too often
// have failed before. It resumes them in any order ([InterruptedFiber.Resume]), or ends them. One
// about which it has not decided when it returns nil has failed, in the segment of what the hook has
// written last (or in those after it, when the checkpoints are too large for one). Without an
// OnRecovery each is resumed, the oldest first.
//
// When it fails, or its incarnation ends, it is called again with those that are still open, after
// 30 s doubling to 5 min, at most five times and for at most a day; then they are dead: see
// [DeadFibers]. Meanwhile others that are interrupted are given to it in calls of their own. The
// first call is in the constructor, where it has 10 s, with the hooks of [OnInterrupted] before it
// (its ctx ends then), before other events come; later ones are tasks of their own, one at a time.
// A hook that waits for a fiber that it has resumed does so in vain in the constructor.
func OnRecovery[O any](m func(*O, context.Context, []*InterruptedFiber) error) Entry[O] {
	return func(c *class) {
		c.once("OnRecovery", m == nil, c.recovery != nil)
		c.recovery = func(self any, ctx context.Context, fs []*InterruptedFiber) error { return m(self.(*O), ctx, fs) }
	}
}

// handed returns the rows about which OnRecovery is to decide now, the oldest first.
func (c *core) handed(ctx context.Context) (rows []*fiberRow, err error) {
	now := time.Now()
	err = c.eachLost(ctx, func(row *fiberRow) (bool, error) {
		if c.judge(row, now) == hand {
			rows = append(rows, row)
		}
		return true, nil
	})
	slices.SortFunc(rows, func(a, b *fiberRow) int { return cmp.Compare(a.Number, b.Number) })
	return rows, err
}

// handOver calls OnRecovery in the constructor, unless there is no time left, or it has failed about
// one of the rows before: the gate is not for that.
func (c *core) handOver(ctx context.Context, until time.Time) error {
	rows, err := c.handed(ctx)
	if err != nil {
		return err
	}
	if !time.Now().Before(until) || slices.ContainsFunc(rows, func(r *fiberRow) bool { return r.Hooks > 0 }) {
		c.later()
		return nil
	}
	return c.askRecovery(ctx, rows, until)
}

// handLater has a task call OnRecovery, if none does.
func (c *core) handLater(ctx context.Context) error {
	if c.fibers.handing {
		return nil
	}
	err := c.obj.Go(ctx, "recovery", func(ctx context.Context) error {
		defer func() { c.fibers.handing = false }()
		rows, err := c.handed(ctx)
		if err == nil {
			err = c.askRecovery(ctx, rows, time.Time{})
		}
		return errors.Join(err, c.rearm(ctx))
	})
	if errors.Is(err, dohost.ErrOverloaded) {
		c.later()
		return nil
	}
	c.fibers.handing = err == nil
	return err
}

// askRecovery calls OnRecovery about rows. In the constructor it has until then.
func (c *core) askRecovery(ctx context.Context, rows []*fiberRow, until time.Time) error {
	if len(rows) == 0 {
		return nil // somebody has cancelled them
	}
	fibers := make([]*InterruptedFiber, len(rows))
	for i, row := range rows {
		fibers[i] = &InterruptedFiber{
			ID: row.ID, Kind: row.Name, Created: time.UnixMilli(row.Created), Attempt: row.Attempt + 1, c: c, row: row,
		}
		defer c.hooked(row.ID)()
	}
	failed, err := c.hook(ctx, rows, until, func(ctx context.Context) error {
		return c.class.recovery(c.self, ctx, slices.Clone(fibers))
	})
	for i, f := range fibers {
		f.over = true
		if err == nil {
			err = c.leftOver(ctx, rows[i], failed)
		}
	}
	_, err = c.orLater(ctx, rows[0], err)
	return err
}

// leftOver is for a row that OnRecovery has had, and may have left open.
func (c *core) leftOver(ctx context.Context, row *fiberRow, failed error) error {
	if failed != nil {
		outcome, err := c.hookFailed(ctx, row, failed)
		if err == nil && outcome != "" {
			c.recovered(ctx, row, outcome, failed)
		}
		return err
	}
	moved, err := c.after(ctx, row, func(r *fiberRow, now int64) error {
		if !r.lost(c.life) {
			return errMoved
		}
		r.interrupted()
		r.Error = text(errLeft)
		c.close(r, FiberFailed, now)
		return nil
	})
	if err == nil && !moved {
		c.recovered(ctx, row, string(row.Status), errLeft)
	}
	return err
}
