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

// TestOpenNamesIncompleteKind opens a host with each mistake in a kind.
func TestOpenNamesIncompleteKind(t *testing.T) {
	type kind = ledger.Kind[charge, string]
	for want, change := range map[string]func(*kind){
		`kind name "": want 1 to 128 bytes`:        func(k *kind) { k.Name = "" },
		`aaa": want 1 to 128 bytes`:                func(k *kind) { k.Name = strings.Repeat("a", 129) },
		`kind "charge": Same is nil`:               func(k *kind) { k.Same = nil },
		`kind "charge": want a Policy`:             func(k *kind) { k.Policy = 0 },
		`kind "charge": Unknown is nil`:            func(k *kind) { k.Unknown = nil },
		`kind "charge": PolicyReconcile needs`:     func(k *kind) { k.Policy = ledger.PolicyReconcile },
		`kind "charge": only PolicyReconcile`:      func(k *kind) { k.Find = newShop(ledger.PolicyReconcile).find },
		`kind "charge": MaxAttempts is negative`:   func(k *kind) { k.MaxAttempts = -1 },
		`kind "charge": MaxAttempts is for Policy`: func(k *kind) { k.MaxAttempts = 1 },
		`kind "charge": Keep must be zero`:         func(k *kind) { k.Keep = time.Millisecond - 1 },
	} {
		s := newShop(ledger.PolicyAtMostOnce)
		change(&s.kind)
		if _, err := dohost.Open(t.TempDir(), nil, s.class()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `class "order"`) {
			t.Errorf("Open: %v, want %q", err, want)
		}
		s.doUndeclared(t, want)
	}
	s := newShop(ledger.PolicyAtMostOnce)
	for _, x := range []dohost.ClassExtension{
		ledger.Declare(&s.kind, &s.kind), ledger.Declare(nil), ledger.Declare((*ledger.Kind[charge, string])(nil)),
	} {
		if _, err := dohost.Open(t.TempDir(), nil, s.extended(x)); err == nil || !strings.Contains(err.Error(), "kind") {
			t.Errorf("Open: %v", err)
		}
	}
}

// doUndeclared makes an operation of a wrong kind that was not declared.
func (s *shop) doUndeclared(t *testing.T, want string) {
	undeclared := dohost.Bind(orders, func(_ context.Context, st *dohost.State) (*order, error) { return &order{st, s}, nil }, nil)
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{undeclared}}, func(t *testing.T, h *dohosttest.Host) {
		if _, err := pay(t.Context(), orders.Get(h, "7")); !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("Do: %v, want %q", err, want)
		}
	})
}

// odd is an argument of any form.
type odd struct{ Value any }

// report is a result of any form.
type report struct{ Value any }

type reporter struct {
	st    *dohost.State
	kind  *ledger.Kind[odd, report]
	value any
	calls *int
}

const reporters = dohost.Namespace[reporter]("reporter")

func (r *reporter) do(ctx context.Context, args odd) (report, error) {
	return ledger.Do(ctx, r.st, r.kind, args, func(context.Context, ledger.ID) (report, error) {
		*r.calls++
		return report{r.value}, nil
	})
}

// reads decodes the results of reporter.do as another type.
func (r *reporter) reads(ctx context.Context, args odd) (int, error) {
	k := &ledger.Kind[odd, int]{Name: r.kind.Name, Same: r.kind.Same, Policy: r.kind.Policy, Unknown: r.kind.Unknown}
	return ledger.Do(ctx, r.st, k, args, noCall)
}

func noCall(context.Context, ledger.ID) (int, error) { return 0, nil }

// inTransaction makes an operation in a Transaction that is not rolled back.
func (r *reporter) inTransaction(ctx context.Context, args odd) (struct{}, error) {
	var refused error
	err := dohost.Transaction(ctx, func(ctx context.Context) error {
		_, refused = r.do(ctx, args)
		return nil
	})
	return struct{}{}, errors.Join(refused, err)
}

func (r *reporter) nilCall(ctx context.Context) error {
	_, err := ledger.Do(ctx, r.st, r.kind, odd{1}, nil)
	return err
}

func (r *reporter) nilCallNoResult(ctx context.Context) error {
	kind := &ledger.Kind[odd, struct{}]{Name: "note", Same: ledger.Whole[odd], Policy: ledger.PolicyAtMostOnce, Unknown: r.kind.Unknown}
	return ledger.DoNoResult(ctx, r.st, kind, odd{1}, nil)
}

func (r *reporter) nilState(ctx context.Context) error {
	_, err := ledger.Do(ctx, nil, r.kind, odd{1}, func(context.Context, ledger.ID) (report, error) { return report{}, nil })
	return err
}

func (r *reporter) records(ctx context.Context) ([]ledger.Operation, error) {
	return collect(ledger.All(ctx, r.st))
}

func testReporter(t *testing.T, p ledger.Policy, value any, f func(t *testing.T, h *dohosttest.Host, r dohost.Stub[reporter], calls *int)) {
	calls := 0
	kind := &ledger.Kind[odd, report]{
		Name: "report", Same: ledger.Whole[odd], Policy: p, Unknown: func(ledger.ID, odd) string { return "look for the report" },
	}
	class := dohost.Bind(reporters, func(_ context.Context, st *dohost.State) (*reporter, error) {
		return &reporter{st, kind, value, &calls}, nil
	}, &dohost.Handlers[reporter]{Extensions: []dohost.ClassExtension{ledger.Declare(kind)}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		f(t, h, reporters.Get(h, "r"), &calls)
	})
}

// formless are arguments without a canonical form.
var formless = []any{func() {}, make(chan int), "a\xffb", map[string]any{"\xff": 1}}

func (r *reporter) doFormless(ctx context.Context, i int) (report, error) {
	return r.do(ctx, odd{formless[i]})
}

func TestDoRefusesArgumentsWithoutCanonicalForm(t *testing.T) {
	testReporter(t, ledger.PolicyAtMostOnce, 1, func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], calls *int) {
		for i, v := range formless {
			_, err := dohost.Call(t.Context(), r, (*reporter).doFormless, i)
			if err == nil || !errors.Is(err, ledger.ErrNoCanonicalForm) || !strings.Contains(err.Error(), `the arguments have no canonical form: operation of kind "report": `) {
				t.Errorf("Do with %T: %v", v, err)
			}
		}
		for _, f := range []func(*reporter, context.Context) error{(*reporter).nilCall, (*reporter).nilCallNoResult, (*reporter).nilState} {
			if err := dohost.CallBare(t.Context(), r, f); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("Do without a function or a State: %v", err)
			}
		}
		if all, err := dohost.CallNoArg(t.Context(), r, (*reporter).records); err != nil || len(all) != 0 || *calls != 0 {
			t.Errorf("%d calls, and the operations are %v, %v", *calls, all, err)
		}
	})
}

// TestResultThatCannotBeStoredIsUnknown checks that a call with an unstorable result leaves the operation unknown.
func TestResultThatCannotBeStoredIsUnknown(t *testing.T) {
	for want, v := range map[string]any{
		"the call took effect, but dohost: JSON of the result has 8388620 bytes, the limit is 8388608": strings.Repeat("a", 8<<20),
		"the call took effect, but the result cannot be encoded":                                       func() {},
	} {
		for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent} {
			testReporter(t, p, v, func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], calls *int) {
				for range 2 {
					_, err := dohost.Call(t.Context(), r, (*reporter).do, odd{1})
					if unknownID(t, err); *calls != 1 {
						t.Errorf("with %v: %v, after %d calls", p, err, *calls)
					}
				}
				all, err := dohost.CallNoArg(t.Context(), r, (*reporter).records)
				if err != nil || len(all) != 1 || all[0].Status != ledger.StatusUnknown || !strings.Contains(all[0].Error, want) {
					t.Errorf("the operations are %+v, %v; want %q", all, err, want)
				}
			})
		}
	}
}

func TestResultThatCannotBeDecoded(t *testing.T) {
	testReporter(t, ledger.PolicyAtMostOnce, "text", func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], _ *int) {
		if _, err := dohost.Call(t.Context(), r, (*reporter).do, odd{1}); err != nil {
			t.Fatal(err)
		}
		if n, err := dohost.Call(t.Context(), r, (*reporter).reads, odd{1}); err == nil || n != 0 ||
			!strings.Contains(err.Error(), `of kind "report" cannot be decoded: json: cannot unmarshal object`) {
			t.Errorf("Do with another type: %d, %v", n, err)
		}
	})
}

// doStringer makes an operation whose result encodes, and does not decode.
func (r *reporter) doStringer(ctx context.Context) error {
	k := &ledger.Kind[odd, fmt.Stringer]{Name: r.kind.Name, Same: r.kind.Same, Policy: r.kind.Policy, Unknown: r.kind.Unknown}
	_, err := ledger.Do(ctx, r.st, k, odd{1}, func(context.Context, ledger.ID) (fmt.Stringer, error) {
		*r.calls++
		return time.Second, nil
	})
	return err
}

func TestResultThatDoesNotDecodeIsUnknown(t *testing.T) {
	testReporter(t, ledger.PolicyIdempotent, 1, func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], calls *int) {
		err := dohost.CallBare(t.Context(), r, (*reporter).doStringer)
		if unknownID(t, err); *calls != 1 || !strings.Contains(err.Error(), "the result cannot be decoded") {
			t.Errorf("%v, after %d calls", err, *calls)
		}
	})
}

// TestDoInTransactionLeavesNothing makes an operation where an Await is refused: no call begins, and so no record stays.
func TestDoInTransactionLeavesNothing(t *testing.T) {
	testReporter(t, ledger.PolicyAtMostOnce, 1, func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], calls *int) {
		if _, err := dohost.Call(t.Context(), r, (*reporter).inTransaction, odd{1}); !errors.Is(err, dohost.ErrMisuse) || *calls != 0 {
			t.Errorf("Do in a Transaction: %v, %d calls", err, *calls)
		}
		if all, err := dohost.CallNoArg(t.Context(), r, (*reporter).records); err != nil || len(all) != 0 {
			t.Errorf("the operations are %v, %v", all, err)
		}
		if got, err := dohost.Call(t.Context(), r, (*reporter).do, odd{1}); err != nil || *calls != 1 {
			t.Errorf("Do: %v, %v, %d calls", got, err, *calls)
		}
	})
}

func TestArgumentsThatAreLongAreCut(t *testing.T) {
	testReporter(t, ledger.PolicyAtMostOnce, 1, func(t *testing.T, _ *dohosttest.Host, r dohost.Stub[reporter], _ *int) {
		if _, err := dohost.Call(t.Context(), r, (*reporter).do, odd{"a" + strings.Repeat("é", 4096)}); err != nil {
			t.Fatal(err)
		}
		all, err := dohost.CallNoArg(t.Context(), r, (*reporter).records)
		if err != nil || len(all) != 1 || len(all[0].Args) != 4095 || !strings.HasPrefix(all[0].Args, `{"Value":"aéé`) {
			t.Errorf("the operations are %.200v, %v", all, err)
		}
		if since := time.Since(all[0].Started); since < 0 || since > time.Second {
			t.Errorf("started %v ago", since)
		}
	})
}

// TestCopyOfObjectKnowsItsOperations exports an object into another one. An object with equal operations that is not a copy
// has other IDs.
func TestCopyOfObjectKnowsItsOperations(t *testing.T) {
	s := newShop(ledger.PolicyAtMostOnce)
	s.run(t, func(t *testing.T, h *dohosttest.Host, o dohost.Stub[order]) {
		if _, err := pay(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		var data strings.Builder
		if err := h.Host().Export(t.Context(), o.ID(), &data); err != nil {
			t.Fatal(err)
		}
		if err := h.Host().Import(t.Context(), orders.Get(h, "8").ID(), strings.NewReader(data.String())); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"8", "9"} {
			if _, err := pay(t.Context(), orders.Get(h, name)); err != nil {
				t.Fatal(err)
			}
		}
		if ids := s.calls(); len(ids) != 2 || ids[0] == ids[1] || !strings.HasPrefix(string(ids[0]), "op_") || len(ids[0]) != 29 {
			t.Errorf("calls with the IDs %v, want one for order 7 and another for order 9", ids)
		}
	})
}
