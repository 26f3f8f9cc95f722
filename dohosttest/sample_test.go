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
			_, err := dohost.Call(ctx, things.Get(h, "a"), (*thing).do, 0)
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
		again, _ := points(sample, seed)
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
