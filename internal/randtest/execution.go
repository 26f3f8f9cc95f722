package randtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/dohost/dohost"
)

// ErrFail is the error of a program that fails.
var ErrFail = errors.New("the program fails")

var errRollback = errors.New("rolled back")

// Do executes instructions until an error. Each has the name of the list and its place.
func Do[I any](list []I, name string, step func(in I, name string) error) error {
	for i, in := range list {
		if err := step(in, fmt.Sprintf("%s/%d", name, i)); err != nil {
			return err
		}
	}
	return nil
}

// Fail fails an instruction the first times, by a panic or with ErrFail.
func (r *StoredReport) Fail(name string, times int, panics bool) error {
	switch {
	case r.Try(name) > times:
		return nil
	case panics:
		panic("as the program says")
	}
	return ErrFail
}

// Transaction calls body in a Transaction, which is rolled back afterwards if undo is set.
func Transaction(ctx context.Context, undo bool, body func(context.Context) error) error {
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		if err := body(ctx); err != nil {
			return err
		}
		if undo {
			return errRollback
		}
		return nil
	})
	if errors.Is(err, errRollback) {
		return nil
	}
	return err
}

// Ended reports whether an error is due to the end of the incarnation or of its task, or is one of a program.
func Ended(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, dohost.ErrFenced) || errors.Is(err, dohost.ErrClosed) || errors.Is(err, ErrFail))
}

// Unexpected reports an error of an instruction that is not due to an end, and returns the error.
func (r *Report) Unexpected(ctx context.Context, name string, in any, err error) error {
	if err != nil && !Ended(ctx, err) {
		r.Faultf("%s: %s: %v", name, Literal(in), err)
	}
	return err
}

// At returns element k of a list, counted around.
func At[T any](list []T, k int) (t T, ok bool) {
	if len(list) == 0 {
		return t, false
	}
	return list[k%len(list)], true
}
