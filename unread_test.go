package dohost_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/dohost/dohost"
)

// unreadable is an argument that can be encoded and not decoded.
type unreadable struct{ _ *int }

func (*unreadable) MarshalText() ([]byte, error) { return []byte("x"), nil }
func (*unreadable) UnmarshalText([]byte) error   { return errUnreadable }

var errUnreadable = errors.New("it cannot be read")

// A method that could not get its argument, or its object, did not run.
func TestCallThatCannotReachItsMethodDidNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type stranger struct{}
		const strangers dohost.Namespace[stranger] = "nil" // as nilObjects
		var events []error
		h := open(t, &dohost.Options{Listener: dohost.Listener{EventEnded: func(e dohost.EndedEvent) { events = append(events, e.Err) }}},
			dohost.Bind(nilObjects, func(_ context.Context, st *dohost.State) (*nilObject, error) { return &nilObject{st}, nil }, nil,
				dohost.Expose("number", func(*nilObject, context.Context, int) (int, error) { return 0, nil })))
		read := func(*nilObject, context.Context, *unreadable) (int, error) { return 0, nil }
		for what, err := range map[string]error{
			"an argument of Call":   second(dohost.Call(t.Context(), nilObjects.Get(h, "a"), read, &unreadable{})),
			"an argument of Invoke": second(h.Invoke(t.Context(), nilObjects.Get(h, "a").ID(), "number", []byte("{"))),
			"another type in Do":    strangers.Get(h, "a").Do(t.Context(), func(context.Context, *stranger) error { return nil }),
			"another type in Call": dohost.CallBare(t.Context(), strangers.Get(h, "a"),
				func(*stranger, context.Context) error { return nil }),
		} {
			e, ok := err.(*dohost.Error)
			if !ok || e.Outcome != dohost.OutcomeNotRun || e.Remote() || e.Retryable {
				t.Errorf("%s: %v (%+v)", what, err, e)
			}
		}
		synctest.Wait()
		unread := 0
		for _, err := range events {
			if errors.Is(err, errUnreadable) {
				unread++
			}
		}
		if unread != 1 || len(events) != 4 {
			t.Errorf("the Listener got %q", events)
		}
	})
}
