package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// runDemo runs the demo in an empty directory and returns its output and status.
func runDemo(t *testing.T, bin string, args ...string) (out string, status int) {
	t.Helper()
	return runDemoWith(t, nil, bin, args...)
}

func runDemoWith(t *testing.T, env []string, bin string, args ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command(bin, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text), 0
}

func TestDemoIsExactAndAccountsForEveryPlace(t *testing.T) {
	t.Parallel()
	// At this chance the rarest place, the delivery of an alarm, ends some 16 incarnations: a run
	// without one has a probability of about one in ten million. The schedule of goroutines
	// decides which visits the seed's draws fall on, so that the seed alone promises nothing.
	out, status := runDemo(t, dohostProgram(t), "--chaos-seed", "7", "--chaos-evict", "0.008", "--kills", "2")
	if status != 0 || !strings.Contains(out, "agree to the last one") {
		t.Fatalf("status %d\n%s", status, out)
	}
	places := regexp.MustCompile(`(?m)^ +evictions by place +(.*)$`).FindStringSubmatch(out)
	for _, p := range dohost.Places() {
		// The demo has no effect outside.
		if places == nil || strings.Contains(places[1], p.String()+" ") != (p.String() != "effect") {
			t.Errorf("evictions at %s: %v\n%s", p, places, out)
		}
	}
	if !strings.Contains(out, "2; from each to the next step: ") {
		t.Errorf("no two kills:\n%s", out)
	}
}
