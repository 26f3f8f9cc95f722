// Mutants verifies that dohosttest finds bugs. Each patch in testdata breaks a promise of
// the module. A scenario of internal/simtest, or of another package, must find it when it is ended at every point,
// and not without an ending. A few patches break rules that plain tests guard.
//
// A patch begins with lines that describe the bug and name the scenario that must find it:
//
//	# The attempts of an alarm are counted in memory.
//	# scenario: ./internal/simtest ^TestScenarios$/^failing-alarms$
//
// A scenario is a package and a pattern for go test -run. The test has the flag -full. A line "# test:" with both names a plain
// test instead: it must fail with the patch, and pass without it. The
// program builds the package's test with the patch in an overlay, so that the sources do not change. It requires that
// the untouched run of a scenario passes, that some runs with an ending fail, that the replay line of the
// first failure fails in the same way, and that it passes without the patch.
//
// All mutations together take as long as the other checks. The checks of a commit try a
// sample: -sample draws some of them by -seed, and the program prints both numbers.
//
// It prints a table, and exits with 1 if a mutation does not apply, does not compile,
// survives, or is found by the untouched run already.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pattern := flag.String("run", "", "try the mutations whose names match this `regexp`; all if empty")
	builds := flag.Int("j", 2, "`builds` at a time")
	sample := flag.Int("sample", 0, "try so `many` of those, drawn by -seed; 0: all")
	seed := flag.Uint64("seed", 0, "the `number` that draws them")
	flag.Parse()
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	mutations, err := readMutations(root, wanted)
	if err != nil {
		return err
	}
	if all := len(mutations); *sample > 0 && *sample < all {
		mutations = randomSample(mutations, *sample, *seed)
		fmt.Printf("%d of %d mutations; -sample %d -seed %d\n", len(mutations), all, *sample, *seed)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &checker{root: root, dir: dir, builds: max(1, *builds)}
	if err := c.runBaseline(ctx, mutations); err != nil {
		return err
	}
	results := c.check(ctx, mutations)
	if err := printTable(os.Stdout, results); err != nil {
		return err
	}
	return summary(results)
}

// randomSample returns n mutations, in their order; the seed selects them.
func randomSample(all []*mutation, n int, seed uint64) []*mutation {
	some := make([]*mutation, 0, n)
	picks := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n]
	slices.Sort(picks)
	for _, i := range picks {
		some = append(some, all[i])
	}
	return some
}
