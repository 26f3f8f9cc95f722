package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// TestOperationThatIsInterruptedIsReported ends the incarnation in the first call, and repeats the Do.
func TestOperationThatIsInterruptedIsReported(t *testing.T) {
	for p, want := range map[ledger.Policy]string{
		ledger.PolicyAtMostOnce: "[ledger:interrupted ledger:unknown]",
		ledger.PolicyIdempotent: "[ledger:interrupted]",
		ledger.PolicyReconcile:  "[ledger:interrupted]",
	} {
		t.Run(p.String(), func(t *testing.T) {
			s := newShop(p)
			calls := 0
			s.after = func(context.Context, ledger.ID) error {
				if calls++; calls == 1 {
					panic("the call ends its incarnation")
				}
				return nil
			}
			var reported []string
			s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
				if attrs[0].String() != "kind=charge" || !strings.HasPrefix(attrs[1].String(), "operation=op_") {
					t.Errorf("%s %v", event, attrs)
				}
				reported = append(reported, event)
			}
			s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
				for range 3 {
					_, _ = pay(t.Context(), o) // with AtMostOnce it is unknown
					h.EvictAll()
				}
				if got := fmt.Sprint(reported); got != want {
					t.Errorf("the reports are %s, want %s", got, want)
				}
			})
		})
	}
}

// TestPanicOfUnknown makes an operation unknown whose text panics.
func TestPanicOfUnknown(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.kind.Unknown = func(ledger.ID, charge) string { panic("no text") }
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		var epochs []dohost.Epoch
		for range 2 {
			_, err := pay(t.Context(), o)
			unknownID(t, err)
			if !strings.Contains(err.Error(), `Kind.Unknown of kind "charge" panicked: no text`) {
				t.Errorf("the error is %v", err)
			}
			if public, ok := errors.AsType[*dohost.PublicError](err); !ok || public.Message != "the outcome is unknown" || public.Status != 409 {
				t.Errorf("callers outside of the process get %+v", public)
			}
			err = o.Do(t.Context(), func(_ context.Context, o *order) error {
				epochs = append(epochs, o.st.Epoch())
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if epochs[0] != epochs[1] {
			t.Error("the panic has ended the incarnation")
		}
	})
}

// TestOperationThatIsResolvedIsReported resolves two unknown operations, one after the other.
func TestOperationThatIsResolvedIsReported(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	var reported []string
	s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		if event == "ledger:resolved" {
			reported = append(reported, attrs[len(attrs)-1].String())
		}
	}
	s.after = failures(2, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for _, done := range []bool{false, true} {
			_, err := pay(t.Context(), o)
			unknown, ok := errors.AsType[*ledger.UnknownError](err)
			if !ok {
				t.Fatal(err)
			}
			err = o.Do(t.Context(), func(ctx context.Context, o *order) error {
				if done {
					return ledger.ResolveDone(ctx, o.st, &s.kind, unknown.ID, "r_1")
				}
				return ledger.ResolveNotDone(ctx, o.st, &s.kind, unknown.ID)
			})
			if err != nil {
				t.Fatal(err)
			}
			err = o.Do(t.Context(), func(ctx context.Context, o *order) error {
				return ledger.ResolveNotDone(ctx, o.st, &s.kind, unknown.ID)
			})
			if !errors.Is(err, ledger.ErrEnded) {
				t.Errorf("a second decision: %v", err)
			}
		}
		if got := fmt.Sprint(reported); got != "[outcome=not-done outcome=done]" {
			t.Errorf("the reports are %s", got)
		}
	})
}
