package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

var errTimeout = errors.New("timeout")

// failures returns a hook for shop.before or shop.after that fails the first n times.
func failures(n int, err error) func(context.Context, ledger.ID) error {
	return func(context.Context, ledger.ID) error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

func TestDoReturnsTheStoredResult(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for range 3 {
			got, err := pay(t.Context(), o)
			if err != nil || got != receipt(s.calls()[0]) {
				t.Errorf("pay: %q, %v", got, err)
			}
			h.EvictAll()
		}
		if n := len(s.calls()); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusCompleted || r.Calls != 1 || r.Kind != "charge" ||
			r.Args != `{"Order":"7","Cents":4200}` || string(r.Result) != `"`+receipt(r.ID)+`"` || r.Error != "" || r.Scope != "" {
			t.Errorf("the operation is %+v", r)
		}
	})
}

func TestErrorOfCallIsNoProof(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(1, errTimeout)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		id := unknownID(t, err)
		if !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "order 7 may have been charged: timeout") {
			t.Errorf("the error is %v", err)
		}
		body, status := dohost.DescribeError(err)
		public, ok := errors.AsType[*dohost.PublicError](err)
		if status != 409 || body.Code != "unknown_outcome" || !ok || public.Message != "order 7 may have been charged" {
			t.Errorf("callers outside of the process get %+v, %d, %v", body, status, public)
		}
		for range 2 {
			if _, err := pay(t.Context(), o); unknownID(t, err) != id {
				t.Errorf("the second error is %v", err)
			}
			if r := onlyOperation(t, o); r.Status != ledger.StatusUnknown || r.Error != "timeout" || r.Calls != 1 {
				t.Errorf("the operation is %+v", r)
			}
			h.EvictAll()
			h.Advance(24 * time.Hour)
		}
		if n := s.bank.Total(); n != 1 || len(s.calls()) != 1 {
			t.Errorf("%d charges in %d calls", n, len(s.calls()))
		}
	})
}

func TestErrorWithNoEffectIsProof(t *testing.T) {
	declined := errors.New("declined")
	for name, mark := range map[string]func(*shop){
		"function": func(s *shop) { s.before = failures(1, ledger.NoEffect(declined)) },
		"kind": func(s *shop) {
			s.before = failures(1, declined)
			s.kind.NoEffect = func(err error) bool { return errors.Is(err, declined) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(ledger.PolicyAtMostOnce)
			mark(s)
			s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
				if _, err := pay(t.Context(), o); !errors.Is(err, declined) || errors.Is(err, ledger.ErrUnknown) {
					t.Errorf("the error is %v", err)
				}
				if r := onlyOperation(t, o); r.Status != ledger.StatusFailed || r.Error != "declined" {
					t.Errorf("the operation is %+v", r)
				}
				if got, err := pay(t.Context(), o); err != nil || got != receipt(s.calls()[0]) {
					t.Errorf("the second Do: %q, %v", got, err)
				}
				if ids := s.calls(); len(ids) != 2 || ids[0] != ids[1] {
					t.Errorf("calls with the IDs %v, want one ID twice", ids)
				}
				if r := onlyOperation(t, o); r.Status != ledger.StatusCompleted || r.Calls != 1 {
					t.Errorf("the operation is %+v", r)
				}
			})
		})
	}
	if ledger.NoEffect(nil) != nil {
		t.Error("NoEffect(nil) is not nil")
	}
}

func TestPolicyIdempotentCallsAgain(t *testing.T) {
	s := newShop(ledger.PolicyIdempotent)
	s.after = failures(4, errTimeout)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		begun := time.Now()
		if got, err := pay(t.Context(), o); err != nil || got != receipt(s.calls()[0]) {
			t.Errorf("pay: %q, %v", got, err)
		}
		if n := s.bank.Total(); n != 1 || len(s.calls()) != 5 {
			t.Errorf("%d charges in %d calls", n, len(s.calls()))
		}
		if waited := time.Since(begun); waited < 1500*time.Millisecond || waited > 1875*time.Millisecond {
			t.Errorf("the delays between the calls are %v in total", waited)
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusCompleted || r.Calls != 5 {
			t.Errorf("the operation is %+v", r)
		}
	})
}

func TestPolicyIdempotentIsUnknownAfterMaxAttempts(t *testing.T) {
	s := newShop(ledger.PolicyIdempotent)
	s.kind.MaxAttempts = 3
	s.after = failures(3, errTimeout)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		for range 2 {
			_, err := pay(t.Context(), o)
			unknownID(t, err)
			if len(s.calls()) != 3 {
				t.Errorf("%d calls, want 3", len(s.calls()))
			}
		}
	})
}

// TestErrorWithNoEffectAfterUnknownCallIsNoProof gets a proof for the second of two calls.
func TestErrorWithNoEffectAfterUnknownCallIsNoProof(t *testing.T) {
	s := newShop(ledger.PolicyIdempotent)
	s.kind.MaxAttempts = 3
	s.after = failures(1, errTimeout)
	n := 0
	s.before = func(context.Context, ledger.ID) error {
		if n++; n > 1 {
			return ledger.NoEffect(errors.New("duplicate key"))
		}
		return nil
	}
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		unknownID(t, err)
		if r := onlyOperation(t, o); r.Status != ledger.StatusUnknown || len(s.calls()) != 3 || s.bank.Total() != 1 {
			t.Errorf("after %d calls and %d charges the operation is %+v", len(s.calls()), s.bank.Total(), r)
		}
		if err := dohost.CallNoResult(t.Context(), o, (*order).notDone, s.calls()[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := pay(t.Context(), o); err == nil || errors.Is(err, ledger.ErrUnknown) {
			t.Errorf("after ResolveNotDone: %v", err)
		}
	})
}

// TestPolicyIdempotentCountsInterruptions ends the incarnation in each call.
func TestPolicyIdempotentCountsInterruptions(t *testing.T) {
	s := newShop(ledger.PolicyIdempotent)
	s.before = func(context.Context, ledger.ID) error { panic("the call ends its incarnation") }
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		for range 5 {
			if _, err := pay(t.Context(), o); err == nil || errors.Is(err, ledger.ErrUnknown) {
				t.Errorf("the error is %v", err)
			}
		}
		_, err := pay(t.Context(), o)
		unknownID(t, err)
		if len(s.calls()) != 5 {
			t.Errorf("%d calls, want 5", len(s.calls()))
		}
	})
}

// payWithin pays with a time limit.
func (o *order) payWithin(ctx context.Context, d time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return o.pay(ctx, charge{"7", 4200})
}

// TestTimeoutLeavesTheOutcomeUnknown ends the context of a Do during its call.
func TestTimeoutLeavesTheOutcomeUnknown(t *testing.T) {
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			s := newShop(p)
			s.after = func(ctx context.Context, _ ledger.ID) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
				_, err := dohost.Call(t.Context(), o, (*order).payWithin, time.Minute)
				if unknownID(t, err); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error is %v", err)
				}
				s.after = nil
				got, err := pay(t.Context(), o)
				if p == ledger.PolicyAtMostOnce {
					unknownID(t, err)
				} else if err != nil || got != receipt(s.calls()[0]) {
					t.Errorf("the next Do: %q, %v", got, err)
				}
				if n := s.bank.Total(); n != 1 {
					t.Errorf("%d charges", n)
				}
			})
		})
	}
}

func TestPolicyReconcileUsesTheAnswer(t *testing.T) {
	for _, test := range []struct {
		name    string
		answer  ledger.Answer
		err     error
		calls   int
		status  ledger.Status
		unknown bool
	}{
		{"done", ledger.AnswerDone, nil, 1, ledger.StatusCompleted, false},
		{"not done", ledger.AnswerNotDone, nil, 2, ledger.StatusCompleted, false},
		{"unknown", ledger.AnswerUnknown, nil, 1, ledger.StatusUnknown, true},
		{"error", ledger.AnswerDone, errTimeout, 1, ledger.StatusUnknown, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newShop(ledger.PolicyReconcile)
			s.after = failures(1, errTimeout)
			asked := 0
			s.kind.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
				asked++
				return receipt(id), test.answer, test.err
			}
			s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
				got, err := pay(t.Context(), o)
				if test.unknown {
					unknownID(t, err)
					if !errors.Is(err, errTimeout) {
						t.Errorf("the error is %v", err)
					}
				} else if err != nil || got != receipt(s.calls()[0]) {
					t.Errorf("pay: %q, %v", got, err)
				}
				if len(s.calls()) != test.calls || asked != 1 {
					t.Errorf("%d calls and %d questions", len(s.calls()), asked)
				}
				if r := onlyOperation(t, o); r.Status != test.status {
					t.Errorf("the operation is %+v", r)
				}
			})
		})
	}
}

// TestPolicyReconcileAsksInEachDo gets an answer after ten questions over ten days.
func TestPolicyReconcileAsksInEachDo(t *testing.T) {
	s := newShop(ledger.PolicyReconcile)
	s.after = failures(1, errTimeout)
	asked := 0
	s.kind.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
		if asked++; asked > 10 {
			return receipt(id), ledger.AnswerDone, nil
		}
		return "", ledger.AnswerUnknown, nil
	}
	var reported []string
	s.listener.Service = func(_ dohost.ID, event string, attrs ...slog.Attr) {
		reported = append(reported, fmt.Sprint(event, attrs[:1]))
	}
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for range 10 {
			_, err := pay(t.Context(), o)
			unknownID(t, err)
			h.Advance(24 * time.Hour)
		}
		if got := fmt.Sprint(reported); got != "[ledger:unknown[kind=charge]]" {
			t.Errorf("the reports are %s", got)
		}
		if got, err := pay(t.Context(), o); err != nil || got != receipt(s.calls()[0]) || len(s.calls()) != 1 {
			t.Errorf("after %d questions: %q, %v, %d calls", asked, got, err, len(s.calls()))
		}
	})
}

func TestPolicyReconcileFailsAfterMaxAttempts(t *testing.T) {
	s := newShop(ledger.PolicyReconcile)
	s.kind.MaxAttempts = 2
	s.before = failures(4, errTimeout)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		for n := range 2 {
			begun := time.Now()
			_, err := pay(t.Context(), o)
			if waited := time.Since(begun); waited < 100*time.Millisecond || waited > 125*time.Millisecond {
				t.Errorf("the delay between the calls is %v", waited)
			}
			if err == nil || errors.Is(err, ledger.ErrUnknown) || !errors.Is(err, errTimeout) || !strings.Contains(err.Error(), "had no effect in 2 calls") {
				t.Errorf("the error is %v", err)
			}
			if r := onlyOperation(t, o); r.Status != ledger.StatusFailed || len(s.calls()) != 2*n+2 {
				t.Errorf("after %d calls the operation is %+v", len(s.calls()), r)
			}
		}
		if _, err := pay(t.Context(), o); err != nil {
			t.Error(err)
		}
	})
}

func TestDoWaitsForAnEqualOne(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.bank.Latency = time.Minute
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		var all []*dohosttest.Client
		for range 5 {
			all = append(all, h.Client(func(ctx context.Context) error {
				got, err := pay(ctx, o)
				if err == nil && got != receipt(s.calls()[0]) {
					t.Errorf("pay: %q", got)
				}
				return err
			}))
		}
		h.Advance(time.Minute)
		if r := onlyOperation(t, o); r.Status != ledger.StatusRunning {
			t.Errorf("during the call the operation is %+v", r)
		}
		id := s.calls()[0]
		if err := dohost.CallNoResult(t.Context(), o, (*order).notDone, id); !errors.Is(err, ledger.ErrRunning) {
			t.Errorf("ResolveNotDone during the call: %v", err)
		}
		for _, c := range all {
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		}
		if n := s.bank.Total(); n != 1 || len(s.calls()) != 1 {
			t.Errorf("%d charges in %d calls", n, len(s.calls()))
		}
	})
}

func TestScopesSeparateOperations(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		for range 2 {
			for _, scope := range []string{"a", "b", "a/b", ""} {
				if _, err := dohost.Call(t.Context(), o, (*order).payIn, scope); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := dohost.Call(t.Context(), o, (*order).payNested, [2]string{"a", "b"}); err != nil {
				t.Fatal(err)
			}
			if _, err := pay(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		var scopes []string
		for _, r := range operationsOf(t, o) {
			scopes = append(scopes, r.Scope)
		}
		slices.Sort(scopes)
		if got := strings.Join(scopes, " "); got != ` "" "a/b" a a/b b` || s.bank.Total() != 6 {
			t.Errorf("the scopes are %q, with %d charges", got, s.bank.Total())
		}
	})
}

func (o *order) payNested(ctx context.Context, scopes [2]string) (string, error) {
	outer := ledger.Scope(ctx, scopes[0])
	_ = ledger.Scope(outer, "another") // it must not change the scope of the next line
	return o.payIn(outer, scopes[1])
}

func TestRowExpiresAfterKeep(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.kind.Keep = time.Hour
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		for n, wait := range []time.Duration{0, time.Hour - time.Millisecond, time.Millisecond} {
			h.Advance(wait)
			if _, err := pay(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if want := 1 + n/2; s.bank.Total() != want || len(s.calls()) != want {
				t.Errorf("Do %d: %d charges, want %d", n+1, s.bank.Total(), want)
			}
		}
		for _, scope := range []string{"a", "b", "c"} {
			if _, err := dohost.Call(t.Context(), o, (*order).payIn, scope); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Hour)
		// The first two new operations delete two of the four expired rows each, and that of c its own, which is the last.
		for n, scope := range []string{"c", "d", "dd"} {
			if _, err := dohost.Call(t.Context(), o, (*order).payIn, scope); err != nil {
				t.Fatal(err)
			}
			if got, want := len(operationsOf(t, o)), []int{2, 2, 3}[n]; got != want {
				t.Errorf("after %d new operations there are %d rows, want %d", n+1, got, want)
			}
		}
	})
}

func TestResolve(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.after = failures(2, errTimeout)
	s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
		_, err := pay(t.Context(), o)
		id := unknownID(t, err)
		if err := dohost.CallNoResult(t.Context(), o, (*order).notDone, id); err != nil {
			t.Fatal(err)
		}
		if r := onlyOperation(t, o); r.Status != ledger.StatusFailed {
			t.Errorf("the operation is %+v", r)
		}
		if _, err := pay(t.Context(), o); unknownID(t, err) != id || len(s.calls()) != 2 {
			t.Errorf("after ResolveNotDone: %v, %d calls", err, len(s.calls()))
		}
		if err := dohost.CallNoResult(t.Context(), o, (*order).done, id); err != nil {
			t.Fatal(err)
		}
		if got, err := pay(t.Context(), o); err != nil || got != receipt(id) || len(s.calls()) != 2 {
			t.Errorf("after ResolveDone: %q, %v, %d calls", got, err, len(s.calls()))
		}
		for _, f := range []func(*order, context.Context, ledger.ID) error{(*order).done, (*order).notDone} {
			if err := dohost.CallNoResult(t.Context(), o, f, id); !errors.Is(err, ledger.ErrEnded) || !errors.Is(err, dohost.ErrConflict) {
				t.Errorf("Resolve of a completed operation: %v", err)
			}
			if err := dohost.CallNoResult(t.Context(), o, f, "op_other"); !errors.Is(err, dohost.ErrNotFound) ||
				!strings.Contains(err.Error(), `object order/7 has no operation "op_other"`) {
				t.Errorf("Resolve of another object's operation: %v", err)
			}
		}
		s.kind.Name = "refund"
		if err := dohost.CallNoResult(t.Context(), o, (*order).done, id); !errors.Is(err, dohost.ErrMisuse) ||
			!strings.Contains(err.Error(), `of kind "charge", not "refund"`) {
			t.Errorf("Resolve with another kind: %v", err)
		}
	})
}

// TestResolveOfInterruptedOperation resolves an operation before a Do has seen that it was interrupted.
func TestResolveOfInterruptedOperation(t *testing.T) {
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			s := newShop(p)
			s.after = func(context.Context, ledger.ID) error { panic("the call ends its incarnation") }
			s.run(t, func(t *testing.T, _ *dohosttest.Host, o dohost.Stub[order]) {
				if _, err := pay(t.Context(), o); err == nil {
					t.Fatal("the call did not end its incarnation")
				}
				all, err := dohost.CallNoArg(t.Context(), o, (*order).unfinished)
				if err != nil || len(all) != 1 || all[0].Status != ledger.StatusUnknown || all[0].Calls != 1 {
					t.Fatalf("unfinished: %+v, %v", all, err)
				}
				if err := dohost.CallNoResult(t.Context(), o, (*order).done, all[0].ID); err != nil {
					t.Fatal(err)
				}
				if all, err := dohost.CallNoArg(t.Context(), o, (*order).unfinished); err != nil || len(all) != 0 {
					t.Errorf("unfinished: %+v, %v", all, err)
				}
				if got, err := pay(t.Context(), o); err != nil || got != receipt(all[0].ID) || len(s.calls()) != 1 {
					t.Errorf("after ResolveDone: %q, %v, %d calls", got, err, len(s.calls()))
				}
			})
		})
	}
}

// payByHand makes a charge with the Awaits of Do, and without a ledger.
func (o *order) payByHand(ctx context.Context) (string, error) {
	if err := dohost.Put(ctx, o.st.Storage(), "started", true); err != nil {
		return "", err
	}
	got, err := dohost.AwaitValue(ctx, func(ctx context.Context) (string, error) { return o.s.request(ctx, "by hand") })
	if err != nil {
		return "", err
	}
	return got, dohost.Put(ctx, o.st.Storage(), "result", got)
}

// TestDoWritesAsManyRecordsAsByHand compares the numbers of records of the log. The store syncs each record once.
func TestDoWritesAsManyRecordsAsByHand(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		count := func(f func(*order, context.Context) (string, error)) int64 {
			before := h.Host().Stats().Records
			if _, err := dohost.CallNoArg(t.Context(), o, f); err != nil {
				t.Fatal(err)
			}
			if err := h.WaitIdle(0); err != nil {
				t.Fatal(err)
			}
			return h.Host().Stats().Records - before
		}
		if hand, do := count((*order).payByHand), count((*order).payOnce); hand != 2 || do != 2 {
			t.Errorf("Do writes %d records, and an Await with a write before and after it %d", do, hand)
		}
		if n := count((*order).payOnce); n != 0 {
			t.Errorf("Do of a completed operation writes %d records", n)
		}
	})
}

func (o *order) payOnce(ctx context.Context) (string, error) { return o.pay(ctx, charge{"7", 4200}) }
