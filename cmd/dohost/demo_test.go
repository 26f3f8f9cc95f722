package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dohost/dohost/eviction"
)

// edit takes a line of a source file out, or changes it.
type edit struct{ file, old, new string }

// build builds the command from sources with some edits, which must apply exactly
// once, and returns its path.
func build(t *testing.T, edits ...edit) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		from := path
		if edited := replace[path]; edited != "" {
			from = edited
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			t.Fatalf("%s has %d times %q, want 1: bring the edit up to date", e.file, n, e.old)
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "dohost")
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", bin, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// runDemo runs the demo in an empty directory and returns what it prints and its status.
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
	out, status := runDemo(t, build(t), "--chaos-seed", "7", "--kills", "2")
	if status != 0 || !strings.Contains(out, "agree to the last one") {
		t.Fatalf("status %d\n%s", status, out)
	}
	places := regexp.MustCompile(`(?m)^ +evictions by place +(.*)$`).FindStringSubmatch(out)
	for _, p := range eviction.Places() {
		// The demo has no effect outside.
		if places == nil || strings.Contains(places[1], string(p)+" ") != (p != eviction.Effect) {
			t.Errorf("evictions at %s: %v\n%s", p, places, out)
		}
	}
	if !strings.Contains(out, "2; from each to the next step: ") {
		t.Errorf("no two kills:\n%s", out)
	}
}

// What the demo says is worth something only if it would say something else when the
// guards are taken out.
func TestDemoIsInexactWithoutItsGuards(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{
		"the fence": {
			{"runtime/life.go", "	if !l.dead.Load() {\n		return nil\n	}\n	return l.why", "	return nil"},
			{"runtime/life.go", "	if l.dead.Load() {\n		if l.segment.Dirty()", "	if false {\n		if l.segment.Dirty()"},
			{"runtime/turn.go", "if l := t.ev.life; l.dead.Load() {", "if l := t.ev.life; false {"},
			{"runtime/fence.go", "	l.end()\n", ""},
			{"runtime/await.go", "err != nil || g.ev.life.dead.Load()", "err != nil"},
			{"objectstore/range.go", "s.r != r || s.epoch != r.owner || r.owner == Epoch{}", "s.r != r"},
		},
		"the merger's check": {
			{"examples/research/merger.go", "		if d.Step < next {", "		if d.Step < next && false {"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := build(t, edits...)
			out, status := runDemo(t, bin, "--chaos-seed", "7")
			if status != 1 || !strings.Contains(out, "NOT exact") || !strings.Contains(out, "Replay: dohost demo --chaos-seed 7") {
				t.Errorf("without %s: status %d\n%s", name, status, out)
			}
		})
	}
}
