package lifecycletest

import (
	"os"
	"strings"
	"testing"
)

// Transition is a transition from one state to another, by their names.
type Transition struct{ From, To string }

// Drawn returns the transitions in the diagram of a Go source file. Each line of a diagram is a path in a comment:
// "//\ta ── why ──▶ b ── why ──▶ c" has two transitions. The test fails if the file has no diagram.
func Drawn(tb testing.TB, file string) map[Transition]bool {
	tb.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	drawn := map[Transition]bool{}
	for line := range strings.Lines(string(source)) {
		path, ok := strings.CutPrefix(line, "//\t")
		if !ok {
			continue
		}
		steps := strings.Split(path, " ──▶ ")
		for i := range steps[1:] {
			drawn[Transition{strings.Fields(steps[i])[0], strings.Fields(steps[i+1])[0]}] = true
		}
	}
	if len(drawn) == 0 {
		tb.Fatalf("%s has no diagram", file)
	}
	return drawn
}
