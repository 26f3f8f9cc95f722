package randtest

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// CheckSimulationShrinks checks the shortest work of a simulation that fails: see CheckShrunk. faults is the probability of a fault of
// the host before each act.
func CheckSimulationShrinks[W any](t *testing.T, p Programs[W], faults float64, name, file string) {
	t.Helper()
	for seed := range uint64(20) {
		w := p.Draw(rand.New(rand.NewPCG(seed, 2)), faults)
		s, _ := p.Scenario(w)
		_, err := (&dohosttest.Simulation{Scenario: s, Chance: p.Chance}).Try(t, seed)
		if f, ok := errors.AsType[*dohosttest.Failure](err); ok {
			CheckShrunk(t, p, p.Shrink(t, f, w), name, file)
			return
		}
	}
	t.Error("no simulation has failed")
}

// CheckShrunk checks the shortest work of a failure, which a fault of the model causes in programs: it fails in the same way when it is
// replayed, its source is that of testdata/NAME.golden, and it compiles at the end of a test file of this package.
func CheckShrunk[W any](t *testing.T, programs Programs[W], s Shrunk[W], name, file string) {
	t.Helper()
	at, err := json.Marshal(s.Work)
	if err != nil {
		t.Fatal(err)
	}
	var w W // as the flag -programs-replay has it
	if err := json.Unmarshal(at, &w); err != nil {
		t.Fatal(err)
	}
	scenario, _ := programs.Scenario(w)
	scenario.Replay = s.Failure.Replay()
	if again, _ := dohosttest.Explore(t, scenario); len(again) == 0 || !errors.Is(again[0], s.Failure.Unwrap()) {
		t.Errorf("the replay fails with %v; want: %v", again, s.Failure)
	}
	source := Source(programs.Name, s.Failure.Replay(), w)
	golden := filepath.Join("testdata", name+".golden")
	if want, err := os.ReadFile(golden); err != nil || source != string(want) {
		t.Errorf("%s differs (%v):\n%s", golden, err, s)
	}
	paste(t, file, source)
}

// paste adds a test to a copy of a test file, and checks that the package compiles with the copy.
func paste(t *testing.T, file, source string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copied, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{copied: append(append(text, '\n'), source...), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It compiles the test, and neither links it nor analyses its dependencies.
	if out, err := exec.CommandContext(t.Context(), "go", "list", "-test", "-export", "-overlay", overlay, ".").CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, source)
	}
}
