package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestSimFindsWhatAFenceIsFor takes the fence out of the hand-over. The simulation must
// notice, and its replay line must tell the same again.
func TestSimFindsWhatAFenceIsFor(t *testing.T) {
	t.Parallel()
	bin := build(t,
		edit{"objectstore/range.go", "s.r != r || s.epoch != r.owner || r.owner == Epoch{}", "s.r != r"},
		edit{"runtime/life.go", "PlaceHandOver)\n\tif l.dead.Load() {", "PlaceHandOver)\n\tif false {"})
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
