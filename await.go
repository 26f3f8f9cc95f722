package dohost

import (
	"context"
	"time"

	"github.com/dohost/dohost/runtime"
)

// Await gives up the object's turn while fn runs. What the object wrote so far
// becomes history, and fn starts once all of it is durable; fn's context has no
// turn. Await returns with the turn held again, or with an error for which
// errors.Is(err, ErrFenced) holds; what the object looks like may have changed.
// With a context that never had a turn, fn just runs.
//
// Errors: fn's, [ErrFenced], [ErrNoTurn], [ErrTurnBusy], [ErrInTransaction].
func Await[T any](ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	var v, none T
	err := runtime.Await(ctx, func(ctx context.Context) (err error) {
		v, err = fn(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return v, nil
}

// Enter takes the turn for one segment from inside an Await's fn, and returns when
// what it wrote is durable.
//
// Errors: fn's, [ErrFenced], [ErrNoTurn].
func Enter(ctx context.Context, fn func(context.Context) error) error { return runtime.Enter(ctx, fn) }

// Recv receives from a channel with the turn given up, without waiting for the
// disk. ok is false when the channel is closed.
//
// Errors: the ctx's cause, and those of [Await].
func Recv[T any](ctx context.Context, ch <-chan T) (v T, ok bool, err error) {
	err = runtime.Wait(ctx, func(ctx context.Context) error {
		select {
		case v, ok = <-ch:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return v, ok, err
}

// Sleep waits at least d with the turn given up.
//
// Errors: the ctx's cause, and those of [Await].
func Sleep(ctx context.Context, d time.Duration) error { return runtime.Sleep(ctx, d) }

// Exclusive keeps every other event out while fn runs, inside fn's Awaits too; only
// an [Enter] of this event gets in. Durable Objects call it blockConcurrencyWhile;
// unlike there, an error of fn is only returned. After 30 s the incarnation is fenced.
//
// A call from the section that leads back into it gets [ErrDeadlock]. One deadlock is not
// detected: two objects, each in a section or a constructor that another caller has begun,
// call each other. Both wait until the 30 s of the first section are over.
//
// Errors: fn's, [ErrFenced], [ErrNoTurn], [ErrTurnBusy], [ErrInTransaction].
func Exclusive(ctx context.Context, fn func(context.Context) error) error {
	return runtime.Exclusive(ctx, fn)
}

// Transaction runs fn, and takes back all it did if it returns an error or panics:
// writes, the alarm, and effects. It nests. Nothing in it may give up the turn.
//
// Errors: fn's, [ErrFenced], [ErrNoTurn], [ErrTurnBusy].
func Transaction(ctx context.Context, fn func(context.Context) error) error {
	return runtime.Transaction(ctx, fn)
}
