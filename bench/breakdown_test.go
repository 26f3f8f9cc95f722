package main

import (
	"testing"
	"time"

	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// TestBreakdownPartsAddUpToTheWhole has an operation that passes two places.
func TestBreakdownPartsAddUpToTheWhole(t *testing.T) {
	var watch stopwatch
	nothing := func() error { return nil }
	op := func() error {
		watch.at(runtime.Point{Place: eviction.PlaceSend})
		watch.at(runtime.Point{Place: eviction.PlaceStart})
		return nil
	}
	way := []mark{{eviction.PlaceSend, "there"}, {eviction.PlaceStart, "and there"}}
	b, err := watch.measure("a walk", 100, way, nothing, op)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, p := range b.Parts {
		sum += p.Mean
	}
	if len(b.Parts) != 3 || sum != b.Whole {
		t.Errorf("%d parts, of %v in all; the whole is %v", len(b.Parts), sum, b.Whole)
	}
	for name, way := range map[string][]mark{
		"a place that it does not come by": {{eviction.PlaceSend, "there"}, {eviction.PlaceSync, "to the disk"}},
		"two in the other order":           {{eviction.PlaceStart, "and there"}, {eviction.PlaceSend, "there"}},
	} {
		slow := func() error { err := op(); watch[eviction.PlaceStart].Add(1000); return err }
		if _, err := watch.measure(name, 100, way, nothing, slow); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
