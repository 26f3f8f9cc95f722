package chattest_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/chattest"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
	"github.com/dohost/dohost/internal/policytest"
	"github.com/dohost/dohost/ledger"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	if flag.Parse(); !pointtest.Full() {
		policytest.Sample = 120
	}
	goleak.VerifyTestMain(m)
}

// some returns places for a test, or all with -full.
func some(places ...dohost.Place) []dohost.Place {
	if pointtest.Full() {
		return nil
	}
	return places
}

// charge is the input of the tool of these tests, and receipt its output.
type (
	charge struct {
		Order string `json:"order"`
	}
	receipt struct {
		Number string `json:"number"`
	}
	function = func(ctx context.Context, c charge) (receipt, error)
	finder   = func(ctx context.Context, c charge) (receipt, ledger.Answer, error)
)

// request requests a charge without the turn.
func request(ctx context.Context, bank *dohosttest.FakeService, key string) (receipt, error) {
	return receipt{"r"}, dohost.Await(ctx, func(ctx context.Context) error { return bank.Call(ctx, key, "") })
}

// keyOf returns the key of the call.
func keyOf(ctx context.Context) string {
	call, _ := chat.CallFrom(ctx)
	return call.Key
}

// honest returns a function that sends the key of its call.
func honest(bank *dohosttest.FakeService) function {
	return func(ctx context.Context, _ charge) (receipt, error) { return request(ctx, bank, keyOf(ctx)) }
}

// find returns a Find that asks about a key.
func find(bank *dohosttest.FakeService) finder {
	return func(ctx context.Context, _ charge) (receipt, ledger.Answer, error) {
		if bank.Effects(keyOf(ctx)) > 0 {
			return receipt{"r"}, ledger.AnswerDone, nil
		}
		return receipt{}, ledger.AnswerNotDone, nil
	}
}

func tool(p ledger.Policy, run function, find finder) chat.Tool {
	return chat.NewTool("charge", "Charges an order.", run, &chat.ToolOptions[charge, receipt]{Policy: p, Find: find, Approve: chat.Always[charge]})
}

var counts = regexp.MustCompile(`in (\d+) runs (\d+) outcomes were unknown, (\d+) of them without an effect`)

// checkTrue expects a tool to pass, and returns the numbers of unknown outcomes and of false ones.
func checkTrue(t *testing.T, tool chat.Tool, bank dohosttest.Service) (unknown, falsely int) {
	t.Helper()
	places := some(dohost.PlaceCommitted, dohost.PlaceEffect)
	failures, summary := chattest.Explore(t, tool, charge{"7"}, bank, places)
	for _, text := range failures {
		t.Error(text)
	}
	t.Log(summary)
	m := counts.FindStringSubmatch(summary)
	if m == nil {
		t.Fatalf("the summary has no counts: %s", summary)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	if n[0] < 50 {
		t.Errorf("only %d runs", n[0])
	}
	return n[1], n[2]
}

func TestPolicyAtMostOnceIsTrue(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	unknown, falsely := checkTrue(t, tool(ledger.PolicyAtMostOnce, honest(bank), nil), bank)
	if unknown == 0 || falsely == 0 || falsely >= unknown {
		t.Errorf("%d outcomes were unknown, %d of them falsely", unknown, falsely)
	}
}

func TestPolicyIdempotentIsTrue(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{Idempotent: true}
	if unknown, _ := checkTrue(t, tool(ledger.PolicyIdempotent, honest(bank), nil), bank); unknown > 0 {
		t.Errorf("%d outcomes were unknown", unknown)
	}
}

func TestPolicyReconcileIsTrue(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	if unknown, _ := checkTrue(t, tool(ledger.PolicyReconcile, honest(bank), find(bank)), bank); unknown > 0 {
		t.Errorf("%d outcomes were unknown", unknown)
	}
}

// TestPolicyReconcileMayAnswerUnknown has a Find that never decides: the outcome may be unknown.
func TestPolicyReconcileMayAnswerUnknown(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	unknown, falsely := checkTrue(t, tool(ledger.PolicyReconcile, honest(bank), func(context.Context, charge) (receipt, ledger.Answer, error) {
		return receipt{}, ledger.AnswerUnknown, nil
	}), bank)
	if unknown == 0 || falsely == 0 {
		t.Errorf("%d outcomes were unknown, %d of them falsely", unknown, falsely)
	}
}

// lostAnswer makes the first effect of a key, and loses its answer.
func lostAnswer(_ string, request int, m dohosttest.FailurePoint) error {
	if request == 1 && m == dohosttest.FailureAfterEffect {
		return errRefused
	}
	return nil
}

// TestErrorsOfTrueTools has services that fail, and tools that return the errors.
func TestErrorsOfTrueTools(t *testing.T) {
	t.Parallel()
	refused := func(_ string, request int, m dohosttest.FailurePoint) error {
		if request == 1 && m == dohosttest.FailureBeforeEffect {
			return errRefused
		}
		return nil
	}
	for _, p := range []ledger.Policy{ledger.PolicyAtMostOnce, ledger.PolicyIdempotent, ledger.PolicyReconcile} {
		t.Run(p.String(), func(t *testing.T) {
			lost := &dohosttest.FakeService{Idempotent: p == ledger.PolicyIdempotent, Fail: lostAnswer}
			var ask finder
			if p == ledger.PolicyReconcile {
				ask = find(lost)
			}
			// With Idempotent, an error after an interruption leaves the outcome unknown.
			if unknown, falsely := checkTrue(t, tool(p, honest(lost), ask), lost); unknown == 0 || p == ledger.PolicyIdempotent && falsely > 0 {
				t.Errorf("after lost answers, %d outcomes were unknown, %d of them falsely", unknown, falsely)
			}
		})
	}
	t.Run("NoEffect", func(t *testing.T) {
		bank := &dohosttest.FakeService{Fail: refused}
		checkTrue(t, tool(ledger.PolicyAtMostOnce, func(ctx context.Context, _ charge) (receipt, error) {
			r, err := request(ctx, bank, keyOf(ctx)+"/1")
			if errors.Is(err, errRefused) {
				return request(ctx, bank, keyOf(ctx)+"/1") // the first request had no effect
			}
			return r, err
		}, nil), bank)
	})
}

// falseTool is a tool with a false declaration, and the text that the kit reports.
type falseTool struct {
	policy ledger.Policy
	run    func(bank *dohosttest.FakeService) function // nil means honest
	find   func(bank *dohosttest.FakeService) finder   // nil means none, or an honest one for Reconcile
	want   string
}

const site = `: chattest_test\.go:\d+`

var errRefused = errors.New("refused")

var falseTools = map[string]falseTool{
	"the service charges twice": {policy: ledger.PolicyIdempotent,
		want: `declared Idempotent, but the service has 2 effects for one key` + site},
	"each run has its own key": {policy: ledger.PolicyIdempotent, run: func(bank *dohosttest.FakeService) function {
		return func(ctx context.Context, _ charge) (receipt, error) { return request(ctx, bank, rand.Text()) }
	}, want: `declared Idempotent, but the service has 2 effects of one call, with the keys \["\w+" "\w+"\]: each run sends another key` + site},
	"the key comes from the input": {policy: ledger.PolicyIdempotent, run: func(bank *dohosttest.FakeService) function {
		bank.Idempotent = true
		return func(ctx context.Context, c charge) (receipt, error) { return request(ctx, bank, c.Order) }
	}, want: `declared Idempotent, but the call has a result, and the service has no effect of it` + site},
	"a repetition in one run": {run: func(bank *dohosttest.FakeService) function {
		bank.Fail = lostAnswer
		return func(ctx context.Context, _ charge) (receipt, error) {
			r, err := request(ctx, bank, keyOf(ctx))
			if errors.Is(err, errRefused) {
				return request(ctx, bank, keyOf(ctx))
			}
			return r, err
		}
	}, want: `declared AtMostOnce, but the service has 2 effects for one key` + site},
	"a result without an effect": {policy: ledger.PolicyAtMostOnce, run: func(bank *dohosttest.FakeService) function {
		bank.Fail = func(string, int, dohosttest.FailurePoint) error { return errRefused }
		return func(ctx context.Context, _ charge) (receipt, error) {
			_, _ = request(ctx, bank, keyOf(ctx))
			return receipt{"r"}, nil
		}
	}, want: `declared AtMostOnce, but the call has a result, and the service has no effect of it` + site},
	"Find denies an effect": {policy: ledger.PolicyReconcile, find: func(*dohosttest.FakeService) finder {
		return func(context.Context, charge) (receipt, ledger.Answer, error) {
			return receipt{}, ledger.AnswerNotDone, nil
		}
	}, want: `declared Reconcile, but Find returned NotDone, and the service has 1 effect of the call` + site},
	"Find asks about the input": {policy: ledger.PolicyReconcile, find: func(bank *dohosttest.FakeService) finder {
		return func(ctx context.Context, c charge) (receipt, ledger.Answer, error) {
			if keyOf(ctx) != "" && bank.Total() > 0 { // the bank has a charge of this order
				return receipt{"r"}, ledger.AnswerDone, nil
			}
			return receipt{}, ledger.AnswerNotDone, nil
		}
	}, want: `declared Reconcile, but Find returned Done, and the service has no effect of the call` + site},
	"a marked error had an effect": {policy: ledger.PolicyAtMostOnce, run: func(bank *dohosttest.FakeService) function {
		return func(ctx context.Context, _ charge) (receipt, error) {
			r, err := request(ctx, bank, keyOf(ctx))
			return r, ledger.NoEffect(err)
		}
	}, want: `declared AtMostOnce, but an error with the mark NoEffect had 1 effect \(".*"\)` + site},
	"another service": {policy: ledger.PolicyAtMostOnce, run: func(*dohosttest.FakeService) function {
		return func(context.Context, charge) (receipt, error) { return receipt{}, errRefused }
	}, want: `declared AtMostOnce, but the service had no effect in any run`},
}

func TestPoliciesThatAreFalse(t *testing.T) {
	t.Parallel()
	for name, c := range falseTools {
		t.Run(name, func(t *testing.T) {
			bank := &dohosttest.FakeService{}
			run := honest(bank)
			if c.run != nil {
				run = c.run(bank)
			}
			var ask finder
			if c.find != nil {
				ask = c.find(bank)
			}
			failures, _ := chattest.Explore(t, tool(c.policy, run, ask), charge{"7"}, bank, some(dohost.PlaceCommitted, dohost.PlaceEffect))
			checkReported(t, failures, c.want)
		})
	}
}

// checkReported expects the text in the failures, and a replay line unless all runs fail.
func checkReported(t *testing.T, failures []string, want string) {
	t.Helper()
	if len(failures) == 0 {
		t.Fatal("the kit reports nothing")
	}
	t.Log(failures[0])
	if !regexp.MustCompile(`tool "charge": ` + want).MatchString(strings.Join(failures, "\n")) {
		t.Errorf("no failure matches %s", want)
	}
	if strings.Contains(failures[0], "policytest/") || strings.Contains(failures[0], "ledger/do.go") || strings.Contains(failures[0], "chat/newtool.go") {
		t.Error("the first failure names a line of the module as the object's code")
	}
	undisturbed := strings.Contains(failures[0], "the undisturbed run fails") || strings.Contains(failures[0], "in any run")
	if !undisturbed && !strings.Contains(failures[0], "replay: go test -run '^"+strings.Split(t.Name(), "/")[0]+"$") {
		t.Error("the first failure has no replay line")
	}
}

// TestFindWithoutUsableResult has tools without types: a result of Find may be anything.
func TestFindWithoutUsableResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		want   string
	}{
		"null":     {nil, "it is null, and the function returns an object"},
		"not JSON": {make(chan int), "json: unsupported type: chan int"},
	} {
		t.Run(name, func(t *testing.T) {
			bank := &dohosttest.FakeService{}
			tool := chat.Tool{
				ToolSpec: chat.ToolSpec{Name: "charge"}, Policy: ledger.PolicyReconcile,
				Run: func(ctx context.Context, _ json.RawMessage) (any, error) { return request(ctx, bank, keyOf(ctx)) },
				Find: func(ctx context.Context, _ json.RawMessage) (any, ledger.Answer, error) {
					if bank.Effects(keyOf(ctx)) == 0 {
						return nil, ledger.AnswerNotDone, nil
					}
					return c.result, ledger.AnswerDone, nil
				},
			}
			failures, _ := chattest.Explore(t, tool, charge{"7"}, bank, some(dohost.PlaceCommitted, dohost.PlaceEffect))
			checkReported(t, failures, fmt.Sprintf("declared Reconcile, but Find returned Done without a usable result: %s%s", c.want, site))
		})
	}
}

// TestInputThatDoesNotMatch has calls that never run.
func TestInputThatDoesNotMatch(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	failures, _ := chattest.Explore(t, tool(ledger.PolicyAtMostOnce, honest(bank), nil), "text", bank, nil)
	checkReported(t, failures, "declared AtMostOnce, but the call has failed, and its function returned no error .*does not match the parameters")
}

// TestToolThatCannotRun has tools that no chat runs.
func TestToolThatCannotRun(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	for want, tool := range map[string]chat.Tool{
		`tool "charge": the tool has no Run`: {ToolSpec: chat.ToolSpec{Name: "charge"}},
		`tool "charge": the tool is external`: {
			ToolSpec: chat.ToolSpec{Name: "charge"}, External: &chat.External{}, Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil },
		},
		"the reply is error: ": tool(ledger.PolicyAtMostOnce, honest(bank), find(bank)),
	} {
		failures, _ := chattest.Explore(t, tool, charge{"7"}, bank, nil)
		if len(failures) != 1 || !strings.Contains(failures[0], want) {
			t.Errorf("no %s in %q", want, failures)
		}
	}
}

// TestInterruptionThatIsMissingIsReported ends the incarnation only before the calls: that proves nothing about the policy.
func TestInterruptionThatIsMissingIsReported(t *testing.T) {
	t.Parallel()
	bank := &dohosttest.FakeService{}
	failures, _ := chattest.Explore(t, tool(ledger.PolicyIdempotent, honest(bank), nil), charge{"7"}, bank, []dohost.Place{dohost.PlaceConstruct})
	if len(failures) != 1 || !strings.Contains(failures[0], "but no run ended a call between its effect and the record of its result") {
		t.Errorf("failures: %q", failures)
	}
}
