package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// wantSites are the mutations of testdata/sample.
const wantSites = `
say:drop:0
negated:negate:0
small:boundary:0
small:constant:0
sum:arithmetic:0
both:connective:0
stops:constant:0
stops:drop:0
stops:negate:0
stops:drop:1
inOrder:drop:0
inOrder:drop:1
inOrder:order:0
swapped:swap:0
swapped:constant:0
fails:error:0
bigger:constant:0
withError:negate:0
withError:error:0
withError:negate:2
withError:error:1
withError:negate:4
withError:error:2
withError:constant:3
withError:negate:6
locked:lock:0
T.set:negate:0
T.set:boundary:0
T.set:constant:0
T.set:constant:1
T.set:constant:2
`

// copySample copies testdata/sample, since the workspace of this repository does not have its module.
func copySample(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/sample")); err != nil {
		t.Fatal(err)
	}
	return root
}

func sampleSites(t *testing.T, root string) []*site {
	t.Helper()
	sites, module, err := load(root, []string{"."})
	if err != nil {
		t.Fatal(err)
	}
	if module != "example.com/sample" {
		t.Fatalf("the module is %q", module)
	}
	return sites
}

func names(sites []*site) []string {
	var list []string
	for _, s := range sites {
		list = append(list, strings.TrimPrefix(s.name, "sample.go:"))
	}
	return list
}

func TestMutationsChangeTheSample(t *testing.T) {
	root := copySample(t)
	sites := sampleSites(t, root)
	if got := names(sites); !slices.Equal(got, strings.Fields(wantSites)) {
		t.Errorf("mutations:\n%s\nwant:%s", strings.Join(got, "\n"), wantSites)
	}
	dir := t.TempDir()
	overlay, err := instrument(root, "example.com/sample", sites, dir)
	if err != nil {
		t.Fatal(err)
	}
	binary := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"test", "-c", "-vet=off", "-o", path}, args...), ".")...)
		cmd.Dir, cmd.Env = root, environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	observe := func(binary, id string, env ...string) string {
		observed := filepath.Join(t.TempDir(), "observed")
		cmd := exec.CommandContext(t.Context(), binary, "-test.timeout=1m")
		cmd.Dir, cmd.Env = root, environment(append(env, "OBSERVED="+observed, "DOHOST_MUTANT="+id)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "it fails: " + string(out)
		}
		text, err := os.ReadFile(observed)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := observe(binary("source.test"), "0")
	mutated := binary("mutated.test", "-overlay="+overlay)
	reached := filepath.Join(dir, "reached")
	if got := observe(mutated, "0", "DOHOST_MUTANT_REACHED="+reached); got != want {
		t.Errorf("without a mutation:\n%s\nwant:\n%s", got, want)
	}
	for i, s := range sites {
		if got := observe(mutated, strconv.Itoa(i+1)); got == want {
			t.Errorf("%s changes nothing", s.name)
		}
	}
	ids, err := os.ReadFile(reached)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(ids)); len(got) != len(sites) {
		t.Errorf("%d of %d mutations were reached, once: %v", len(got), len(sites), got)
	}
}

// A name and a hash stay the same after a change of another function.
func TestMutationNamesAreStable(t *testing.T) {
	root := copySample(t)
	before := sampleSites(t, root)
	file := filepath.Join(root, "sample.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const function = "func small(n int) bool {\n"
	changed := strings.Replace(string(text), function, function+"\tsay(\"more\")\n", 1)
	if err := os.WriteFile(file, []byte(changed), 0o666); err != nil {
		t.Fatal(err)
	}
	after := sampleSites(t, root)
	after = slices.DeleteFunc(after, func(s *site) bool { return strings.Contains(s.name, ":small:drop:") })
	if !slices.Equal(names(before), names(after)) {
		t.Fatalf("%v, want %v", names(after), names(before))
	}
	for i, s := range after {
		if same, want := s.hash == before[i].hash, !strings.Contains(s.name, ":small:"); same != want {
			t.Errorf("%s: the hash is the same: %v, want %v", s.name, same, want)
		}
	}
}

func TestDrawTakesEachPackageInProportion(t *testing.T) {
	var sites []*site
	for i := range 1000 {
		pkg := "large"
		if i%10 == 0 {
			pkg = "small"
		}
		sites = append(sites, &site{name: strconv.Itoa(i), pkg: pkg})
	}
	seen := map[*site]bool{}
	for seed := range uint64(400) {
		some, small := draw(sites, 50, seed), 0
		if again := draw(sites, 50, seed); !slices.Equal(some, again) {
			t.Fatalf("seed %d draws two samples", seed)
		}
		for _, s := range some {
			seen[s] = true
			if s.pkg == "small" {
				small++
			}
		}
		if len(some) != 50 || small != 5 {
			t.Fatalf("seed %d draws %d, %d of the small package; want 50 and 5", seed, len(some), small)
		}
	}
	if len(seen) != len(sites) {
		t.Errorf("%d of %d were drawn", len(seen), len(sites))
	}
}

// TestDrawKeepsMostOfASample draws a larger sample, and a sample after a change of the sources.
func TestDrawKeepsMostOfASample(t *testing.T) {
	var sites []*site
	for i := range 1000 {
		sites = append(sites, &site{name: strconv.Itoa(i), pkg: strconv.Itoa(i % 7)})
	}
	some := draw(sites, 100, 1)
	for what, others := range map[string][]*site{
		"a larger sample":   draw(sites, 150, 1),
		"10 sites are gone": draw(sites[10:], 100, 1),
	} {
		same := 0
		for _, s := range some {
			if slices.Contains(others, s) {
				same++
			}
		}
		if same < 90 {
			t.Errorf("%s: %d of %d are the same", what, same, len(some))
		}
	}
}

func TestEquivalentsNameMutations(t *testing.T) {
	sites := []*site{{name: "a.go:f:drop:0"}}
	got, err := equivalents("# why\n\na.go:f:drop:0 it is a hint\n", sites)
	if err != nil || got["a.go:f:drop:0"] != "it is a hint" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"a.go:f:drop:0", "a.go:f:drop:1 gone"} {
		if _, err := equivalents(text, sites); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestNameOfFailedTest(t *testing.T) {
	exit := errors.New("exit status 3")
	for output, want := range map[string]string{
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n        x.go:1: no\n--- FAIL: TestC (0s)\nFAIL\n": "TestA/b",
		"panic: test timed out after 1m30s\n\trunning tests:\n":                                                    "panic: test timed out after 1m30s",
		"fatal error: all goroutines are asleep - deadlock!\n\ngoroutine 1":                                        "fatal error: all goroutines are asleep - deadlock!",
		"": "exit status 3",
	} {
		if got := failedTest(output, exit); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestCacheContinues(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cache")
	for i, s := range []*site{{name: "a", hash: "1"}, {name: "a", hash: "2"}} {
		c, err := openCache(name, false)
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := c.get(s); ok {
			t.Errorf("%d: %v before it was tried", i, r)
		}
		if err := c.put(result{Name: s.name, Hash: s.hash, Verdict: survived}); err != nil {
			t.Error(err)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
	c, err := openCache(name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for _, hash := range []string{"1", "2"} {
		if r, ok := c.get(&site{name: "a", hash: hash}); !ok || r.Verdict != survived {
			t.Errorf("hash %s: %v, %v", hash, r, ok)
		}
	}
}

func TestCacheWithAgainHasNoSurvivors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "cache")
	sites := []*site{{name: "a", hash: "1"}, {name: "b", hash: "2"}}
	for _, again := range []bool{false, true} {
		c, err := openCache(name, again)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if !again {
			for i, test := range []string{"", "TestB"} {
				if err := c.put(result{Name: sites[i].name, Hash: sites[i].hash, Test: test}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, s := range sites {
			if _, ok := c.get(s); ok == (again && i == 0) {
				t.Errorf("again %t: mutation %s is known: %t", again, s.name, ok)
			}
		}
	}
}

func TestForEachEndsAtAnError(t *testing.T) {
	failure := errors.New("failure")
	for workers := 1; workers <= 3; workers++ {
		var calls atomic.Int32
		err := forEach(t.Context(), 1000, workers, func(ctx context.Context, i int) error {
			calls.Add(1)
			if i == 2 {
				return failure
			}
			if i > 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		if n := int(calls.Load()); err != failure || n < 3 || n > 3+workers {
			t.Errorf("%d workers: %v after %d calls", workers, err, n)
		}
	}
}

// TestRunnerFindsMutations tries all mutations of the sample with a test that finds some.
func TestRunnerFindsMutations(t *testing.T) {
	root := copySample(t)
	const tests = `package sample

import "testing"

func TestSmall(t *testing.T) { EveryPoint(t, 3) }

func EveryPoint(t *testing.T, n int) {
	say("no test reads this")
	if small(n) {
		t.Error("small")
	}
}

func TestSum(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		if sum(1, 0) != 1 || sum(1, 2) != 3 {
			t.Error("no sum")
		}
	})
}

func TestAllocations(t *testing.T) {
	say("a test that fails without a mutation")
	t.Error("it counts allocations")
}
`
	if err := os.WriteFile(filepath.Join(root, "sample_test.go"), []byte(tests), 0o666); err != nil {
		t.Fatal(err)
	}
	sites, dir := sampleSites(t, root), t.TempDir()
	overlay, err := instrument(root, "example.com/sample", sites, dir)
	if err != nil {
		t.Fatal(err)
	}
	packages, err := testPackages(root, []string{"example.com/sample"})
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{root: root, dir: dir, overlay: overlay, limit: time.Minute, tests: packages}
	results := make([]result, len(sites))
	err = forEach(t.Context(), len(sites), 3, func(ctx context.Context, i int) (err error) {
		results[i], err = r.try(ctx, i+1, sites[i], "example.com/sample")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, res := range results {
		if res.Verdict != unreached {
			got = append(got, strings.TrimPrefix(res.Name, "sample.go:")+" "+res.Verdict+" "+res.Test)
		}
	}
	want := []string{
		"say:drop:0 survived ",
		"small:boundary:0 scenario example.com/sample TestSmall",
		"small:constant:0 scenario example.com/sample TestSmall",
		"sum:arithmetic:0 test example.com/sample TestSum/part",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
