package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verdicts.
const (
	byScenario = "scenario" // a scenario found the mutation
	byTest     = "test"     // only another test did
	survived   = "survived"
	unreached  = "unreached" // no test reached it
)

// result is the verdict on a mutation.
type result struct {
	Name    string  `json:"name"`
	Hash    string  `json:"hash"` // of the function's text
	Verdict string  `json:"verdict"`
	Test    string  `json:"test,omitempty"` // which found it
	Seconds float64 `json:"seconds"`
}

// runner runs tests with mutations.
type runner struct {
	root, dir, overlay string
	limit              time.Duration // of a run of a binary, at least
	tests              []*testPackage
}

// plan is the tests of a package that reach a mutation.
type plan struct {
	*testPackage
	scenario bool // the tests are scenarios
	names    []string
	took     time.Duration // in the baseline
}

// try runs the tests until one finds mutation id: the scenarios, then the other tests; those of
// the mutation's package first, then the quick ones.
func (r *runner) try(ctx context.Context, id int, s *site, path string) (result, error) {
	begun := time.Now()
	res := result{Name: s.name, Hash: s.hash, Verdict: unreached}
	for _, scenario := range []bool{true, false} {
		for _, own := range []bool{true, false} {
			plans, err := r.plans(ctx, id, scenario, func(p *testPackage) bool { return own == (p.path == path) })
			if err != nil {
				return res, err
			}
			for _, p := range plans {
				failed, err := r.run(ctx, p, max(r.limit, 4*p.took), "DOHOST_MUTANT="+strconv.Itoa(id))
				if err != nil {
					return res, err
				}
				res.Verdict, res.Seconds = survived, time.Since(begun).Seconds()
				if failed == "" {
					continue
				}
				res.Verdict, res.Test = byTest, p.path+" "+failed
				if scenario {
					res.Verdict = byScenario
				}
				return res, nil
			}
		}
	}
	return res, nil
}

// plans returns the scenarios, or the other tests, that reach mutation id in some packages.
func (r *runner) plans(ctx context.Context, id int, scenario bool, in func(*testPackage) bool) ([]plan, error) {
	var plans []plan
	for _, pkg := range r.tests {
		if !in(pkg) {
			continue
		}
		if err := r.baseline(ctx, pkg, scenario); err != nil {
			return nil, err
		}
		p := plan{testPackage: pkg, scenario: scenario}
		for _, t := range pkg.tests {
			if t.scenario == scenario && t.reached[id] {
				p.names, p.took = append(p.names, t.name), p.took+t.took
			}
		}
		if len(p.names) > 0 {
			plans = append(plans, p)
		}
	}
	slices.SortStableFunc(plans, func(a, b plan) int { return cmp.Compare(a.took, b.took) })
	return plans, nil
}

// build builds the tests of a package.
func (r *runner) build(ctx context.Context, p *testPackage) error {
	binary := filepath.Join(r.dir, strings.ReplaceAll(p.path, "/", "-")+".test")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay=" + r.overlay, "-o", binary, p.path}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = r.root, environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not compile: %w\n%s", p.path, err, out)
	}
	list := exec.CommandContext(ctx, binary, "-test.list=^(Test|Example|Fuzz)")
	list.Dir = p.dir
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("the tests of %s: %w", p.path, err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		p.tests = append(p.tests, &test{name: name, scenario: slices.Contains(p.scenarios, name)})
	}
	p.binary = binary
	return nil
}

// baseline runs the scenarios of a package, or its other tests, without a mutation, each alone and
// once. The scenarios must pass. Another test that fails is not used: it may count allocations, which
// the instrumentation changes.
func (r *runner) baseline(ctx context.Context, p *testPackage, scenario bool) error {
	if scenario && len(p.scenarios) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.binary == "" {
		if err := r.build(ctx, p); err != nil {
			return err
		}
	}
	var took time.Duration
	for _, t := range p.tests {
		if t.scenario != scenario || t.reached != nil {
			continue
		}
		list := p.binary + ".reached"
		if err := os.WriteFile(list, nil, 0o666); err != nil {
			return err
		}
		begun := time.Now()
		failed, err := r.run(ctx, plan{testPackage: p, scenario: scenario, names: []string{t.name}}, 10*time.Minute, "DOHOST_MUTANT_REACHED="+list)
		if err != nil {
			return err
		}
		if failed != "" && scenario {
			return fmt.Errorf("without a mutation, %s fails: %s", p.path, failed)
		}
		if failed != "" {
			fmt.Fprintf(os.Stderr, "%s fails without a mutation, and is not used: %s\n", p.path, failed)
			t.reached = map[int]bool{}
			continue
		}
		t.took = time.Since(begun)
		ids, err := os.ReadFile(list)
		t.reached = map[int]bool{}
		for id := range strings.FieldsSeq(string(ids)) {
			n, numErr := strconv.Atoi(id)
			t.reached[n], err = true, errors.Join(err, numErr)
		}
		if err != nil {
			return err
		}
		took += t.took
	}
	if took > 0 {
		fmt.Fprintf(os.Stderr, "%s passes without a mutation (%.0f s)\n", p.path, took.Seconds())
	}
	return nil
}

// run runs tests, and returns the one that fails, "" if none does.
func (r *runner) run(ctx context.Context, p plan, limit time.Duration, env string) (failed string, err error) {
	limited, cancel := context.WithTimeout(ctx, limit+15*time.Second)
	defer cancel()
	pattern := "-test.run=^(" + strings.Join(p.names, "|") + ")$"
	args := append([]string{pattern, "-test.failfast", "-test.timeout=" + limit.String()}, p.args...)
	if p.scenario {
		args = append(args, "-test.cpu=1")
	}
	cmd := exec.CommandContext(limited, p.binary, args...)
	// Go commands of the tests use the mutations. Vet cannot read a package of the overlay alone.
	cmd.Dir, cmd.Env = p.dir, environment(env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off -overlay="+r.overlay)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case cmd.ProcessState == nil: // it did not start
		return "", err
	case cmd.ProcessState.Success(): // even if this process was stopped until after the limit
		return "", nil
	}
	return failedTest(string(out), err), nil
}

var (
	failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	deadLine = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*$`)
)

// failedTest returns the first test that failed, with its subtest, or the reason of the end.
func failedTest(output string, err error) string {
	if reason := deadLine.FindString(output); reason != "" {
		return reason
	}
	name := ""
	for _, m := range failLine.FindAllStringSubmatch(output, -1) {
		if name != "" && !strings.HasPrefix(m[1], name+"/") {
			break
		}
		name = m[1]
	}
	if name == "" {
		return err.Error()
	}
	return name
}
