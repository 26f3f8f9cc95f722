package main

import (
	"strings"
	"testing"
)

// samples makes a gauge from a function of the elapsed share of the run.
func samples(judged bool, at func(x float64) float64) *gauge {
	g := &gauge{name: "made up", unit: countUnit, judged: judged}
	for i := range sampleCount {
		x := float64(i) / sampleCount
		g.points = append(g.points, [2]float64{x, at(x)})
	}
	return g
}

func TestEnduranceNoticesGrowth(t *testing.T) {
	flat := func(float64) float64 { return 100 }
	for what, c := range map[string]struct {
		g    *gauge
		want string
	}{
		"flat":             {samples(true, flat), "met"},
		"filling at first": {samples(true, func(x float64) float64 { return 1000 * min(x, 0.3) }), "met"},
		"falling":          {samples(true, func(x float64) float64 { return 1000 - 900*x }), "met"},
		"up and down": {samples(true, func(x float64) float64 {
			if int(x*60)%5 == 0 {
				return 400
			}
			return 100
		}), "met"},
		"growing all the time":   {samples(true, func(x float64) float64 { return 100 + 200*x }), "not met"},
		"growing in the end":     {samples(true, func(x float64) float64 { return 100 + max(0, x-0.67)*1000 }), "not met"},
		"growing, and not asked": {samples(false, func(x float64) float64 { return 100 + 200*x }), "met"},
		"growing, below one":     {samples(true, func(x float64) float64 { return x }), "met"},
	} {
		for _, gs := range [][]*gauge{{c.g, samples(true, flat)}, {samples(true, flat), c.g}} {
			if row := growthRow(gs); row.targetResult() != c.want {
				t.Errorf("%s: %q, want %q: %v, %v", what, row.targetResult(), c.want, row.Sides[0].Value, row.Notes)
			}
		}
	}
}

// The contents of an object are compared with its answers, and its alarms with those that the alarm record counted.
func TestEnduranceNoticesOneCall(t *testing.T) {
	w := newAlarmRecord(1)
	w.deliveries[name(0)].durable.Store(7)
	w.deliveries[name(0)].unknown.Store(1)
	e := &enduranceRun{alarms: w, want: []objectContents{{Sum: 3, Rows: 2, Versions: [maxItems]uint64{0, 4}, Deliveries: 6, Due: 1}}}
	right := objectContents{Sum: 3, Rows: 2, Versions: [maxItems]uint64{0, 4}, Deliveries: 7, Due: 2}
	for what, c := range map[string]struct {
		change func(*objectContents)
		ok     bool
	}{
		"right":                  {func(*objectContents) {}, true},
		"an add lost":            {func(h *objectContents) { h.Sum-- }, false},
		"an append twice":        {func(h *objectContents) { h.Rows++ }, false},
		"a version lost":         {func(h *objectContents) { h.Versions[1]-- }, false},
		"a delivery lost":        {func(h *objectContents) { h.Deliveries-- }, false},
		"a delivery unknown":     {func(h *objectContents) { h.Deliveries++ }, true},
		"a delivery in addition": {func(h *objectContents) { h.Deliveries += 2 }, false},
	} {
		got := right
		c.change(&got)
		if err := e.check(0, got); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A table has some points of a long curve.
func TestCurveTablePoints(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 1, 3: 3, maxShown: maxShown, 119: maxShown, 120: maxShown} {
		at := shown(n)
		if len(at) != want || n > 0 && (at[0] != 0 || at[len(at)-1] != n-1) {
			t.Errorf("of %d points: %v", n, at)
		}
		for i := 1; i < len(at); i++ {
			if step := at[i] - at[i-1]; step < (n-1)/maxShown || step > n/maxShown+2 || step == 0 {
				t.Errorf("of %d points %d and %d", n, at[i-1], at[i])
			}
		}
	}
	c := samples(true, func(x float64) float64 { return x })
	long := curves("E1", "made up", []*gauge{c})
	if text := long[0].table(); strings.Count(text, "\n| 0") != maxShown {
		t.Errorf("want %d rows:\n%s", maxShown, text)
	}
}
