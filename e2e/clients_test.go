//go:build e2e

package e2e

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	update = flag.Bool("update", false, "rewrite the recordings in testdata")
	shots  = flag.String("shots", "", "folder for pictures of the pages")
)

// The number of cases, so that a missing one is noticed.
const (
	casesInNode    = 29
	casesInBrowser = 33
)

// runTime is the time limit for the cases of one generation and place.
const runTime = 2 * time.Minute

// TestClientsAsPublished runs the cases, and compares the frames with the recordings.
func TestClientsAsPublished(t *testing.T) {
	tool(t, "node")
	browser := tool(t, "chromium", "chromium-browser", "google-chrome")
	install(t)
	bin := buildServer(t)
	c := startChrome(t, browser)
	var mu sync.Mutex
	var recorded []recording
	t.Run("clients", func(t *testing.T) {
		for generation, version := range generations {
			t.Run(version+" in Node", func(t *testing.T) {
				t.Parallel()
				s := newSite(t, version+" in Node", bin, "js")
				runNode(t, s, generation)
				all := s.report(casesInNode)
				mu.Lock()
				defer mu.Unlock()
				recorded = append(recorded, all...)
			})
			t.Run(version+" in a browser", func(t *testing.T) {
				t.Parallel()
				s := newSite(t, version+" in a browser", bin, bundle(t, "page", generation))
				s.chrome, s.shots = c, *shots
				runPage(t, s, generation)
				all := s.report(casesInBrowser)
				mu.Lock()
				defer mu.Unlock()
				recorded = append(recorded, all...)
			})
		}
	})
	if !t.Failed() {
		compare(t, merge(recorded))
	}
}

func runNode(t *testing.T, s *site, generation string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "node"), "js/node.mjs", generation, s.host())
	cmd.WaitDelay = patience
	deadline := time.AfterFunc(runTime, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("node: %v\n%s", err, out)
	}
}

func runPage(t *testing.T, s *site, generation string) {
	t.Helper()
	p, err := s.chrome.open(s.page("?generation=" + generation))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close() //nolint:errcheck // the browser ends with the test
	s.set(func() { s.first = p })
	select {
	case <-s.done:
	case <-time.After(runTime):
		t.Error("the page does not come to an end")
	}
	s.set(func() { err = s.picture("cases") })
	if err != nil {
		t.Error(err)
	}
}

// compare compares the recordings, or rewrites them.
func compare(t *testing.T, got []recording) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(render(got)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := readGolden(t)
	for _, r := range got {
		if !slices.ContainsFunc(want, func(o recording) bool { return render(o) == render(r) }) {
			t.Errorf("%s, %s: not as in %s; -update rewrites it\n%s",
				r.Case, strings.Join(r.Clients, ", "), golden, render(r.Wire))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d recordings, want %d", len(got), len(want))
	}
}
