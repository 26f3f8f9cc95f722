package randtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dohost/dohost/dohosttest"
)

// CheckSimulationShrinks checks the shortest work of a simulation that fails: see CheckShrunk. faults is the probability of a fault of
// the host before each act.
func CheckSimulationShrinks[W any](t *testing.T, p Programs[W], faults float64, name string) {
	t.Helper()
	for seed := range uint64(20) {
		w := p.Draw(rand.New(rand.NewPCG(seed, 2)), faults)
		s, _ := p.Scenario(w)
		_, err := (&dohosttest.Simulation{Scenario: s, Chance: p.Chance}).Try(t, seed)
		if f, ok := errors.AsType[*dohosttest.Failure](err); ok {
			CheckShrunk(t, p, p.Shrink(t, f, w), name)
			return
		}
	}
	t.Error("no simulation has failed")
}

// CheckShrunk checks the shortest work of a failure, which a fault of the model causes in programs: it fails in the same way when it is
// replayed, and its source is that of testdata/NAME.golden, which CheckSourcesCompile compiles.
func CheckShrunk[W any](t *testing.T, programs Programs[W], s Shrunk[W], name string) {
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
}

// CheckSourcesCompile checks that the sources of shortest works compile, each at the end of a copy of the test file of its generator: of
// testdata/NAME/*.golden, in NAME_test.go.
func CheckSourcesCompile(t *testing.T, names ...string) {
	t.Helper()
	dir, replaced, compiled := t.TempDir(), map[string]string{}, 0
	for _, name := range names {
		file := name + "_test.go"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		goldens, err := filepath.Glob(filepath.Join("testdata", name, "*.golden"))
		if err != nil || len(goldens) == 0 {
			t.Fatalf("no golden of %s: %v", name, err)
		}
		for _, golden := range goldens {
			source, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			compiled++
			unique := fmt.Sprintf("func TestShrunkProgram%d(", compiled)
			text = append(append(text, '\n'), bytes.Replace(source, []byte("func TestShrunkProgram("), []byte(unique), 1)...)
		}
		original, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replaced[original] = filepath.Join(dir, file)
		if err := os.WriteFile(replaced[original], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	// It compiles the tests, and neither links them nor analyses their dependencies.
	if out, err := exec.CommandContext(t.Context(), "go", "list", "-test", "-export", "-overlay", overlay, ".").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%d sources compile", compiled)
}
