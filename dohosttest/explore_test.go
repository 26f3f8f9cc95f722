package dohosttest_test

import (
	"strings"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// TestExploreReturnsFailures explores an object with a bug: the test does not fail.
func TestExploreReturnsFailures(t *testing.T) {
	failures, summary := dohosttest.Explore(t, splitAccountScenario())
	if len(failures) == 0 || !strings.Contains(failures[0].Error(), "check: the account holds 70, want 100") ||
		!strings.Contains(failures[0].Error(), "replay: go test -run '^TestExploreReturnsFailures$' . -dohosttest.replay='split-account/a:") {
		t.Errorf("failures: %q", failures)
	}
	if !strings.Contains(summary, "100% of them tried") {
		t.Errorf("summary: %q", summary)
	}
}

// TestReplayIsARunOfItsOwn does the run of a failure again, and nothing else.
func TestReplayIsARunOfItsOwn(t *testing.T) {
	s := splitAccountScenario()
	failures, _ := dohosttest.Explore(t, s)
	if len(failures) == 0 {
		t.Fatal("no failures")
	}
	s.Replay = failures[0].Replay()
	again, summary := dohosttest.Explore(t, s)
	if len(again) != 1 || again[0].Error() != failures[0].Error() || summary != "" {
		t.Errorf("the replay of %q fails with %v, %q", s.Replay, again, summary)
	}
}

func TestFakeServiceReset(t *testing.T) {
	var s dohosttest.FakeService
	for range 2 {
		for range 2 {
			if err := s.Call(t.Context(), "a", ""); err != nil {
				t.Fatal(err)
			}
		}
		if s.Effects("a") != 2 || len(s.Keys()) != 1 || s.Requests("a") != 2 {
			t.Errorf("after two requests: %d effects, %d keys", s.Effects("a"), len(s.Keys()))
		}
		s.Reset()
	}
	if len(s.Keys()) != 0 || s.Total() != 0 {
		t.Errorf("after Reset: keys %q, %d effects", s.Keys(), s.Total())
	}
}
