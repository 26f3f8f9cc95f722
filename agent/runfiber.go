package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// RunFiber runs fn as a fiber, and returns when fn has ended. The fiber's row is durable before fn begins; RunFiber
// gives up the turn for that, as in an Await. The batch of fn's last step deletes the row. If the incarnation
// ends first, a later one calls OnInterrupted, and the caller of RunFiber gets [dohost.ErrFenced]. fn is not
// repeated. Its ctx holds the turn, and [Fibers.Cancel] cancels it. A panic of fn ends the incarnation as any other
// panic does; if a caller of RunFiber recovers, the fiber has failed.
//
// Errors: fn's; one for a nil fn, and for a name that is empty, longer than 256 bytes, or begins with "dohost.";
// the errors of [dohost.Collection].
func RunFiber(ctx context.Context, a Ref, name string, fn func(context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("agent: RunFiber of %q without a function", name)
	}
	fs := &a.base().fibers
	row, step, err := fs.beginRun(ctx, name)
	if err != nil {
		return err
	}
	id := row.ID
	if err := fs.checkNotCancelled(ctx, id); err != nil {
		return err
	}
	_, inner, end := fs.startCall(ctx, row)
	defer end()
	returned := false
	defer func() {
		if !returned {
			fs.abandonRun(ctx, id)
		}
	}()
	err = fn(inner)
	returned = true
	if gone := fs.endRun(ctx, id, err != nil); gone != nil {
		return errors.Join(err, gone)
	}
	if err == nil {
		step.pass()
	}
	return err
}

// RunFiberValue is [RunFiber] of an fn that returns a value. With an error it returns the zero value.
//
// Errors: the errors of [RunFiber].
func RunFiberValue[T any](ctx context.Context, a Ref, name string, fn func(context.Context) (T, error)) (T, error) {
	var v, zero T
	if fn == nil {
		return zero, RunFiber(ctx, a, name, nil)
	}
	err := RunFiber(ctx, a, name, func(ctx context.Context) (err error) {
		v, err = fn(ctx)
		return err
	})
	if err != nil {
		return zero, err
	}
	return v, nil
}

// beginRun makes the row, and returns when it is durable.
func (fs *fibers) beginRun(ctx context.Context, name string) (row *fiberRow, step workStep, err error) {
	if name == "" || len(name) > maxName {
		return nil, step, &dohost.LimitError{Subject: "fiber name", Size: len(name), Limit: maxName}
	}
	if strings.HasPrefix(name, reservedPrefix) {
		return nil, step, fmt.Errorf("agent: fiber %q: names that begin with %q are reserved", name, reservedPrefix)
	}
	if step, err = nextStep(ctx, "fiber/"+workName(name)); err != nil {
		return nil, step, err
	}
	now := time.Now().UnixMilli()
	row = &fiberRow{
		Item: work.Item{State: work.Running, Owner: fs.owner, Run: fs.nextRun()},
		ID:   ulid.Make().String(), Name: name, Work: step.work, Created: now, Began: now, Updated: now,
	}
	if err := fs.rows.transaction(ctx, func(ctx context.Context) error { return fs.add(ctx, row) }); err != nil {
		return nil, step, err
	}
	err = dohost.AwaitDurable(ctx)
	if errors.Is(err, dohost.ErrMisuse) {
		_, gone := fs.delete(ctx, row.ID)
		err = errors.Join(err, gone)
	}
	return row, step, err
}

// checkNotCancelled returns an error if a fiber was cancelled before it began.
func (fs *fibers) checkNotCancelled(ctx context.Context, id string) error {
	_, ok, err := get(ctx, fs.rows, &fiberRows, id)
	if err == nil && !ok {
		err = context.Canceled
	}
	return err
}

// endRun deletes the row, in the batch of the fiber's last step. After the end of the incarnation it cannot,
// and the row stays.
func (fs *fibers) endRun(ctx context.Context, id string, failed bool) error {
	if err := fs.end(ctx, id); err != nil {
		return err
	}
	status := FiberCompleted
	if failed {
		status = FiberFailed
	}
	fs.reportEnded(ctx, id, status)
	return nil
}

// abandonRun lets a task delete the row of a fiber whose function has panicked or called Goexit. If a caller of RunFiber
// recovers, no other code deletes it. If the incarnation ends, so does the task, and the fiber is interrupted: even if a
// deferred function of the caller has committed the batch.
func (fs *fibers) abandonRun(ctx context.Context, id string) {
	_ = fs.obj.Go(ctx, "end of a fiber", func(ctx context.Context) error { return fs.endRun(ctx, id, true) }) // the panic continues
}

// reportEnded reports the end of a fiber of RunFiber, or of one that was cancelled.
func (fs *fibers) reportEnded(ctx context.Context, id string, status FiberStatus) {
	fs.wakeWaiters(id)
	fs.report(ctx, "fiber:ended", nil, slog.String("fiber", id), slog.String("status", string(status)))
}
