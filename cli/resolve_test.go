package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// payer makes payments whose first answers are lost.
type payer struct {
	st    *dohost.State
	calls *int
}

const payers dohost.Namespace[payer] = "payer"

var payment = ledger.Kind[string, string]{
	Name: "payment", Same: ledger.Whole[string], Policy: ledger.PolicyAtMostOnce,
	Unknown: func(_ ledger.ID, order string) string { return "order " + order + " may have been paid" },
}

func (p *payer) pay(ctx context.Context, order string) (string, error) {
	return ledger.Do(ctx, p.st, &payment, order, func(context.Context, ledger.ID) (string, error) {
		if *p.calls++; *p.calls <= 2 {
			return "", errors.New("connection reset")
		}
		return "by the bank", nil
	})
}

// TestResolveCommandSettlesOperations runs the command of an operator.
func TestResolveCommandSettlesOperations(t *testing.T) {
	calls := 0
	h, s := serveAdmin(t, dohost.Bind(payers, func(_ context.Context, st *dohost.State) (*payer, error) {
		return &payer{st, &calls}, nil
	}, &dohost.Handlers[payer]{Extensions: []dohost.ClassExtension{ledger.Declare(&payment)}}))
	pay := func(order string) (string, error) {
		return dohost.Call(t.Context(), payers.Get(h, "ada"), (*payer).pay, order)
	}
	ids := map[string]string{}
	for _, order := range []string{"1", "2"} {
		_, err := pay(order)
		unknown, ok := errors.AsType[*ledger.UnknownError](err)
		if !ok {
			t.Fatalf("pay: %v", err)
		}
		ids[order] = string(unknown.ID)
	}
	expect := func(status int, want string, args ...string) {
		t.Helper()
		var out, stderr strings.Builder
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		if got := (App{}).run(t.Context(), args, stdio{strings.NewReader(""), &out, &stderr}); got != status ||
			!strings.Contains(out.String()+stderr.String(), want) {
			t.Errorf("%q: status %d, %s%swant %d, %s", args, got, out.String(), stderr.String(), status, want)
		}
	}
	expect(0, "operation  "+ids["1"]+`, unknown, "payment" "1", begun 20`, "show", "payer/ada")
	expect(2, "--done", "resolve", "payer/ada", ids["1"])
	expect(2, "--done and --not-done can't be used together", "resolve", "payer/ada", ids["1"], "--done", "1", "--not-done")
	expect(1, `--done r_1: want JSON, such as '"receipt 17"' or null`, "resolve", "payer/ada", ids["1"], "--done", "r_1")
	expect(1, `the result does not suit the kind "payment"`, "resolve", "payer/ada", ids["1"], "--done", "1")
	expect(1, "payer/ada has no operation op_1", "resolve", "payer/ada", "op_1", "--not-done")
	expect(1, "no such class", "resolve", "egg/ada", ids["1"], "--not-done")
	expect(0, "operation "+ids["1"]+" of payer/ada is resolved as done\n", "resolve", "payer/ada", ids["1"], "--done", `"r_1"`)
	expect(1, "the operation has ended", "resolve", "payer/ada", ids["1"], "--not-done")
	expect(0, "operation "+ids["2"]+" of payer/ada is resolved as not done\n", "resolve", "payer/ada", ids["2"], "--not-done")
	for order, want := range map[string]string{"1": "r_1", "2": "by the bank"} {
		if got, err := pay(order); err != nil || got != want {
			t.Errorf("order %s: %q, %v; want %q", order, got, err, want)
		}
	}
	expect(0, "outcomes   payment, AtMostOnce, 2 unknown so far, 2 resolved: 1 without an effect (50 % false unknowns)", "show", "payer/ada")
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}
