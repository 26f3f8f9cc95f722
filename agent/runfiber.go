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
// those of [dohost.Collection].
func RunFiber(ctx context.Context, a Ref, name string, fn func(context.Context) error) error {
	if fn == nil {
		return fmt.Errorf("agent: RunFiber of %q without a function", name)
	}
	c := a.base()
	id, run, err := c.beginRun(ctx, name)
	if err != nil {
		return err
	}
	if err := c.checkNotCancelled(ctx, id); err != nil {
		return err
	}
	_, inner, end := c.startCall(ctx, id, run)
	defer end()
	returned := false
	defer func() {
		if !returned {
			c.abandonRun(ctx, id)
		}
	}()
	err = fn(inner)
	returned = true
	if gone := c.endRun(ctx, id, err); gone != nil {
		return errors.Join(err, gone)
	}
	return err
}

// RunFiberValue is [RunFiber] of an fn that returns a value. With an error it returns the zero value.
//
// Errors: those of [RunFiber].
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
func (c *core) beginRun(ctx context.Context, name string) (id string, run uint64, err error) {
	if name == "" || len(name) > maxName {
		return "", 0, &dohost.LimitError{What: "fiber name", Size: len(name), Limit: maxName}
	}
	if strings.HasPrefix(name, reservedPrefix) {
		return "", 0, fmt.Errorf("agent: fiber %q: names that begin with %q are reserved", name, reservedPrefix)
	}
	now := time.Now().UnixMilli()
	row := fiberRow{
		Item: work.Item{State: work.Running, Owner: c.incarnation, Run: c.nextRun()},
		ID:   ulid.Make().String(), Name: name, Created: now, Began: now, Updated: now,
	}
	err = c.update(ctx, func(ctx context.Context) error {
		if row.Number, err = c.next(ctx, "fiber"); err != nil {
			return err
		}
		return c.insertFiber(ctx, row)
	})
	if err != nil {
		return "", 0, err
	}
	err = dohost.AwaitDurable(ctx)
	if errors.Is(err, dohost.ErrMisuse) {
		_, gone := c.deleteFiber(ctx, row.ID)
		err = errors.Join(err, gone)
	}
	return row.ID, row.Run, err
}

// checkNotCancelled returns an error if a fiber was cancelled before it began.
func (c *core) checkNotCancelled(ctx context.Context, id string) error {
	_, ok, err := fiberRows.Get(ctx, c.store(), id)
	if err == nil && !ok {
		err = context.Canceled
	}
	return err
}

// endRun deletes the row, in the batch of the fiber's last step. After the end of the incarnation it cannot,
// and the row stays.
func (c *core) endRun(ctx context.Context, id string, failed error) error {
	if err := c.endFiber(ctx, id); err != nil {
		return err
	}
	status := FiberCompleted
	if failed != nil {
		status = FiberFailed
	}
	c.runEnded(ctx, id, status)
	return nil
}

// abandonRun lets a task delete the row of a fiber whose function has panicked or called Goexit. If a caller of RunFiber
// recovers, no other code deletes it. If the incarnation ends, so does the task, and the fiber is interrupted: even if a
// deferred function of the caller has committed the batch.
func (c *core) abandonRun(ctx context.Context, id string) {
	_ = c.obj.Go(ctx, "end of a fiber", func(ctx context.Context) error { // the panic continues
		err := c.endFiber(ctx, id)
		if err == nil {
			c.runEnded(ctx, id, FiberFailed)
		}
		return err
	})
}

// runEnded reports the end of a fiber whose row was deleted.
func (c *core) runEnded(ctx context.Context, id string, status FiberStatus) {
	c.wakeWaiters(id)
	c.obj.Report(ctx, "fiber:ended", slog.String("fiber", id), slog.String("status", string(status)))
}
