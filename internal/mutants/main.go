// Mutants shows that dohosttest finds bugs. Each patch in testdata breaks a promise of
// the module in a way that no test notices in which nothing ends; a scenario of
// internal/simtest, or of a package of its own, run to its end at every point, must find it.
//
// A patch begins with lines that say what is wrong, and what is to find it:
//
//	# The attempts of an alarm are counted in memory.
//	# scenario: ./internal/simtest ^TestScenarios$/^failing-alarms$
//
// That is a package, and a pattern for go test -run. The program builds the package's
// test with the patch in an overlay, so that the sources stay as they are, and wants
// the untouched run to pass, runs that were ended somewhere to fail, and the line that
// replays the first of those to meet the same failure again, and none without the patch.
//
// All of them take as long as the rest of the checks. -sample draws some, other ones for another -seed, and says which:
// the checks of a commit do that.
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
		mutations = drawn(mutations, *sample, *seed)
		fmt.Printf("%d of %d mutations; -sample %d -seed %d\n", len(mutations), all, *sample, *seed)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &checker{root: root, dir: dir, builds: max(1, *builds)}
	if err := c.sane(ctx, mutations); err != nil {
		return err
	}
	verdicts := c.check(ctx, mutations)
	if err := printTable(os.Stdout, verdicts); err != nil {
		return err
	}
	return summary(verdicts)
}

// drawn are n mutations, which a seed draws, in their order.
func drawn(all []*mutation, n int, seed uint64) []*mutation {
	some := make([]*mutation, 0, n)
	picks := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n]
	slices.Sort(picks)
	for _, i := range picks {
		some = append(some, all[i])
	}
	return some
}
