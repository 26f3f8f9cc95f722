package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const output = `--- FAIL: TestScenarios (0.00s)
    --- FAIL: TestScenarios/cancel (1.41s)
        simtest_test.go:25: after a power cut at the place "sync" of class a, event record (a/b point 9 (incarnation 1, event 1 record, sync 1))
            and another, in the recovery from that: a fence at the place "end" of class a, event set (a/b point 17 (incarnation 2, event 1 set, end 1))
            check: it is lost
            and so is that
            log:
                    0s  a/b: incarnation 1, event 0 constructor, construct 1
            replay: go test -run '^TestScenarios$/^cancel$' . -dohosttest.replay='batched,a/b:9:power-cut,a/b:17:fence'
        simtest_test.go:25: 5 more failures: 3 at committed, 2 at sync
        simtest_test.go:25: 66 points of 1 objects, 100% of them tried; 2.107s
FAIL
`

func TestParseFindings(t *testing.T) {
	f := parseFindings(output)
	want := finding{
		where: `after a power cut at the place "sync" of class a, event record (a/b point 9 (incarnation 1, event 1 record, sync 1)); ` +
			`and another, in the recovery from that: a fence at the place "end" of class a, event set (a/b point 17 (incarnation 2, event 1 set, end 1))`,
		err:    "check: it is lost\nand so is that",
		run:    "^TestScenarios$/^cancel$",
		plan:   "batched,a/b:9:power-cut,a/b:17:fence",
		replay: "go test -run '^TestScenarios$/^cancel$' . -dohosttest.replay='batched,a/b:9:power-cut,a/b:17:fence'",
	}
	if got, ok := f.first(); !ok || got != want {
		t.Errorf("the first is\n%+v, want\n%+v", got, want)
	}
	if f.count() != 6 || f.withoutEnding != "" {
		t.Errorf("%d points, untouched %q", f.count(), f.withoutEnding)
	}
}

func TestParseFindingsOfUntouchedRun(t *testing.T) {
	f := parseFindings("        simtest_test.go:25: the undisturbed run fails: check: no\n            log:\n")
	if f.withoutEnding == "" || f.count() != 0 {
		t.Errorf("untouched %q, %d points", f.withoutEnding, f.count())
	}
}

func TestParseMutation(t *testing.T) {
	const diff = "--- a/x/y.go\n+++ b/x/y.go\n@@ -1 +1 @@\n-a\n+b\n"
	m, err := parseMutation("# One thing\n# is wrong.\n# scenario: ./z ^T$/^u$\n# test: ./z ^V$\n\n" + diff)
	want := &mutation{what: "One thing is wrong.", scenarios: []scenario{{"./z", "^T$/^u$", false}, {"./z", "^V$", true}}, files: []string{"x/y.go"}}
	if err != nil || !reflect.DeepEqual(m, want) {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	for text, why := range map[string]string{
		"# scenario: ./z T\n" + diff:                "what is wrong",
		"# wrong\n" + diff:                          "names the scenario",
		"# wrong\n# scenario: ./z T\n":              "changes nothing",
		"# wrong\n# scenario: T\n" + diff:           "want a package",
		"# wrong\n# test: T\n" + diff:               "want a package",
		"# wrong\n# scenario: z T\n" + diff:         "want a package",
		"# wrong\n# scenario: ./z T -full\n" + diff: "want a package",
	} {
		if _, err := parseMutation(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want an error with %q", text, err, why)
		}
	}
}

// TestFailuresOfPlainTest reads the output of two failed tests, and of a process that ended before any of its tests.
func TestFailuresOfPlainTest(t *testing.T) {
	v := &trialResult{s: scenario{"./z", "^TestA", true}}
	err := v.takeFailures("--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\n        a_test.go:25: got 1\n        a_test.go:26: and 2\n--- FAIL: TestAB (0.00s)\nFAIL\n")
	want := finding{where: "TestA", err: "got 1", replay: "go test -run '^TestA' ."}
	if err != nil || v.found != 2 || v.first != want {
		t.Errorf("%d failures, the first %+v, %v", v.found, v.first, err)
	}
	if err := v.takeFailures("panic: in init\n"); err == nil {
		t.Error("a process that ran no test has found a mutation")
	}
}

// TestMutationsApply is the first test to look at when the sources have changed.
func TestMutationsApply(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	ms, err := readMutations(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{root: root, dir: t.TempDir()}
	for _, m := range ms {
		dir := filepath.Join(c.dir, m.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := c.overlay(t.Context(), m, dir); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// A few hundred seeds draw every mutation, and each seed draws the requested number.
func TestMutationsSampleIsDrawnFromSeed(t *testing.T) {
	var all []*mutation
	for range 50 {
		all = append(all, &mutation{})
	}
	seen := map[*mutation]bool{}
	for seed := range uint64(200) {
		some := randomSample(all, 15, seed)
		if again := randomSample(all, 15, seed); len(some) != 15 || !slices.Equal(some, again) {
			t.Fatalf("seed %d draws %d", seed, len(some))
		}
		for _, m := range some {
			seen[m] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d were drawn", len(seen), len(all))
	}
}
