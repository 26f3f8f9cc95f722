package dohost_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// nilObject is an object whose code passes nil functions to the host.
type nilObject struct{ st *dohost.State }

const nilObjects dohost.Namespace[nilObject] = "nil"

// The function that gets a nil argument refuses it, and no incarnation ends.
func TestArgumentsThatAreNilAreMisuses(t *testing.T) {
	type inside = func(ctx context.Context, o *nilObject) error
	for want, give := range map[string]any{
		"dohost: Call nil/a: the method is nil": func(ctx context.Context, s dohost.Stub[nilObject]) error {
			return errors.Join(
				second(dohost.Call(ctx, s, (func(*nilObject, context.Context, int) (int, error))(nil), 1)),
				second(dohost.CallNoArg(ctx, s, (func(*nilObject, context.Context) (int, error))(nil))),
				dohost.CallNoResult(ctx, s, (func(*nilObject, context.Context, int) error)(nil), 1),
				dohost.CallBare(ctx, s, nil))
		},
		"dohost: Do nil/a: the function is nil": func(ctx context.Context, s dohost.Stub[nilObject]) error { return s.Do(ctx, nil) },
		"dohost: Do nil/b: the function is nil": inside(func(ctx context.Context, o *nilObject) error {
			return dohost.Do(ctx, o.st, dohost.ID{Class: "nil", Name: "b"}, nil)
		}),
		"dohost: Retry: the function is nil": inside(func(ctx context.Context, _ *nilObject) error { return dohost.Retry(ctx, nil, nil) }),
		"dohost: Go: the function is nil":    inside(func(ctx context.Context, o *nilObject) error { return o.st.Go(ctx, "task", nil) }),
		"dohost: GoImmediately: the function is nil": inside(func(ctx context.Context, o *nilObject) error {
			return o.st.GoImmediately(ctx, "task", nil)
		}),
		"dohost: Emit: the function is nil":  inside(func(ctx context.Context, o *nilObject) error { return o.st.Emit(ctx, nil) }),
		"dohost: Await: the function is nil": inside(func(ctx context.Context, _ *nilObject) error { return dohost.Await(ctx, nil) }),
		"dohost: AwaitValue: the function is nil": inside(func(ctx context.Context, _ *nilObject) error {
			return second(dohost.AwaitValue[int](ctx, nil))
		}),
		"dohost: HoldTurn: the function is nil": inside(func(ctx context.Context, _ *nilObject) error {
			return dohost.Await(ctx, func(ctx context.Context) error { return dohost.HoldTurn(ctx, nil) })
		}),
		"dohost: Exclusive: the function is nil":   inside(func(ctx context.Context, _ *nilObject) error { return dohost.Exclusive(ctx, nil) }),
		"dohost: Transaction: the function is nil": inside(func(ctx context.Context, _ *nilObject) error { return dohost.Transaction(ctx, nil) }),
		"dohost: Broadcast: socket 0 is nil": inside(func(ctx context.Context, o *nilObject) error {
			return errors.Join(
				o.st.Broadcast(ctx, dohost.Frame{}, []*dohost.Socket{nil}),
				o.st.Broadcast(ctx, dohost.Frame{}, []*dohost.Socket{{}}))
		}),
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended []error
				h := open(t, &dohost.Options{Listener: dohost.Listener{Fenced: func(e dohost.Ended) { ended = append(ended, e.Cause) }}},
					dohost.Bind(nilObjects, func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil }, nil))
				a := nilObjects.Get(h, "a")
				var err error
				switch give := give.(type) {
				case inside:
					if err := a.Do(t.Context(), func(ctx context.Context, o *nilObject) error { err = give(ctx, o); return nil }); err != nil {
						t.Error(err)
					}
				case func(context.Context, dohost.Stub[nilObject]) error:
					err = give(t.Context(), a)
				}
				synctest.Wait()
				if !errors.Is(err, dohost.ErrMisuse) || strings.Trim(strings.ReplaceAll(err.Error(), want, ""), "\n") != "" || len(ended) > 0 {
					t.Errorf("error %q; incarnations ended: %q", err, ended)
				}
				if e, ok := errors.AsType[*dohost.Error](err); ok && (e.Outcome != dohost.OutcomeNotRun || e.Retryable) {
					t.Errorf("outcome %v, retryable %v", e.Outcome, e.Retryable)
				}
			})
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestConstructorThatReturnsNilFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, nil, dohost.Bind(nilObjects, func(context.Context, *dohost.State) (*nilObject, error) { return nil, nil }, nil))
		err := nilObjects.Get(h, "a").Do(t.Context(), func(_ context.Context, o *nilObject) error { o.st.ID(); return nil })
		e, ok := errors.AsType[*dohost.Error](err)
		if !ok || e.Outcome != dohost.OutcomeNotRun || !strings.HasSuffix(err.Error(), "the constructor returned neither an object nor an error") {
			t.Errorf("%v", err)
		}
	})
}
