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
	ds, err := b.measureRecovery(ctx, recovery.Run)
	if err != nil {
		return err
	}
	targets := map[string]Target{
		"R1": fenceTarget, "R1b": fenceTarget, "R2": fenceTarget,
		"P12": {Text: "p50 ≤ 25 ms", P50: 25 * time.Millisecond},
	}
	c := recoveryCurve("R", "eviction recovery")
	for _, d := range ds {
		c.Lines = append(c.Lines, b.addDistribution(d, targets[d.ID]))
	}
	b.result.Curves = append(b.result.Curves, c)
	return nil
}

// unknownOutcomes measures the time until operations of package ledger continue after a SIGKILL, and the outcomes that are
// reported as unknown.
func unknownOutcomes(ctx context.Context, b *bench) error {
	ds, err := b.measureRecovery(ctx, recovery.RunOperations)
	if err != nil {
		return err
	}
	c := recoveryCurve("U", "recovery of operations")
	for _, d := range ds {
		c.Lines = append(c.Lines, b.addDistribution(d, Target{}))
	}
	b.result.Curves = append(b.result.Curves, c)
	if r, ok := falseUnknowns(ds); ok {
		b.add(r)
	}
	return nil
}

// measureRecovery measures recoveries of one kind.
func (b *bench) measureRecovery(
	ctx context.Context, run func(context.Context, recovery.Options) ([]recovery.Distribution, error),
) ([]recovery.Distribution, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	return run(ctx, recovery.Options{
		Dir: dir, Seed: b.seed, Objects: 1000, Fences: 1000 * b.rounds, Workers: 64, Ends: 4 * b.rounds,
		Rest: b.rest, Work: min(150*time.Millisecond, b.duration/5+5*time.Millisecond),
		Progress: b.progress,
	})
}

// recoveryCurve is a plot of distributions, without its lines.
func recoveryCurve(id, what string) Curve {
	return Curve{
		ID: id, What: what + ": the share of objects, in percent, that had resumed within a time",
		X: "%", Y: "µs", LinearX: true, LogY: true,
	}
}

// falseUnknowns returns the row of the operations that were reported as unknown and had no effect, with a side for each
// policy. Without operations there is no row.
func falseUnknowns(ds []recovery.Distribution) (r Row, ok bool) {
	r = Row{
		ID: "U", Unit: "% of the interrupted steps",
		What: "false unknowns after SIGKILL: steps that were reported as unknown, but had no effect (R6, R6i, R6r)",
		Notes: []string{
			"an interrupted step is one that began again", "dohost is the policy AtMostOnce",
			"the bank takes 1 ms before the effect, and 1 ms after it: the rate depends on the time of the service",
		},
	}
	for _, d := range ds {
		c := d.Cost
		if c == nil || c.Policy == 0 {
			continue
		}
		f := Figure{Side: c.Policy.String(), Value: 100 * float64(c.FalseUnknown) / float64(max(1, c.Redelivered)), Checked: c.Steps}
		if len(r.Sides) == 0 {
			f.Side = ours
		}
		r.Sides = append(r.Sides, f)
		r.Notes = append(r.Notes, fmt.Sprintf("%v: %d of %d interrupted steps were reported as unknown, %d of them without an effect; "+
			"%d effects were repeated", c.Policy, c.Unknown, c.Redelivered, c.FalseUnknown, c.Repeated))
	}
	return r, len(r.Sides) > 0
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
