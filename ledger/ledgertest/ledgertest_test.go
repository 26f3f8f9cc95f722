package ledgertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/internal/policytest"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/ledger/ledgertest"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	if flag.Parse(); !pointtest.Full() {
		policytest.Sample = 100
	}
	goleak.VerifyTestMain(m)
}

// charge is the argument of the operations of these tests.
type charge struct {
	Order string
	Cents int
}

type (
	function = func(ctx context.Context, id ledger.ID) (string, error)
	kind     = ledger.Kind[charge, string]
)

// declared returns a kind with a policy, and a bank that suits it: it recognises keys for Idempotent, and can be asked for
// Reconcile.
func declared(p ledger.Policy) (*kind, *dohosttest.FakeService) {
	bank := &dohosttest.FakeService{Idempotent: p == ledger.PolicyIdempotent}
	k := &kind{
		Name: "charge", Same: ledger.Whole[charge], Policy: p,
		Unknown: func(_ ledger.ID, c charge) string { return "order " + c.Order + " may have been charged" },
	}
	if p == ledger.PolicyReconcile {
		k.Find = func(_ context.Context, id ledger.ID, _ charge) (string, ledger.Answer, error) {
			if bank.Effects(string(id)) > 0 {
				return "receipt", ledger.AnswerDone, nil
			}
			return "", ledger.AnswerNotDone, nil
		}
	}
	return k, bank
}

// honest returns a function that sends its ID.
func honest(bank *dohosttest.FakeService) function {
	return func(ctx context.Context, id ledger.ID) (string, error) {
		return "receipt", bank.Call(ctx, string(id), "charge")
	}
}

var counts = regexp.MustCompile(`in (\d+) runs (\d+) outcomes were unknown, (\d+) of them without an effect`)

// checkTrue expects a kind to pass, and returns the numbers of runs, of unknown outcomes and of false ones.
func checkTrue(t *testing.T, k *kind, call function, bank dohosttest.Service) (runs, unknown, falsely int) {
	t.Helper()
	failures, summary := ledgertest.Explore(t, k, charge{"7", 4200}, call, bank)
	for _, text := range failures {
		t.Error(text)
	}
	t.Log(summary)
	m := counts.FindStringSubmatch(summary)
	if m == nil || !strings.HasPrefix(summary, fmt.Sprintf("kind %q, %v: ", "charge", k.Policy)) {
		t.Fatalf("the summary has no counts: %s", summary)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	if n[0] < 50 || n[1] > n[0] {
		t.Errorf("%d unknown outcomes in %d runs", n[1], n[0])
	}
	return n[0], n[1], n[2]
}

func TestPolicyAtMostOnceIsTrue(t *testing.T) {
	k, bank := declared(ledger.PolicyAtMostOnce)
	_, unknown, falsely := checkTrue(t, k, honest(bank), bank)
	if unknown == 0 || falsely == 0 || falsely >= unknown {
		t.Errorf("%d outcomes were unknown, %d of them falsely", unknown, falsely)
	}
}

func TestPolicyIdempotentIsTrue(t *testing.T) {
	k, bank := declared(ledger.PolicyIdempotent)
	if _, unknown, _ := checkTrue(t, k, honest(bank), bank); unknown > 0 {
		t.Errorf("%d outcomes were unknown", unknown)
	}
}

func TestPolicyReconcileIsTrue(t *testing.T) {
	k, bank := declared(ledger.PolicyReconcile)
	if _, unknown, _ := checkTrue(t, k, honest(bank), bank); unknown > 0 {
		t.Errorf("%d outcomes were unknown", unknown)
	}
}

// TestPolicyReconcileMayAnswerUnknown has a Find that never decides: the outcome may be unknown.
func TestPolicyReconcileMayAnswerUnknown(t *testing.T) {
	k, bank := declared(ledger.PolicyReconcile)
	k.Find = func(context.Context, ledger.ID, charge) (string, ledger.Answer, error) {
		return "", ledger.AnswerUnknown, nil
	}
	if _, unknown, falsely := checkTrue(t, k, honest(bank), bank); unknown == 0 || falsely == 0 {
		t.Errorf("%d outcomes were unknown, %d of them falsely", unknown, falsely)
	}
}

var errRefused = errors.New("refused")

// TestPolicyWithNoEffectIsTrue has a bank that refuses the first request, and a function that marks only that error.
func TestPolicyWithNoEffectIsTrue(t *testing.T) {
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			k, bank := declared(p)
			k.NoEffect = func(err error) bool { return errors.Is(err, errRefused) }
			bank.Fail = func(_ string, request int, m dohosttest.FailurePoint) error {
				if request == 1 && m == dohosttest.FailureBeforeEffect {
					return errRefused
				}
				return nil
			}
			checkTrue(t, k, honest(bank), bank)
		})
	}
}

// TestAnswerThatIsLost has a bank that loses its first answer, and a function that returns the error.
func TestAnswerThatIsLost(t *testing.T) {
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			k, bank := declared(p)
			bank.Fail = lostAnswer
			if _, unknown, _ := checkTrue(t, k, honest(bank), bank); (unknown > 0) != (p == ledger.PolicyAtMostOnce) {
				t.Errorf("%d outcomes were unknown", unknown)
			}
		})
	}
}

// plainService is a service of a user, not a FakeService.
type plainService struct{ *dohosttest.FakeService }

// TestServiceOfAUser has a key that is the same in all runs.
func TestServiceOfAUser(t *testing.T) {
	k, bank := declared(ledger.PolicyIdempotent)
	checkTrue(t, k, func(ctx context.Context, _ ledger.ID) (string, error) {
		return "receipt", bank.Call(ctx, "order 7", "")
	}, plainService{bank})
}

func TestKindThatCannotBegin(t *testing.T) {
	for want, change := range map[string]func(*kind){
		"run: dohost: perform .* have no canonical form": func(k *kind) { k.Same = func(charge) any { return make(chan int) } },
		"dohost: class .* PolicyReconcile needs Find":    func(k *kind) { k.Policy = ledger.PolicyReconcile },
	} {
		k, bank := declared(ledger.PolicyAtMostOnce)
		change(k)
		failures, _ := ledgertest.Explore(t, k, charge{"7", 4200}, honest(bank), bank)
		if len(failures) != 1 || !regexp.MustCompile("^the undisturbed run fails: "+want).MatchString(failures[0]) {
			t.Errorf("no %s in %q", want, failures)
		}
	}
	k, bank := declared(ledger.PolicyAtMostOnce)
	for name, args := range map[string]struct {
		k       *kind
		call    function
		service dohosttest.Service
	}{"kind": {nil, honest(bank), bank}, "function": {k, nil, bank}, "service": {k, honest(bank), nil}} {
		failures, _ := ledgertest.Explore(t, args.k, charge{"7", 4200}, args.call, args.service)
		if len(failures) != 1 || !strings.Contains(failures[0], "nil") {
			t.Errorf("a nil %s: %q", name, failures)
		}
	}
}

// lostAnswer makes the first effect of a key, and loses its answer.
func lostAnswer(_ string, request int, m dohosttest.FailurePoint) error {
	if request == 1 && m == dohosttest.FailureAfterEffect {
		return errors.New("connection reset")
	}
	return nil
}

// TestPoliciesThatAreFalse has a kind for each false declaration that the kit reports.
func TestPoliciesThatAreFalse(t *testing.T) {
	const site = `: ledgertest_test\.go:\d+`
	for name, c := range map[string]struct {
		policy ledger.Policy
		change func(k *kind, bank *dohosttest.FakeService) function // nil means honest
		want   string
	}{
		"the service charges twice": {ledger.PolicyIdempotent, func(_ *kind, bank *dohosttest.FakeService) function {
			bank.Idempotent = false
			return honest(bank)
		}, `declared Idempotent, but the service has 2 effects for one key` + site},
		"each run has its own key": {ledger.PolicyIdempotent, func(_ *kind, bank *dohosttest.FakeService) function {
			return func(ctx context.Context, _ ledger.ID) (string, error) {
				return "receipt", bank.Call(ctx, rand.Text(), "")
			}
		}, `declared Idempotent, but the service has 2 effects of one call, with the keys \["\w+" "\w+"\]: each run sends another key` + site},
		"two requests in one run": {ledger.PolicyAtMostOnce, func(_ *kind, bank *dohosttest.FakeService) function {
			return func(ctx context.Context, id ledger.ID) (string, error) {
				return "receipt", errors.Join(bank.Call(ctx, string(id)+"/a", ""), bank.Call(ctx, string(id)+"/b", ""))
			}
		}, `declared AtMostOnce, but the service has 2 effects of one call, with the keys \["\w+/a" "\w+/b"\]` + site},
		"a repetition in one run": {ledger.PolicyAtMostOnce, func(_ *kind, bank *dohosttest.FakeService) function {
			bank.Fail = lostAnswer
			return func(ctx context.Context, id ledger.ID) (string, error) {
				err := bank.Call(ctx, string(id), "")
				if err != nil {
					err = bank.Call(ctx, string(id), "")
				}
				return "receipt", err
			}
		}, `declared AtMostOnce, but the service has 2 effects for one key` + site},
		"a result without an effect": {ledger.PolicyAtMostOnce, func(_ *kind, bank *dohosttest.FakeService) function {
			bank.Fail = func(string, int, dohosttest.FailurePoint) error { return errRefused }
			return func(ctx context.Context, id ledger.ID) (string, error) {
				_ = bank.Call(ctx, string(id), "")
				return "receipt", nil
			}
		}, `declared AtMostOnce, but the call has a result, and the service has no effect of it` + site},
		"Find denies an effect": {ledger.PolicyReconcile, func(k *kind, bank *dohosttest.FakeService) function {
			k.Find = func(context.Context, ledger.ID, charge) (string, ledger.Answer, error) {
				return "", ledger.AnswerNotDone, nil
			}
			return honest(bank)
		}, `declared Reconcile, but Find returned NotDone, and the service has 1 effect of the call` + site},
		"Find invents an effect": {ledger.PolicyReconcile, func(k *kind, bank *dohosttest.FakeService) function {
			k.Find = func(context.Context, ledger.ID, charge) (string, ledger.Answer, error) {
				return "receipt", ledger.AnswerDone, nil
			}
			return honest(bank)
		}, `declared Reconcile, but Find returned Done, and the service has no effect of the call` + site},
		"a marked error had an effect": {ledger.PolicyIdempotent, func(_ *kind, bank *dohosttest.FakeService) function {
			return func(ctx context.Context, id ledger.ID) (string, error) {
				return "receipt", ledger.NoEffect(bank.Call(ctx, string(id), ""))
			}
		}, `declared Idempotent, but an error with the mark NoEffect had 1 effect \(".*"\)` + site},
		"NoEffect accepts an error with an effect": {ledger.PolicyAtMostOnce, func(k *kind, bank *dohosttest.FakeService) function {
			k.NoEffect = func(error) bool { return true }
			bank.Fail = lostAnswer
			return honest(bank)
		}, `declared AtMostOnce, but an error with the mark NoEffect had 1 effect \("connection reset"\)` + site},
		"another service": {ledger.PolicyAtMostOnce, func(*kind, *dohosttest.FakeService) function {
			return func(context.Context, ledger.ID) (string, error) { return "", errRefused }
		}, `declared AtMostOnce, but the service had no effect in any run` + site},
	} {
		t.Run(name, func(t *testing.T) {
			k, bank := declared(c.policy)
			call := c.change(k, bank)
			failures, _ := ledgertest.Explore(t, k, charge{"7", 4200}, call, bank)
			checkReported(t, failures, `kind "charge": `+c.want)
		})
	}
}

// checkReported expects the text in the first failure, and a replay line unless all runs fail.
func checkReported(t *testing.T, failures []string, want string) {
	t.Helper()
	if len(failures) == 0 {
		t.Fatal("the kit reports nothing")
	}
	t.Log(failures[0])
	if !regexp.MustCompile(want).MatchString(strings.Join(failures, "\n")) {
		t.Errorf("no failure matches %s", want)
	}
	if strings.Contains(failures[0], "policytest/") || strings.Contains(failures[0], "ledger/do.go") || strings.Contains(failures[0], "chat/newtool.go") {
		t.Error("the first failure names a line of the module as the object's code")
	}
	undisturbed := strings.Contains(failures[0], "the undisturbed run fails") || strings.Contains(failures[0], "in any run")
	if !undisturbed && !strings.Contains(failures[0], "replay: go test -run '^"+strings.Split(t.Name(), "/")[0]+"$/") {
		t.Error("the first failure has no replay line")
	}
}

// receipt is a result that encodes, and cannot be decoded.
type receipt struct{ Number any }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *receipt) UnmarshalJSON(data []byte) error {
	if strings.Contains(string(data), "null") {
		return errors.New("a receipt without a number")
	}
	return nil
}

func TestFindWithoutUsableResult(t *testing.T) {
	bank := &dohosttest.FakeService{}
	k := &ledger.Kind[charge, receipt]{
		Name: "charge", Same: ledger.Whole[charge], Policy: ledger.PolicyReconcile,
		Unknown: func(ledger.ID, charge) string { return "look" },
		Find: func(_ context.Context, id ledger.ID, _ charge) (receipt, ledger.Answer, error) {
			if bank.Effects(string(id)) == 0 {
				return receipt{}, ledger.AnswerNotDone, nil
			}
			return receipt{}, ledger.AnswerDone, nil
		},
	}
	call := func(ctx context.Context, id ledger.ID) (receipt, error) {
		return receipt{1}, bank.Call(ctx, string(id), "")
	}
	failures, _ := ledgertest.Explore(t, k, charge{"7", 4200}, call, bank)
	if len(failures) == 0 {
		t.Fatal("the kit reports nothing")
	}
	const want = `kind "charge": declared Reconcile, but Find returned Done without a usable result: a receipt without a number: ledgertest_test.go:`
	if !strings.Contains(failures[0], want) {
		t.Errorf("no %s in %s", want, failures[0])
	}
}

// TestKindPasses is the use of a user, with all output.
func TestKindPasses(t *testing.T) {
	k, bank := declared(ledger.PolicyIdempotent)
	ledgertest.Kind(t, k, charge{"7", 4200}, honest(bank), bank)
}
