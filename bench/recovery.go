package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/recovery"
)

// fenceTarget is the target of the first step after a fence.
var fenceTarget = Target{Text: "p50 ≤ 100 µs, p99 ≤ 2 ms", P50: 100 * time.Microsecond, P99: 2 * time.Millisecond}

// recoveries measures the time until objects continue after a fence, a SIGKILL and a restart of the host, and the cost
// of recovery.
func recoveries(ctx context.Context, b *bench) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	ds, err := recovery.Run(ctx, recovery.Options{
		Dir: dir, Seed: b.seed, Objects: 1000, Fences: 1000 * b.rounds, Workers: 64, Ends: 4 * b.rounds,
		Rest: b.rest, Work: min(150*time.Millisecond, b.duration/5+5*time.Millisecond),
		Progress: b.progress,
	})
	if err != nil {
		return err
	}
	targets := map[string]Target{
		"R1": fenceTarget, "R1b": fenceTarget, "R2": fenceTarget,
		"P12": {Text: "p50 ≤ 25 ms", P50: 25 * time.Millisecond},
	}
	c := Curve{
		ID: "R", What: "eviction recovery: the share of objects, in percent, that had resumed within a time",
		X: "%", Y: "µs", LinearX: true, LogY: true,
	}
	for _, d := range ds {
		c.Lines = append(c.Lines, b.addDistribution(d, targets[d.ID]))
	}
	b.result.Curves = append(b.result.Curves, c)
	return nil
}

// addDistribution adds the row of recoveries, and returns their line in a plot.
func (b *bench) addDistribution(d recovery.Distribution, t Target, notes ...string) Line {
	n := len(d.Took)
	r := Row{ID: d.ID, What: d.What, Unit: "recoveries", Target: t, Sides: []Figure{{
		Side: ours, Value: float64(n), Checked: int64(n), P50: d.At(50), P99: d.At(99),
	}}}
	r.Notes = append(r.Notes, fmt.Sprintf("90 %% within %s, all within %s", duration(d.At(90)), duration(d.At(100))))
	if d.Cost != nil {
		r.Notes = append(r.Notes, d.Cost.String())
	}
	r.Notes = append(r.Notes, notes...)
	b.add(r)
	l := Line{Name: d.ID}
	for _, percent := range []float64{1, 10, 25, 50, 75, 90, 95, 99, 99.9} {
		l.Points = append(l.Points, [2]float64{percent, float64(d.At(percent).Nanoseconds()) / 1e3})
	}
	return l
}
