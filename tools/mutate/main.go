// Mutate measures how many generated mutations of the module the tests find.
//
// It lists the places where an operator applies, draws a sample, and compiles all mutations of
// the sample into the same test binaries, from an overlay: the sources do not change. The
// environment variable DOHOST_MUTANT selects the mutation of a run. The operators are
//
//	negate      negates a condition, a comparison with == or !=, true or false
//	boundary    turns < into <=, > into >=, and the reverse
//	arithmetic  turns + into -, and the reverse, of integers
//	connective  turns && into ||, and the reverse
//	drop        drops a call, an assignment, a send, a defer, a return without results, a break or a continue
//	order       swaps two adjacent statements that the operator drop could drop
//	swap        swaps the arguments of a call with two arguments of the same type
//	error       returns nil instead of an error
//	constant    adds 1 to an integer constant
//	lock        removes a lock: the calls of Lock and Unlock of a receiver in a function
//
// These places have no mutations, since a test that finds them would only repeat the source:
//
//   - generated code and tests
//   - the methods String, GoString, Error, Format and LogValue; calls of log, log/slog, fmt.Errorf,
//     errors.New and panic with their arguments: texts for people
//   - calls with an eviction.Place: the points where the tests end an incarnation
//   - calls of internal/invariants and blocks with a constant condition, which other builds run
//   - single calls of Lock and Unlock, without which a program always ends or hangs
//   - constants of type time.Duration or fs.FileMode, the capacity for make, indices of literals
//   - constants that are returned with an error: it was just made, or compared with nil by the condition of the block
//   - adjacent assignments without a common variable, functions that are known to be symmetric
//   - declarations outside functions
//
// A mutation has a name: the file, the function, the operator, and the index among the mutations
// of the function by this operator. The name does not depend on the rest of the file.
//
// The tests are the tests of the root module and of examples/orders. The first pass runs the scenarios:
// the tests that call EveryPoint or Simulate of dohosttest. The second pass runs the other tests
// for the mutations that are left. Each test first runs without a mutation. That run shows which
// mutations the test reaches, and it runs again only with those. A scenario must pass then; another test
// that fails, for example because it counts allocations, is not used. A test that fails or hangs finds the
// mutation. The race detector would find more of the removed locks; it does not run.
// Scenarios run with one processor, since they decide themselves which goroutine runs. The command
// tries -workers mutations at the same time.
//
// An interrupt ends the command with a report on the mutations that have run. They are a random part of the
// sample.
//
// The file of -cache keeps the results, by the name of the mutation and the text of its function.
// Delete the file after a change of existing tests. After an addition of tests use -again: then only
// the mutations that no test has found run again. The file equivalent.txt names the mutations that
// do not change the behaviour; they do not count, and may be at most 5 % of the sample.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// mutated are the packages with mutations, relative to the module.
var mutated = []string{"runtime", "objectstore", "alarm", "eviction", "agent", "chat", "chat/uimessage", "ledger", "internal/work", ".", "internal/socket"}

// settings are the flags.
type settings struct {
	root                 string
	list                 bool
	sample               int
	seed                 uint64
	cache                string
	again                bool
	workers              int
	limit                time.Duration
	minScenarios, minAll float64
}

func main() {
	var s settings
	flag.StringVar(&s.root, "root", "..", "`folder` of the module")
	flag.BoolVar(&s.list, "list", false, "print all mutations, and run nothing")
	flag.IntVar(&s.sample, "sample", 500, "try so `many` mutations, drawn by -seed; 0: all")
	flag.Uint64Var(&s.seed, "seed", 0, "the `number` that draws them; a larger sample by the same number has most of the same mutations")
	flag.StringVar(&s.cache, "cache", "", "`file` for the results")
	flag.BoolVar(&s.again, "again", false, "try the mutations again that no test has found according to -cache")
	flag.IntVar(&s.workers, "workers", 2, "try so `many` mutations at the same time")
	flag.DurationVar(&s.limit, "limit", 90*time.Second, "a test binary that runs longer than this, and than four times its usual `time`, hangs")
	flag.Float64Var(&s.minScenarios, "min-scenarios", 0, "fail if the scenarios find less than this `percentage`")
	flag.Float64Var(&s.minAll, "min-all", 0, "fail if all tests find less than this `percentage`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings) error {
	root, err := filepath.Abs(set.root)
	if err != nil {
		return err
	}
	sites, module, err := load(root, mutated)
	if err != nil {
		return err
	}
	equivalent, err := equivalents(equivalentText, sites)
	if err != nil {
		return err
	}
	if set.list {
		for _, s := range sites {
			fmt.Printf("%s\t%d\t%s\n", s.name, s.line, s.text)
		}
		return nil
	}
	all := len(sites)
	if set.sample > 0 && set.sample < all {
		sites = draw(sites, set.sample, set.seed)
	}
	drawn := len(sites)
	sites = slices.DeleteFunc(sites, func(s *site) bool { return equivalent[s.name] != "" })
	fmt.Printf("%d of %d mutations, without %d equivalent ones; -sample %d -seed %d\n", len(sites), all, drawn-len(sites), drawn, set.seed)
	if 20*(drawn-len(sites)) > drawn {
		return errors.New("more than 5 % of the sample are called equivalent")
	}
	results, err := tryAll(ctx, set, root, module, sites)
	if ctx.Err() != nil {
		report(os.Stdout, mutated, sites, results)
	}
	if err != nil {
		return err
	}
	total := report(os.Stdout, mutated, sites, results)
	if s := share(total.scenario, total.all); s < set.minScenarios {
		return fmt.Errorf("the scenarios find %.1f %%, want %.1f %%", s, set.minScenarios)
	}
	if s := share(total.test, total.all); s < set.minAll {
		return fmt.Errorf("all tests find %.1f %%, want %.1f %%", s, set.minAll)
	}
	return nil
}

// draw returns n sites in their order, from each package in proportion to its sites. The name of a site and
// the seed determine its rank in the package. So most of a sample remains after a change of the sources, and a
// larger sample contains most of a smaller one.
func draw(sites []*site, n int, seed uint64) []*site {
	byPackage := map[string][]*site{}
	for _, s := range sites {
		byPackage[s.pkg] = append(byPackage[s.pkg], s)
	}
	drawn, before := map[*site]bool{}, 0
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		of := byPackage[pkg]
		slices.SortFunc(of, func(a, b *site) int { return bytes.Compare(a.rank(seed), b.rank(seed)) })
		after := before + len(of)
		for _, s := range of[:after*n/len(sites)-before*n/len(sites)] {
			drawn[s] = true
		}
		before = after
	}
	return slices.DeleteFunc(slices.Clone(sites), func(s *site) bool { return !drawn[s] })
}

// rank returns a key: draw takes the sites of a package in the order of their keys.
func (s *site) rank(seed uint64) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, s.name))
	return sum[:]
}

// tryAll tries the mutations without a result in the cache, and returns the results of all. It tries them by
// rank, so that the mutations of an interrupted run are a sample, too; the result of a mutation that it
// has not tried is empty.
func tryAll(ctx context.Context, set settings, root, module string, sites []*site) (_ []result, err error) {
	cached, err := openCache(set.cache, set.again)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cached.close()) }()
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := instrument(root, module, sites, dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, pkg := range mutated {
		paths = append(paths, path.Join(module, pkg))
	}
	tests, err := testPackages(root, paths, "./examples/orders")
	if err != nil {
		return nil, err
	}
	r := &runner{root: root, dir: dir, overlay: overlay, limit: set.limit, tests: tests}
	results := make([]result, len(sites))
	order := make([]int, len(sites))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(sites[a].rank(set.seed), sites[b].rank(set.seed)) })
	err = forEach(ctx, len(sites), set.workers, func(ctx context.Context, n int) error {
		i := order[n]
		s := sites[i]
		res, ok := cached.get(s)
		if !ok {
			var err error
			if res, err = r.try(ctx, i+1, s, path.Join(module, s.pkg)); err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "%s: %s %s (%.0f s)\n", res.Name, res.Verdict, res.Test, res.Seconds)
			if err := cached.put(res); err != nil {
				return err
			}
		}
		results[i] = res
		return nil
	})
	return results, err
}

// forEach calls f for the numbers from 0 to n-1 in workers goroutines, until a call fails. It returns the
// first error after all calls have returned.
func forEach(ctx context.Context, n, workers int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range numbers {
				if err := f(ctx, i); err != nil {
					cancel(err) // a later call has no effect
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	running.Wait()
	return context.Cause(ctx)
}
