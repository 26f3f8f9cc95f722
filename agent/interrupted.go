package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// InterruptedFiber is a fiber that [StartFiber] started in an incarnation that ended before the fiber did, for
// OnRecovery. Until the hook returns, one of Resume, Complete and Fail decides about the fiber, with a ctx
// that holds the turn. The decision takes effect immediately, even if the hook fails afterwards.
type InterruptedFiber struct {
	ID      string
	Kind    string
	Created time.Time
	// Attempt counts its failures and interruptions, including this one.
	Attempt int

	recovery *recovery
	row      *fiberRow
	returned bool // the hook has returned
}

// Checkpoint decodes the fiber's last checkpoint into v, and reports whether there is one.
func (f *InterruptedFiber) Checkpoint(v any) (bool, error) {
	return decodeCheckpoint(f.row.Checkpoint, v)
}

// Position returns the position where the fiber continues. The hook itself has no position, since it decides about
// several fibers: with this position ([dohost.WorkPosition.Context]) it repeats the operations of the fiber's method.
func (f *InterruptedFiber) Position() *dohost.WorkPosition { return f.row.position() }

// Resume resumes the fiber from its last checkpoint, as a separate task. In the constructor the task begins
// when the hook has returned.
//
// Errors: [ErrFiberDone] if the fiber was already decided about or cancelled; [dohost.ErrOverloaded] when the
// object has too many tasks.
func (f *InterruptedFiber) Resume(ctx context.Context) error {
	return f.decide(ctx, 0, func(ctx context.Context, r *fiberRow) error { return f.recovery.resume(ctx, r, false) })
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
	return f.end(ctx, work.Completed, func(r *fiberRow) { r.Result = raw })
}

// Fail ends the fiber as failed. The first 4 KiB of the text of the cause are kept.
//
// Errors: [ErrFiberDone], as for Resume; one for a cause that is nil.
func (f *InterruptedFiber) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return errors.New("agent: Fail needs an error: cause is nil")
	}
	return f.end(ctx, work.Failed, func(r *fiberRow) { r.Error = truncatedText(cause) })
}

func (f *InterruptedFiber) end(ctx context.Context, o work.Outcome, set func(*fiberRow)) error {
	return f.decide(ctx, o, func(ctx context.Context, r *fiberRow) error {
		set(r)
		return f.recovery.put(ctx, r)
	})
}

// InterruptedRun is a fiber of [RunFiber] that the end of its incarnation interrupted.
type InterruptedRun struct {
	ID      string
	Name    string
	Created time.Time // of the first of them, if it was resumed
	// Attempt counts the earlier calls of the hook that failed, were cut off, or resumed the fiber, since the
	// fiber's checkpoint last changed.
	Attempt int

	recovery *recovery
	row      *fiberRow
	resumed  bool
}

// Checkpoint decodes the fiber's last checkpoint into v, and reports whether there is one.
func (i *InterruptedRun) Checkpoint(v any) (bool, error) {
	return decodeCheckpoint(i.row.Checkpoint, v)
}
