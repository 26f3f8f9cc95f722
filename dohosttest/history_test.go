package dohosttest_test

import (
	"context"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// howHistories selects the test that a child of TestReplayLineRepeatsHistory runs.
const howHistories = "histories"

// TestReplayChildLinearizable fails in the child of TestReplayLineRepeatsHistory, and is empty
// elsewhere.
func TestReplayChildLinearizable(t *testing.T) {
	if os.Getenv(childEnv) != howHistories {
		return
	}
	dohosttest.Linearizable(t, dohosttest.Workload[int, int, int]{
		Classes: splitAccountScenario().Classes,
		Model: dohosttest.Model[int, int, int]{
			Init: func() int { return 0 },
			Step: func(s, in int) (int, int) {
				if in == 0 {
					return s, 100
				}
				return in, in
			},
		},
		Draw: func(r *rand.Rand) int { return r.IntN(3) },
		Do: func(ctx context.Context, h *dohosttest.Host, in int) (int, error) {
			if in == 0 {
				return dohost.Call(ctx, splitAccounts.Get(h, "a"), (*splitAccount).Sum, 0)
			}
			return dohost.Call(ctx, splitAccounts.Get(h, "a"), (*splitAccount).Move, in)
		},
	})
}

// TestReplayLineRepeatsHistory runs the line from a failure, which must repeat the history.
func TestReplayLineRepeatsHistory(t *testing.T) {
	const run = "-test.run=^TestReplayChildLinearizable$"
	history := regexp.MustCompile(`(?s)seed \d+: no order.*?picture: `)
	out := child(t, howHistories, run)
	m := replayLine.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no line in:\n%s", out)
	}
	again := child(t, howHistories, "-test.run="+m[1], m[2]+m[3])
	if got, want := history.FindString(again), history.FindString(out); got == "" || got != want {
		t.Errorf("want:\n%s\ngot:\n%s", want, got)
	}
	whole := child(t, howHistories, run, m[2]+"seed:0")
	if !strings.Contains(whole, "seed 0: no order") || !strings.Contains(whole, "replay: ") {
		t.Errorf("seed:0:\n%s", whole)
	}
	if got := child(t, howHistories, run, m[2]+"split-account/a:9:fence"); !strings.Contains(got, `"split-account/a:9:fence": want seed:number first`) {
		t.Errorf("a plan of EveryPoint:\n%s", got)
	}
	if got := child(t, "each", "-test.run=^TestReplayChildEveryPoint$", m[2]+"seed:0"); !strings.Contains(got, "want class/name:point:ending") {
		t.Errorf("a seed for EveryPoint:\n%s", got)
	}
}
