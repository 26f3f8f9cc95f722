package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// TestWaitElsewhereOutsideOfMethod calls WaitElsewhere in a method of the object that is no method of OnRows, with the turn and without it: it
// only calls the function, once, and returns its error.
func TestWaitElsewhereOutsideOfMethod(t *testing.T) {
	runPost(t, &postOffice{}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inPost(t, ctx, h, func(ctx context.Context, p *postman) error {
			for _, want := range []error{nil, errors.New("no answer")} {
				calls := 0
				waits := func(ctx context.Context) error {
					return p.Rows().WaitElsewhere(ctx, func(context.Context) error {
						calls++
						return want
					})
				}
				if err := waits(ctx); !errors.Is(err, want) || calls != 1 {
					t.Errorf("with the turn: %v after %d calls, want %v", err, calls, want)
				}
				if err := dohost.Await(ctx, waits); !errors.Is(err, want) || calls != 2 {
					t.Errorf("without the turn: %v after %d calls, want %v", err, calls-1, want)
				}
			}
			return nil
		})
	})
}

// TestWaitElsewhereNeedsTheTurn calls WaitElsewhere in a method of OnRows without the turn, which protects the count of the waits: it is refused,
// and the function is not called.
func TestWaitElsewhereNeedsTheTurn(t *testing.T) {
	o, calls := &postOffice{}, 0
	var refused error
	o.deliver = func(p *postman, ctx context.Context, l letter) error {
		refused = dohost.Await(ctx, func(ctx context.Context) error {
			return p.Rows().WaitElsewhere(ctx, func(context.Context) error {
				calls++
				return nil
			})
		})
		return p.done(ctx, l.ID)
	}
	runPost(t, o, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		if err := post(ctx, h, "1"); err != nil {
			t.Fatal(err)
		}
		h.Advance(time.Second)
		if !errors.Is(refused, dohost.ErrMisuse) || calls > 0 {
			t.Errorf("%v after %d calls, want %v", refused, calls, dohost.ErrMisuse)
		}
		wantNothingLeft(t, ctx, h)
	})
}
