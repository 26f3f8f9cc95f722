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

// Control is the kind of an instruction that ends a program, or has other instructions in a transaction.
type Control string

// The kinds of such instructions: the values of an instruction's kind.
const (
	Fail        Control = "Fail"        // with ErrFail, the first times
	Panic       Control = "Panic"       // the first times
	Transaction Control = "Transaction" // of the body, which is rolled back if the number is odd
)

// Execute executes instructions until an error. Each has the name of the list and its place: see [ExecuteOne].
func Execute[I any](ctx context.Context, r *StoredReport, name string, list []I, control ControlOf[I], step Step[I]) error {
	for i, in := range list {
		if err := ExecuteOne(ctx, r, fmt.Sprintf("%s/%d", name, i), in, control, step); err != nil {
			return err
		}
	}
	return nil
}

// ControlOf returns the kind of an instruction, its number and its body.
type ControlOf[I any] func(I) (kind Control, n int, body []I)

// Step executes an instruction that has no Control.
type Step[I any] func(ctx context.Context, name string, in I) error

// ExecuteOne executes an instruction with a name. It reports an error that is due to neither an end nor a program.
func ExecuteOne[I any](ctx context.Context, r *StoredReport, name string, in I, control ControlOf[I], step Step[I]) error {
	var err error
	switch kind, n, body := control(in); kind {
	case Fail, Panic:
		err = r.fail(name, n, kind == Panic)
	case Transaction:
		err = InTransaction(ctx, n%2 == 1, func(ctx context.Context) error { return Execute(ctx, r, name, body, control, step) })
	default:
		err = step(ctx, name, in)
	}
	return r.Unexpected(ctx, name, in, err)
}

// Run executes a program with do as one event, and returns the version of the model afterwards, which serial reads.
func (p Program[I]) Run(do func(name string, list []I) error, serial func() (int, error)) (int, error) {
	if err := do(fmt.Sprint("program ", p.ID), p.Code); err != nil && !errors.Is(err, ErrFail) {
		return 0, err
	}
	return serial()
}

// Send sends a program with call, which returns the version of the model after it. Send returns the faults of the run, and no errors of
// the call.
func (r *StoredReport) Send(program string, call func() (serial int, err error)) error {
	r.Sent(program)
	if serial, err := call(); err == nil {
		r.Acknowledge(serial)
	}
	return r.Err()
}

// fail fails an instruction the first times, by a panic or with ErrFail.
func (r *StoredReport) fail(name string, times int, panics bool) error {
	switch {
	case r.Try(name) > times:
		return nil
	case panics:
		panic("as the program says")
	}
	return ErrFail
}

// InTransaction calls body in a Transaction, which is rolled back afterwards if undo is set.
func InTransaction(ctx context.Context, undo bool, body func(context.Context) error) error {
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
