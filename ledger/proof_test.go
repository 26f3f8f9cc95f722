package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestMarkOfAnotherErrorIsNoProof returns errors with a mark that is not about the call.
func TestMarkOfAnotherErrorIsNoProof(t *testing.T) {
	declined := ledger.NoEffect(errors.New("declined"))
	for name, test := range map[string]struct {
		err   error
		proof bool
	}{
		"the mark":            {declined, true},
		"a wrapped mark":      {fmt.Errorf("pay: %w", declined), true},
		"among other errors":  {errors.Join(declined, errTimeout), false},
		"of another call":     {&dohost.Error{Op: "pay", Err: declined, Outcome: dohost.OutcomeRan}, false},
		"in an unknown error": {fmt.Errorf("%w", &ledger.UnknownError{Err: declined}), false},
		"of an unknown error": {ledger.NoEffect(&ledger.UnknownError{Err: errTimeout}), false},
	} {
		s := newShop(ledger.PolicyAtMostOnce)
		s.after = failures(1, test.err)
		s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
			_, err := pay(t.Context(), o)
			if r := onlyOperation(t, o); (r.Status == ledger.StatusFailed) != test.proof || errors.Is(err, ledger.ErrUnknown) == test.proof {
				t.Errorf("%s: %v, and the operation is %+v", name, err, r)
			}
		})
	}
}

// TestDoInsideOfAnotherGivesNoProof makes the call of an operation fail with the error of another object's operation.
func TestDoInsideOfAnotherGivesNoProof(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	declines := true
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		inner := orders.Get(h, "inner")
		s.before = func(context.Context, ledger.ID) error {
			if declines {
				declines = false
				return ledger.NoEffect(errors.New("declined"))
			}
			return nil
		}
		_, err := pay(t.Context(), inner)
		if err == nil {
			t.Fatal("the inner operation succeeded")
		}
		s.after = failures(1, fmt.Errorf("the inner operation: %w", err))
		_, err = pay(t.Context(), o)
		unknownID(t, err)
	})
}

// pastDeadline pays with a context that has ended.
func (o *order) pastDeadline(ctx context.Context) (string, error) {
	return o.payWithin(ctx, -time.Second)
}

func TestDoWithEndedContextMakesNoCall(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		if _, err := dohost.CallNoArg(t.Context(), o, (*order).pastDeadline); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ledger.ErrUnknown) {
			t.Errorf("the error is %v", err)
		}
		if all := operationsOf(t, o); len(all) != 0 || len(s.calls()) != 0 {
			t.Errorf("%d calls, and the operations are %+v", len(s.calls()), all)
		}
	})
}

// TestDoWithEndedContextKeepsTheRow has a row of an earlier call.
func TestDoWithEndedContextKeepsTheRow(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.before = failures(1, ledger.NoEffect(errors.New("declined")))
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		if _, err := pay(t.Context(), o); err == nil {
			t.Fatal("the first call succeeded")
		}
		if _, err := dohost.CallNoArg(t.Context(), o, (*order).pastDeadline); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusFailed || r.Error != "declined" {
			t.Errorf("the operation is %+v", r)
		}
	})
}

// wipe deletes the storage of an order.
func (o *order) wipe(ctx context.Context) error { return o.st.Storage().DeleteAll(ctx) }

// TestDeleteAllDuringCall deletes the row of an operation: its result must not come back.
func TestDeleteAllDuringCall(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.bank.Latency = time.Minute
	s.more = strings.Repeat("x", mebibyte)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		c := h.Client(func(ctx context.Context) error {
			if _, err := pay(ctx, o); !errors.Is(err, ledger.ErrUnknown) || !strings.Contains(err.Error(), "the row was deleted during the call") {
				t.Errorf("pay: %v", err)
			}
			return nil
		})
		h.Advance(time.Second)
		if err := dohost.CallBare(t.Context(), o, (*order).wipe); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
		if all := operationsOf(t, o); len(all) != 0 {
			t.Errorf("the operations are %+v", all)
		}
		if n, err := dohost.CallNoArg(t.Context(), o, (*order).parts); err != nil || n != 0 {
			t.Errorf("%d parts of the result are left, %v", n, err)
		}
	})
}

// TestDeleteAllDuringFind deletes the row while the other side is asked.
func TestDeleteAllDuringFind(t *testing.T) {
	for answer, name := range map[ledger.Answer]string{ledger.AnswerUnknown: "unknown", ledger.AnswerDone: "done", ledger.AnswerNotDone: "not done"} {
		s := newShop(ledger.PolicyReconcile)
		s.after = failures(1, errTimeout)
		s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
			s.kind.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
				return receipt(id), answer, dohost.CallBare(context.Background(), o, (*order).wipe)
			}
			if _, err := pay(t.Context(), o); !errors.Is(err, ledger.ErrUnknown) || !strings.Contains(err.Error(), "the row was deleted") {
				t.Errorf("%s: pay: %v", name, err)
			}
			wantOutcomes(t, h, o, "")
			if all := operationsOf(t, o); len(all) != 0 || len(s.calls()) != 1 {
				t.Errorf("%s: %d calls, and the operations are %+v", name, len(s.calls()), all)
			}
		})
	}
}

// TestErrorBelongsToTheLastCall interrupts a call after one that was declined: an operator must not see the first error.
func TestErrorBelongsToTheLastCall(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.before = failures(1, ledger.NoEffect(errors.New("declined")))
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		if _, err := pay(t.Context(), o); err == nil || onlyOperation(t, o).Error != "declined" {
			t.Fatalf("the first call: %v, %+v", err, onlyOperation(t, o))
		}
		s.after = func(context.Context, ledger.ID) error { panic("the call ends its incarnation") }
		if _, err := pay(t.Context(), o); err == nil {
			t.Fatal("the second call did not end its incarnation")
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusUnknown || r.Error != "" {
			t.Errorf("the operation is %+v", r)
		}
	})
}

// TestErrorOfUnknownOutcomeHasTheErrorOfTheLastCall reads it from the row, and cuts a long one.
func TestErrorOfUnknownOutcomeHasTheErrorOfTheLastCall(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errors.New("timeout "+strings.Repeat("x", 1<<20)))
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for range 2 {
			_, err := pay(t.Context(), o)
			unknownID(t, err)
			if text := err.Error(); !strings.Contains(text, ": timeout xxx") || len(text) > 5000 {
				t.Errorf("the error has %d bytes: %.200s", len(text), text)
			}
			h.EvictAll()
		}
		if n := len(onlyOperation(t, o).Error); n != 4096 {
			t.Errorf("the stored error has %d bytes", n)
		}
	})
}

// replaceSecret replaces the secret of the object by a value of another type, and then pays.
func (o *order) replaceSecret(ctx context.Context) (string, error) {
	rows := dohost.Collection[int]{Name: "dohost.ledger", Key: func(int) string { return "secret" }}
	if err := rows.Put(ctx, o.st.Storage(), 1); err != nil {
		return "", err
	}
	return o.pay(ctx, charge{"7", 4200})
}

// TestDoWithoutItsSecretMakesNoCall has a secret that cannot be read.
func TestDoWithoutItsSecretMakesNoCall(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		if r, err := dohost.CallNoArg(t.Context(), o, (*order).replaceSecret); err == nil || len(s.calls()) != 0 {
			t.Errorf("%d calls, %q, %v", len(s.calls()), r, err)
		}
	})
}
