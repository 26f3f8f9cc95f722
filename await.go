package dohost

import (
	"context"
	"time"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/runtime"
)

// Await commits the writes of the event so far, gives up the object's turn, and runs fn once everything that the object
// has committed is durable, except writes of [PutNoWait]. The context of fn has no turn. Await returns with the turn
// held again, or with an error that is [ErrFenced] by errors.Is. Other events may have changed the object by then. With
// a context that never had a turn, Await only calls fn.
//
// Errors: fn's, [ErrFenced], [ErrMisuse].
func Await(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("Await", errNilFunc)
	}
	return runtime.Await(ctx, fn)
}

// AwaitValue is [Await] of an fn that returns a value. With an error it returns the zero value.
//
// Errors: the errors of [Await].
func AwaitValue[R any](ctx context.Context, fn func(context.Context) (R, error)) (R, error) {
	var v, none R
	if fn == nil {
		return none, errkind.About("AwaitValue", errNilFunc)
	}
	err := runtime.Await(ctx, func(ctx context.Context) (err error) {
		v, err = fn(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return v, nil
}

// AwaitDurable is [Await] without an fn: it commits the writes of the event so far, gives up the turn until everything
// that the object has committed is durable, except writes of [PutNoWait], and returns with the turn held again.
// [Storage.Sync] holds the turn, and waits for those writes too. In the fn of an Await, and with a context that never
// had a turn, AwaitDurable waits for nothing.
//
// Errors: [ErrFenced], [ErrMisuse].
func AwaitDurable(ctx context.Context) error {
	return runtime.Await(ctx, func(context.Context) error { return nil })
}

// HoldTurn takes the turn for one batch inside the fn of an Await. It returns when the writes of that batch are
// durable.
//
// Errors: fn's, [ErrFenced], [ErrMisuse].
func HoldTurn(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("HoldTurn", errNilFunc)
	}
	return runtime.HoldTurn(ctx, fn)
}

// Recv receives from a channel with the turn given up, without waiting for the
// disk. ok is false when the channel is closed.
//
// Errors: the ctx's cause, and the errors of [Await].
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
// Errors: the ctx's cause, and the errors of [Await].
func Sleep(ctx context.Context, d time.Duration) error { return runtime.Sleep(ctx, d) }

// Exclusive keeps every other event out of the object while fn runs, and during the Awaits inside fn. Only a [HoldTurn]
// of this event gets in. Durable Objects call it blockConcurrencyWhile; unlike there, an error of fn does not end the
// incarnation. After 30 s the host fences the incarnation.
//
// A call from the section that leads back into it gets [ErrMisuse]. One deadlock is not
// detected: two objects, each in a section or a constructor that another caller has begun,
// call each other. Both wait until the 30 s of the first section are over.
//
// Errors: fn's, [ErrFenced], [ErrMisuse].
func Exclusive(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("Exclusive", errNilFunc)
	}
	return runtime.Exclusive(ctx, fn)
}

// Transaction runs fn. If fn returns an error or panics, Transaction rolls back its writes, its changes of the alarm,
// and its outputs. Transactions nest. fn must not give up the turn.
//
// Errors: fn's, [ErrFenced], [ErrMisuse].
func Transaction(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("Transaction", errNilFunc)
	}
	return runtime.Transaction(ctx, fn)
}
