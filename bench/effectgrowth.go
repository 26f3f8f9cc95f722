package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/ledger"
)

// Parameters of the measurement of one object with many operations.
const (
	mostEffects    = 10_000 // of the larger object; the smaller one has a tenth
	growthDos      = 20     // new operations in a round, so that the object hardly grows
	repeatedDos    = 500    // Dos of completed operations in a round
	growthListings = 5      // in a round
)

// tenth is the side with a tenth of the operations.
const tenth = "a tenth of them"

// ledgerGrowth measures the cost of many operations in one object, compared with a tenth of them.
func ledgerGrowth(ctx context.Context, b *bench) error {
	n := min(mostEffects, b.objects)
	var all []*recorded
	defer func() {
		for _, o := range all {
			_ = o.close() // again, after a failure
		}
	}()
	for _, n := range []int{n, n / 10} {
		o, err := b.record(ctx, n)
		if err != nil {
			return err
		}
		all = append(all, o)
	}
	for round := range b.rounds + 1 {
		for i := range all {
			o := all[(i+round)%len(all)] // no object is always first
			if err := o.measure(ctx, round > 0); err != nil {
				return err
			}
		}
		b.progress("round %d of %d", round, b.rounds)
	}
	for _, o := range all {
		if err := errors.Join(o.verify(ctx, o.next.Load()), o.close()); err != nil {
			return fmt.Errorf("no figure: %w", err)
		}
	}
	for _, r := range growthRows {
		row := Row{ID: r.id, What: fmt.Sprintf(r.what, number(float64(n))), Unit: r.unit, Notes: r.notes}
		for i, o := range all {
			f, err := o.times[r.id].figure(r.scale)
			if err != nil {
				return err
			}
			f.Side, f.Checked = []string{ours, tenth}[i], o.next.Load()
			row.Sides = append(row.Sides, f)
		}
		b.add(row)
	}
	disk := Row{
		ID: "L6", What: fmt.Sprintf("size on the disk of one object with %s operations", number(float64(n))), Unit: "B for each operation",
		Notes: []string{"without the size of the store before the first operation; the log is empty, so all rows are in tables"},
	}
	for i, o := range all {
		disk.Sides = append(disk.Sides, Figure{
			Side: []string{ours, tenth}[i], Value: o.bytes, Checked: o.next.Load(),
		})
	}
	b.add(disk)
	return nil
}

// growthRows are the measured times.
var growthRows = []struct {
	id, what, unit string
	scale          time.Duration
	notes          []string
}{
	{"L3", "a Do in an object with %s operations, 1 caller", "ms", time.Millisecond, []string{
		fmt.Sprintf("new operations, %d in a round, which are kept", growthDos),
	}},
	{"L3r", "a Do of a completed one of %s operations, 1 caller", "µs", time.Microsecond, []string{
		fmt.Sprintf("%d in a round, spread evenly; the result is read, and no call is made", repeatedDos),
	}},
	{"L4", "All: a listing of the %s operations of an object", "ms", time.Millisecond, nil},
	{"L4u", "Unfinished: a listing of the unfinished ones of %s operations", "µs", time.Microsecond, []string{
		"there are none: the time is that of the index",
	}},
	{"L5", "first call of an object with %s operations after the host was opened", "µs", time.Microsecond, []string{
		"the constructor and a method that reads nothing; the time to open the host is not included",
	}},
}

// times are the measured times of one kind.
type times struct {
	rounds []time.Duration // the median of each round
	all    *hdrhistogram.Histogram
}

// figure makes a figure in a unit.
func (t *times) figure(unit time.Duration) (f Figure, err error) {
	if t == nil || len(t.rounds) == 0 {
		return f, errors.New("nothing was measured")
	}
	for _, d := range t.rounds {
		f.Rounds = append(f.Rounds, float64(d)/float64(unit))
	}
	f.Value = median(f.Rounds)
	f.P50, f.P99 = time.Duration(t.all.ValueAtQuantile(50)), time.Duration(t.all.ValueAtQuantile(99))
	return f, nil
}

// recorded is a store with one object that has recorded many effects.
type recorded struct {
	*effectSide
	bytes float64 // on the disk, for each operation
	times map[string]*times
}

// record makes an object with n operations, and measures its size.
func (b *bench) record(ctx context.Context, n int) (o *recorded, err error) {
	s, err := b.openEffects(ledger.PolicyAtMostOnce, (*spender).do)
	if err != nil {
		return nil, err
	}
	o = &recorded{effectSide: s, times: map[string]*times{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	empty, err := o.packedSize()
	if err != nil {
		return nil, err
	}
	b.progress("recording %d operations", n)
	if err := fillBy(b, 0, n, func(int) error { return o.effect(ctx, o.method) }); err != nil {
		return nil, err
	}
	full, err := o.packedSize()
	o.bytes = (full - empty) / float64(n)
	return o, err
}

// packedSize closes the host, empties the log, measures the files in bytes, and opens the host again.
func (o *recorded) packedSize() (bytes float64, err error) {
	if err := errors.Join(o.Close(), quietly(o.dir)); err != nil {
		return 0, err
	}
	mib, err := size(o.dir)
	return mib * (1 << 20), errors.Join(err, o.open())
}

// measure is a round of all measurements. Only rounds that count are kept.
func (o *recorded) measure(ctx context.Context, counts bool) error {
	if err := errors.Join(o.Close(), o.open()); err != nil {
		return err
	}
	took := map[string][]time.Duration{}
	timed := func(id string, times int, fn func(i int) error) error {
		for i := range times {
			began := time.Now()
			if err := fn(i); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			took[id] = append(took[id], time.Since(began))
		}
		return nil
	}
	s, size := o.stub(0), int(o.next.Load())
	err := errors.Join(
		timed("L5", 1, func(int) error { return dohost.CallNoResult(ctx, s, (*spender).touch, 0) }),
		timed("L3", growthDos, func(int) error { return o.effect(ctx, o.method) }),
		timed("L3r", repeatedDos, func(i int) error {
			_, err := dohost.Call(ctx, s, o.method, 1+i*size/repeatedDos)
			return err
		}),
		timed("L4", growthListings, func(int) error { return o.list(ctx, false, size+growthDos) }),
		timed("L4u", growthListings, func(int) error { return o.list(ctx, true, 0) }),
	)
	if err != nil || !counts {
		return err
	}
	for id, took := range took {
		t := o.times[id]
		if t == nil {
			t = &times{all: newHistogram()}
			o.times[id] = t
		}
		t.rounds = append(t.rounds, median(took))
		for _, d := range took {
			if err := record(t.all, d, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// list lists operations, and returns an error unless their number is want.
func (o *recorded) list(ctx context.Context, unfinished bool, want int) error {
	n, err := dohost.Call(ctx, o.stub(0), (*spender).count, unfinished)
	if err == nil && n != want {
		err = fmt.Errorf("%d operations were listed, want %d", n, want)
	}
	return err
}

// touch reads nothing.
func (s *spender) touch(context.Context, int) error { return nil }

// count lists operations, and returns their number.
func (s *spender) count(ctx context.Context, unfinished bool) (n int, err error) {
	list := ledger.All(ctx, s.st)
	if unfinished {
		list = ledger.Unfinished(ctx, s.st)
	}
	for _, err := range list {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
