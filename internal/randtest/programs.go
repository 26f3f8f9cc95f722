package randtest

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// Programs are the random programs of a package, a generator. W is the work of a run: a value with exported fields only, which has the
// acts of some callers, their programs, and faults of the host.
type Programs[W any] struct {
	// Name is the name of the generator: the variable with its tests is NAMETests, in NAME_test.go.
	Name string
	// Draw draws the work of a simulation, with faults of this probability before each act.
	Draw func(r *rand.Rand, faults float64) W
	// DrawFew draws a little work, for runs that end at every point.
	DrawFew func(r *rand.Rand) W
	// FirstFew is the seed of the first of them.
	FirstFew uint64
	// Scenario returns a scenario that does the work, and its report.
	Scenario func(W) (dohosttest.Scenario, *Report)
	// Shorter returns the forms of the work with less to do.
	Shorter func(W) iter.Seq[W]
	// Chance is the probability of an ending at a point of a simulation: see [dohosttest.Simulation].
	Chance float64
}

// Shrunk is the shortest work that fails like another one.
type Shrunk[W any] struct {
	Work    W
	Failure *dohosttest.Failure
	name    string // of the programs
	test    string
}

// Shrink shortens the work of a failure, within the bounds of [dohosttest.Shrink]: 2,000 runs in three minutes. It removes callers,
// faults, acts and instructions as long as the shorter work fails in the same way.
func (p Programs[W]) Shrink(t *testing.T, f *dohosttest.Failure, w W) Shrunk[W] {
	w, f = dohosttest.Shrink(t, f, w, func(w W) dohosttest.Scenario {
		s, _ := p.Scenario(w)
		return s
	}, p.Shorter)
	test, _, _ := strings.Cut(t.Name(), "/")
	return Shrunk[W]{w, f, p.Name, test}
}

// String returns the failure, a line that replays it, and the source of a test that does the same.
func (s Shrunk[W]) String() string {
	return fmt.Sprintf("The shortest program that fails in this way: %s\nreplay: %s\nThe same as a test, for %s_test.go:\n\n%s",
		s.Failure.Text(), s.Line(), s.name, Source(s.name, s.Failure.Replay(), s.Work))
}

// Line returns a command that replays the failure.
func (s Shrunk[W]) Line() string {
	work, err := json.Marshal(s.Work)
	if err != nil {
		panic(err)
	}
	line := fmt.Sprintf("go test -run '^%s$' . -programs-replay='%s'", s.test, strings.ReplaceAll(string(work), "'", `\u0027`))
	if at := s.Failure.Replay(); at != "" {
		line += fmt.Sprintf(" -dohosttest.replay='%s'", at)
	}
	return line
}
