//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests build dohost from edited sources, which takes longer than all other tests of the package.

// edit is a change of a source file: new replaces old.
type edit struct{ file, old, new string }

// build builds the command from edited sources and returns its path. Each edit must apply exactly once.
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

// The demo's result is meaningful only if it changes when a guard is removed.
func TestDemoIsInexactWithoutItsGuards(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{
		"the fence": {
			{"runtime/incarnation.go", "	if !inc.dead.Load() {\n		return nil\n	}\n	return inc.why", "	return nil"},
			{"runtime/incarnation.go", "	if inc.dead.Load() {\n		if inc.batch.Dirty()", "	if false {\n		if inc.batch.Dirty()"},
			{"runtime/turn.go", "if inc := t.ev.incarnation; inc.dead.Load() {", "if inc := t.ev.incarnation; false {"},
			{"runtime/fence.go", "	inc.end()\n", ""},
			{"runtime/await.go", "err != nil || g.ev.outlived()", "err != nil"},
			{"objectstore/range.go", "s.r != r || s.epoch != r.owner || r.owner == Epoch{}", "s.r != r"},
		},
		"the merger's check": {
			{"examples/research/merger.go", "		if d.Step < next {", "		if d.Step < next && false {"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bin := build(t, edits...)
			// Without the fence about one run in five is exact by chance, and a few runs never end.
			for seed := 7; seed < 17; seed++ {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				cmd := exec.CommandContext(ctx, bin, "demo", "--chaos-seed", strconv.Itoa(seed))
				cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
				cmd.Dir, cmd.WaitDelay = t.TempDir(), 10*time.Second
				out, err := cmd.CombinedOutput()
				late := ctx.Err() != nil
				cancel()
				if err == nil || late {
					continue
				}
				if cmd.ProcessState.ExitCode() != 1 || !bytes.Contains(out, []byte("NOT exact")) ||
					!bytes.Contains(out, fmt.Appendf(nil, "Replay: dohost demo --chaos-seed %d", seed)) {
					t.Errorf("without %s: %v\n%s", name, err, out)
				}
				return
			}
			t.Errorf("without %s: 10 runs, and none was found inexact", name)
		})
	}
}

// fullWhile makes the store believe that the disk is full while a file exists.
var fullWhile = []edit{
	{"objectstore/space.go", "import (\n", "import (\n\t\"os\"\n"},
	{"objectstore/space.go", "	cause := g.flush()\n", "	cause := g.flush()\n	if _, err := os.Stat(os.Getenv(\"FULL\")); err == nil {\n		refusal = ErrNoSpace\n		g.refusal.Store(&refusal)\n		return\n	}\n"},
}

func TestDemoReportsFullDiskAndContinues(t *testing.T) {
	t.Parallel()
	bin, data, full := build(t, fullWhile...), filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "full")
	s := startDemo(t, bin, []string{"FULL=" + full}, "--dir", longText(t), "--data", data, "--kills", "0")
	s.until(`steps \d`)
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const says = "The store in %/store refuses writes, because the disk is almost full; free some space, and the run continues"
	want := strings.ReplaceAll(says, "%", data)
	s.until("(?m)^" + regexp.QuoteMeta(want) + "$")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	out, err := s.end()
	if err != nil || !strings.Contains(out, "agree to the last one") || strings.Count(out, want) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, status := runDemoWith(t, []string{"FULL=" + full}, bin, "--data", data); status != 1 || !strings.Contains(out, "The store in "+data+"/store refuses writes, because the disk is almost full: ") {
		t.Errorf("full from the beginning: status %d\n%s", status, out)
	}
}

// TestSimFindsMissingFence removes the fence from the hand-over. The simulation must fail, and its replay
// line must reproduce the failure.
func TestSimFindsMissingFence(t *testing.T) {
	t.Parallel()
	bin := build(t,
		edit{"objectstore/range.go", "s.r != r || s.epoch != r.owner || r.owner == Epoch{}", "s.r != r"},
		edit{"runtime/incarnation.go", "PlaceCommit)\n\tif inc.dead.Load() {", "PlaceCommit)\n\tif false {"})
	out, err := exec.Command(bin, "sim", "--seed", "1", "--runs", "400").CombinedOutput()
	m := regexp.MustCompile(`(?s)\n(\S+: seed \d+: .*)\nreplay: dohost (sim [^\n]*)\n$`).FindSubmatch(out)
	if err == nil || m == nil {
		t.Fatalf("not found: %v\n%s", err, out)
	}
	again, err := exec.Command(bin, strings.Fields(string(m[2]))...).CombinedOutput()
	if err == nil || !strings.HasSuffix(string(again), string(m[0])) {
		t.Errorf("%v; want\n%s\ngot\n%s", err, m[0], again)
	}
}
