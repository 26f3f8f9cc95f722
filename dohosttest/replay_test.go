package dohosttest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// childEnv is set in a child of the test binary, where the scenario must fail.
const childEnv = "DOHOSTTEST_CHILD"

// splitAccount is an object with a bug: its balance is two keys, written in two batches.
type splitAccount struct{ st *dohost.State }

const splitAccounts dohost.Namespace[splitAccount] = "split-account"

func (p *splitAccount) Move(ctx context.Context, n int) (int, error) {
	if err := dohost.Put(ctx, p.st.Storage(), "left", 100-n); err != nil {
		return 0, err
	}
	if err := dohost.Sleep(ctx, 1); err != nil {
		return 0, err
	}
	return n, dohost.Put(ctx, p.st.Storage(), "right", n)
}

func (p *splitAccount) Sum(ctx context.Context, _ int) (int, error) {
	left, ok, err := dohost.Get[int](ctx, p.st.Storage(), "left")
	right, _, err2 := dohost.Get[int](ctx, p.st.Storage(), "right")
	if !ok {
		left = 100
	}
	return left + right, errors.Join(err, err2)
}

func splitAccountScenario() dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(splitAccounts, func(_ context.Context, st *dohost.State) (*splitAccount, error) { return &splitAccount{st}, nil }, nil)},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			_, err := dohost.Call(ctx, splitAccounts.Get(h, "a"), (*splitAccount).Move, 30)
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			sum, err := dohost.Call(ctx, splitAccounts.Get(h, "a"), (*splitAccount).Sum, 0)
			if sum != 100 {
				err = errors.Join(err, fmt.Errorf("the account holds %d, want 100", sum))
			}
			return err
		},
		Pairs: 20,
	}
}

// TestReplayChildEveryPoint fails in the child of TestReplayLineRepeatsFailure, and is empty elsewhere.
func TestReplayChildEveryPoint(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		s := splitAccountScenario()
		s.Batched = os.Getenv(childEnv) == "batched"
		dohosttest.EveryPoint(t, s)
	}
}

var (
	replayLine = regexp.MustCompile(`replay: go test -run '(\S+)' \. (-dohosttest\.replay=)'(\S+)'`)
	headline   = regexp.MustCompile(`(?s)after a .*?replay: [^\n]*`)
)

// TestReplayLineRepeatsFailure runs the lines from failures, each alone, which must repeat the
// same failure, to the letter.
func TestReplayLineRepeatsFailure(t *testing.T) {
	for _, how := range []string{"each", "batched"} {
		out := child(t, how, "-test.run=^TestReplayChildEveryPoint$")
		failures := headline.FindAllString(out, -1)
		if len(failures) != 3 || !strings.Contains(out, "more failures: ") {
			t.Fatalf("%d failures in full:\n%s", len(failures), out)
		}
		for _, f := range failures {
			for _, want := range []string{"class split-account", "event ", "the account holds 70, want 100", "log:"} {
				if !strings.Contains(f, want) {
					t.Errorf("no %q in:\n%s", want, f)
				}
			}
			m := replayLine.FindStringSubmatch(f)
			if m == nil {
				t.Fatalf("no line in:\n%s", f)
			}
			again := child(t, how, "-test.run="+m[1], m[2]+m[3])
			if got := headline.FindAllString(again, -1); len(got) != 1 || got[0] != f {
				t.Errorf("want:\n%s\ngot:\n%s", f, again)
			}
		}
	}
	slow := regexp.MustCompile(`await 1\n +0s  split-account/a: incarnation 1, event 1 record, sync 1\n`)
	each := child(t, "each", "-test.run=^TestReplayChildEveryPoint$", "-dohosttest.replay=split-account/a:14:fence")
	batched := child(t, "each", "-test.run=^TestReplayChildEveryPoint$", "-dohosttest.replay=batched,split-account/a:14:fence@commit")
	if slow.MatchString(each) || !slow.MatchString(batched) {
		t.Errorf("the disk was not slow; at once:\n%s\nslow:\n%s", each, batched)
	}
	for line, want := range map[string]string{
		"split-account/a:999:fence@end": "there is no point 999 of split-account/a in this scenario",
		"split-account/a:9":             `"split-account/a:9": want class/name:point:ending@place`,
		"split-account/a:9:fence@end":   `(incarnation 1, event 1 record, durable 1) is no longer at the place "end"`,
		"split-account/a:9:fence@lunch": `"split-account/a:9:fence@lunch": dohost: chaos place "lunch": want some of [construct start`,
		"split-account/a:9:lunch":       `ending "lunch": want one of fence, crash, power-cut, kill`,
	} {
		if out := child(t, "each", "-test.run=^TestReplayChildEveryPoint$", "-dohosttest.replay="+line); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in:\n%s", line, want, out)
		}
	}
}

// child runs the test binary, which must fail, and returns its output.
func child(t *testing.T, how string, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+how)
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatalf("%v did not fail: %v\n%s", args, err, out)
	}
	return string(out)
}
