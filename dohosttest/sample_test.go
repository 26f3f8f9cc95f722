package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dohost/dohost"
)

// putOnce is a scenario whose client puts one value, and repeats the call after an ending.
func putOnce() *Scenario {
	s := doing(put)
	s.Run = func(ctx context.Context, h *Host) error {
		return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
			_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
			return err
		})
	}
	return s
}

// TestSampleIsDrawnBySeed counts the runs of samples, and compares their points: those of one seed are the same, and all
// samples together have every point.
func TestSampleIsDrawnBySeed(t *testing.T) {
	points := func(sample int, seed uint64) (at []string, r *report) {
		s := putOnce()
		s.Sample, s.Seed = sample, seed
		ended := false
		check := s.Check
		s.Check = func(ctx context.Context, h *Host) error {
			if len(h.run.endings) > 0 && !ended {
				at = append(at, fmt.Sprint(h.run.endings))
			}
			ended = !ended // the second call is for the same run
			return check(ctx, h)
		}
		r = explore(t, s)
		if len(r.Failures) > 0 {
			t.Fatal(r.Failures[0].err)
		}
		return at, r
	}
	all, r := points(0, 1)
	const sample = 5
	if r.Skipped != 0 || len(all) < 4*sample {
		t.Fatalf("without a sample there are %d runs, and %d points skipped", len(all), r.Skipped)
	}
	seen := map[string]bool{}
	for seed := range uint64(40) {
		some, r := points(sample, seed)
		again := some
		if seed < 5 {
			again, _ = points(sample, seed)
		}
		if len(some) != sample || !slices.Equal(some, again) || r.Skipped < r.Points-sample || r.Skipped >= r.Points {
			t.Fatalf("seed %d: the runs %v, and then %v; %d of %d points skipped", seed, some, again, r.Skipped, r.Points)
		}
		last := -1
		for _, at := range some {
			i := slices.Index(all, at)
			if i <= last {
				t.Errorf("seed %d: the run with %v is number %d of all, after number %d", seed, at, i, last)
			}
			last, seen[at] = i, true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("forty samples of %d have %d of %d runs", sample, len(seen), len(all))
	}
}

// TestSampleFindsFailures has a check that fails after any ending: each run of a sample fails.
func TestSampleFindsFailures(t *testing.T) {
	s := putOnce()
	s.Sample = 3
	s.Check = func(_ context.Context, h *Host) error {
		if len(h.run.endings) > 0 {
			return errors.New("wrong")
		}
		return nil
	}
	if r := explore(t, s); len(r.Failures) != 3 {
		t.Errorf("%d failures", len(r.Failures))
	}
	s.Sample = -1
	if r := explore(t, s); len(r.Failures) != 1 || len(r.Runs) != 0 {
		t.Errorf("with a negative sample: %d failures, and the runs %v", len(r.Failures), r.Runs)
	}
}

// TestPairsAreDrawnFromAll compares the pairs of fifteen seeds with all pairs: each seed has as many as the scenario wants, none
// twice, and later pairs are drawn as often as earlier ones.
func TestPairsAreDrawnFromAll(t *testing.T) {
	pairs := func(n int, seed uint64) (plans []string, all int) {
		s := putOnce()
		s.Places, s.Endings = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceDurable}, []dohost.EndMode{dohost.EndCrash, dohost.EndPowerCut}
		s.Pairs, s.Seed = n, seed
		ended := 0
		check := s.Check
		s.Check = func(ctx context.Context, h *Host) error {
			if len(h.run.endings) == 2 {
				if ended++; ended%2 == 1 { // the second call is for the same run
					plans = append(plans, fmt.Sprint(h.run.endings))
				}
			}
			return check(ctx, h)
		}
		r := explore(t, s)
		if len(r.Failures) > 0 {
			t.Fatal(r.Failures[0].err)
		}
		return plans, r.AllPairs
	}
	all, n := pairs(1000, 1)
	const some = 8
	if len(all) != n || n < 4*some {
		t.Fatalf("%d of %d pairs", len(all), n)
	}
	early, drawn := 0, 0
	for seed := range uint64(rounds(14)) {
		plans, n := pairs(some, seed)
		again, _ := pairs(some, seed)
		if sorted := slices.Sorted(slices.Values(plans)); len(slices.Compact(sorted)) != some || n != len(all) || !slices.Equal(plans, again) {
			t.Fatalf("seed %d: %d of %d pairs: %q, and then %q", seed, len(plans), n, plans, again)
		}
		for _, plan := range plans {
			at := slices.Index(all, plan)
			if at < 0 {
				t.Fatalf("seed %d: %s is not among all pairs", seed, plan)
			}
			if drawn++; at < len(all)/2 {
				early++
			}
		}
	}
	if 5*early < 2*drawn || 5*early > 3*drawn {
		t.Errorf("%d of %d drawn pairs are in the first half of all", early, drawn)
	}
}
