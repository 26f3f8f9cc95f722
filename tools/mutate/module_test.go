package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestMutationsOfTheModuleCompile compiles all mutations of the module together, and all but
// the constants, whose mutations have explicit types. The lines of a failure are those of the source.
func TestMutationsOfTheModuleCompile(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sites, module, err := load(root, mutated)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-gcflags=-e"}
	for _, pkg := range mutated {
		args = append(args, "./"+pkg)
	}
	untyped := slices.DeleteFunc(slices.Clone(sites), func(s *site) bool { return s.op == "constant" })
	for name, sites := range map[string][]*site{"all": sites, "constants are untyped": untyped} {
		t.Run(name, func(t *testing.T) {
			overlay, err := instrument(root, module, sites, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "go", slices.Insert(slices.Clone(args), 1, "-overlay="+overlay)...)
			cmd.Dir, cmd.Env = root, environment()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
