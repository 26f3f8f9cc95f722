package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// checker tries mutations.
type checker struct {
	root     string            // of the module
	dir      string            // for the builds
	builds   int               // in parallel
	baseline map[string]string // the tests without a mutation, by package
}

// trialResult is the result of a mutation and a scenario.
type trialResult struct {
	m     *mutation
	s     scenario
	found int     // failed runs with an ending, or failed plain tests
	first finding // the first of them
	took  time.Duration
	err   error // why the mutation proves nothing
}

// runBaseline builds the tests without any mutation and runs the scenarios, which must pass.
func (c *checker) runBaseline(ctx context.Context, ms []*mutation) error {
	patterns := map[scenario][]string{} // by package and kind
	for _, m := range ms {
		for _, s := range m.scenarios {
			of := scenario{pkg: s.pkg, plain: s.plain}
			if !slices.Contains(patterns[of], s.run) {
				patterns[of] = append(patterns[of], s.run)
			}
		}
	}
	c.baseline = map[string]string{}
	for all, runs := range patterns {
		if c.baseline[all.pkg] == "" {
			binary, err := c.begin(ctx, nil, all.pkg).wait()
			if err != nil {
				return fmt.Errorf("without a mutation: %w", err)
			}
			c.baseline[all.pkg] = binary
		}
		for _, all.run = range runs { // one at a time: each has the limit of a test
			output, passed, err := c.runTest(ctx, c.baseline[all.pkg], all.pkg, all.args()...)
			if err == nil && !passed {
				err = errors.New(tail(output))
			}
			if err != nil {
				return fmt.Errorf("without a mutation, %s of %s fails: %w", all.run, all.pkg, err)
			}
		}
	}
	return nil
}

// trial is a mutation and one of its scenarios.
type trial struct {
	m *mutation
	s scenario
	b *build // nil until it starts
}

// check tries all mutations. It builds the next ones while it tries one.
func (c *checker) check(ctx context.Context, ms []*mutation) []trialResult {
	var trials []*trial
	for _, m := range ms {
		for _, s := range m.scenarios {
			trials = append(trials, &trial{m: m, s: s})
		}
	}
	var results []trialResult
	for i, t := range trials {
		for _, next := range trials[i:min(i+c.builds, len(trials))] {
			if next.b == nil {
				next.b = c.begin(ctx, next.m, next.s.pkg)
			}
		}
		begun := time.Now()
		v := trialResult{m: t.m, s: t.s}
		binary, err := t.b.wait()
		if err == nil {
			err = c.try(ctx, binary, &v)
		}
		v.err, v.took = err, time.Since(begun)
		results = append(results, v)
		logResult(&v)
	}
	return results
}

// try runs the scenario with the mutation.
func (c *checker) try(ctx context.Context, binary string, v *trialResult) error {
	output, passed, err := c.runTest(ctx, binary, v.s.pkg, v.s.args()...)
	if err != nil {
		return err
	}
	if passed {
		return errors.New("it survives")
	}
	if v.s.plain {
		return v.takeFailures(output)
	}
	f := parseFindings(output)
	if f.withoutEnding != "" {
		return fmt.Errorf("it is found without an ending, which proves nothing: %s", f.withoutEnding)
	}
	first, ok := f.first()
	if !ok {
		return fmt.Errorf("no failure is of an error at an ended point:\n%s", tail(output))
	}
	v.found, v.first = f.count(), first
	if err := c.runSlowDisk(ctx, binary, v.s); err != nil {
		return err
	}
	return c.replay(ctx, binary, v)
}

// runSlowDisk requires the untouched run to pass on a slow disk too, which EveryPoint tries last:
// a replay without endings.
func (c *checker) runSlowDisk(ctx context.Context, binary string, s scenario) error {
	output, passed, err := c.runTest(ctx, binary, s.pkg, "-test.run="+s.run, "-dohosttest.replay=batched")
	if err == nil && !passed {
		err = fmt.Errorf("it is found without an ending, on a slow disk, which proves nothing:\n%s", tail(output))
	}
	return err
}

// replay runs the replay line of the first failure, with the mutation and without.
func (c *checker) replay(ctx context.Context, binary string, v *trialResult) error {
	args := []string{"-test.run=" + v.first.run, "-dohosttest.replay=" + v.first.plan}
	output, passed, err := c.runTest(ctx, binary, v.s.pkg, args...)
	if err != nil {
		return fmt.Errorf("its replay: %w", err)
	}
	if passed {
		return errors.New("its replay passes")
	}
	if again, ok := parseFindings(output).first(); !ok || !same(again, v.first) {
		return fmt.Errorf("its replay fails in another way: %q, not %q", again.err, v.first.err)
	}
	// A mutation may add or remove points, so a point's number may mean another place
	// without the mutation.
	args[1] = "-dohosttest.replay=" + place.ReplaceAllString(v.first.plan, "")
	output, passed, err = c.runTest(ctx, c.baseline[v.s.pkg], v.s.pkg, args...)
	if err != nil {
		return fmt.Errorf("its replay without the mutation: %w", err)
	}
	if !passed && !strings.Contains(output, "-dohosttest.replay: there is no point ") {
		return fmt.Errorf("its replay fails without the mutation:\n%s", tail(output))
	}
	return nil
}

// place is the part of a plan that names the place of a point.
var place = regexp.MustCompile(`@[a-z]+`)
