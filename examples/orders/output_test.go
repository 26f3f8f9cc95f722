package orders_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite what has changed in testdata")

// TestOutput compares the output of go test with testdata, for the version with the bug
// and for the corrected one. docs/testing.md contains this output.
func TestOutput(t *testing.T) {
	failure := output(t, "failure.txt", "before", "go test -run Charged .")
	first, line, ok := strings.Cut(failure, "replay: ")
	if !ok {
		t.Fatal("the failure has no line that replays it")
	}
	line, _, _ = strings.Cut(line, "\n")
	replayed := output(t, "replay.txt", "before", line)
	if again, _, _ := strings.Cut(replayed, "replay: "); measured(again) != measured(first) {
		t.Errorf("the replay meets\n%s\nand not\n%s", again, first)
	}
	output(t, "corrected.txt", ".", "go test -v -run Charged .")
}

// output runs a shell command, and compares its output with a file.
func output(t *testing.T, file, dir, command string) string {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("%s: %v", command, err)
	}
	got := string(out)
	path := filepath.Join("testdata", file)
	want, err := os.ReadFile(path)
	if measured(got) == measured(string(want)) {
		return got
	}
	if *update {
		err = os.WriteFile(path, out, 0o644)
	} else {
		t.Errorf("%s: -update rewrites %s; it has\n%s\nand the command says\n%s", command, path, want, got)
	}
	if err != nil {
		t.Error(err)
	}
	return got
}

var realTime = regexp.MustCompile(`(?m)(; |\(|\t)(?:[0-9.hmµ]+s|\(cached\))(\)?)$`)

// measured returns the text without times of the real clock.
func measured(text string) string { return realTime.ReplaceAllString(text, "${1}some time$2") }
