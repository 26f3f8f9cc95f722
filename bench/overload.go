package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dohost/dohost"
)

// closedSide is the name of a closed loop as a side.
const closedSide = "closed loop"

// overload is an experiment with more calls than the host can answer.
type overload struct {
	id      string
	what    string // the objects
	objects int
	callers int // of the closed loop
	events  int // maximum in an object
	method  func(*subject, context.Context, int) (int, error)
	open    []*openLoopSide
}

// maxCallers is the maximum of an open loop's callers: more than all objects admit, so that the objects refuse calls.
func (o *overload) maxCallers() int { return 2*o.objects*o.events + 1000 }

// offeredTarget is the target of a load within the capacity.
var offeredTarget = Target{Text: "≥ 0.95 of the offered rate", Reference: "offered", MinRatio: 0.95}

// overloadedMachine has too little processor for the calls.
func overloadedMachine(ctx context.Context, b *bench) error {
	o := overload{id: "O1", what: "1,000 objects", objects: 1000, callers: 64, events: 4, method: (*subject).add}
	o.open = []*openLoopSide{
		{share: 0.5, target: offeredTarget}, {share: 0.8, target: offeredTarget},
		{share: 2, target: Target{Text: "≥ 0.5 of the closed loop", Reference: closedSide, MinRatio: 0.5}},
	}
	return o.run(ctx, b)
}

// overloadedObjects have too little time, each its own: there is enough processor to refuse calls.
func overloadedObjects(ctx context.Context, b *bench) error {
	o := overload{
		id: "O2", what: "16 objects that take 1 ms", objects: 16, callers: 64, events: 64, method: (*subject).addSlowly,
	}
	o.open = []*openLoopSide{
		{share: 0.5, target: offeredTarget},
		{share: 2, target: Target{
			Text: "≥ 0.8 of the closed loop, p99 ≤ 250 ms", Reference: closedSide, MinRatio: 0.8, P99: 250 * time.Millisecond,
		}},
	}
	return o.run(ctx, b)
}

// addSlowly is add by an object that holds its turn for a while.
func (s *subject) addSlowly(ctx context.Context, delta int) (int, error) {
	time.Sleep(time.Millisecond)
	return s.add(ctx, delta)
}

// run runs rounds, each with a new host.
func (o *overload) run(ctx context.Context, b *bench) error {
	var rounds [][]round // by loop: the closed one, the open ones, the closed one again
	for n := range b.rounds {
		rs, err := o.round(ctx, b)
		if err != nil {
			return err
		}
		for i, r := range rs {
			if n == 0 {
				rounds = append(rounds, nil)
			}
			rounds[i] = append(rounds[i], r)
		}
		b.progress("round %d of %d", n+1, b.rounds)
	}
	var figures []Figure
	for _, rs := range rounds {
		f := summarize(rs)
		for _, r := range rs {
			f.Checked += r.ops
		}
		figures = append(figures, f)
	}
	o.report(b, figures)
	return nil
}

// round runs the closed loop until it is warm, then the open loops at shares of the closed loop's rate, and then the
// closed loop again.
func (o *overload) round(ctx context.Context, b *bench) (rounds []round, err error) {
	h, err := b.open(dohost.Options{MaxEvents: o.events}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	t := newTraffic(h, o.objects, o.method)
	closed := &closedLoop{t, o.callers}
	warm, err := oneRound(ctx, closed, b.duration)
	if err != nil {
		return nil, err
	}
	before, err := oneRound(ctx, closed, b.duration)
	if err != nil {
		return nil, err
	}
	rounds = []round{before}
	for _, open := range o.open {
		open.traffic, open.seed, open.callers, open.rate = t, b.seed, o.maxCallers(), before.rate*open.share
		r, err := oneRound(ctx, open, b.duration)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, r)
	}
	after, err := oneRound(ctx, closed, b.duration)
	if err != nil {
		return nil, err
	}
	rounds = append(rounds, after)
	done := warm.ops
	for _, r := range rounds {
		done += r.ops
	}
	if err := t.verify(ctx, done); err != nil {
		return nil, fmt.Errorf("no figure: %w", err)
	}
	return rounds, nil
}

// report adds rows for each open loop, and one for the closed one after them.
func (o *overload) report(b *bench, figures []Figure) {
	const unit = "calls/s"
	before, after := figures[0], figures[len(figures)-1]
	before.Side, after.Side = closedSide, ours
	part := 'a'
	add := func(r Row) {
		r.ID = o.id + string(part)
		part++
		b.add(r)
	}
	for i, open := range o.open {
		f := figures[i+1]
		f.Side = ours
		var all offeredLoad
		for _, s := range open.seen {
			all.add(s)
		}
		add(Row{
			What: fmt.Sprintf("open loop at %.0f %% of the closed one: durable increments, %s", open.share*100, o.what),
			Unit: unit,
			Sides: []Figure{f, before, {
				Side: "offered", Value: median(all.rates), Rounds: all.rates, Checked: all.calls,
			}},
			Target: open.target, Notes: all.notes(o, before.Value*open.share),
		})
		if open.share > 1 {
			add(atMost("goroutines", float64(all.goroutines), float64(o.maxCallers()+o.objects+100), f.Checked))
			add(atMost("MiB of heap", float64(all.heap)/(1<<20), 128, f.Checked))
		}
	}
	before.Side = "before"
	add(Row{
		What: "closed loop after the overload: durable increments, " + o.what, Unit: unit, Sides: []Figure{after, before},
		Target: Target{Text: "≥ 0.9 of before", Reference: before.Side, MinRatio: 0.9},
		Notes:  []string{fmt.Sprintf("%d callers", o.callers)},
	})
}

// atMost is a row for a maximum under overload.
func atMost(unit string, value, most float64, checked int64) Row {
	return Row{
		What: "the same: " + unit + ", at most", Unit: unit,
		Sides:  []Figure{{Side: ours, Value: value, Rounds: []float64{value}, Checked: checked}},
		Target: Target{Text: fmt.Sprintf("≤ %s", number(most)), MaxValue: most},
		Notes:  []string{"with those of the load generator"},
	}
}

// traffic is calls to objects, in a closed loop and in an open one. It counts the answers of each object.
type traffic struct {
	*host
	method   func(*subject, context.Context, int) (int, error)
	stubs    []dohost.Stub[subject]
	answered []atomic.Int64
	refused  atomic.Int64
	next     atomic.Int64
}

func newTraffic(h *host, objects int, method func(*subject, context.Context, int) (int, error)) *traffic {
	t := &traffic{host: h, method: method, answered: make([]atomic.Int64, objects)}
	for i := range objects {
		t.stubs = append(t.stubs, subjects.Get(h, name(i)))
	}
	return t
}

// call makes the next call, and returns whether it was answered. A refused call did not run.
func (t *traffic) call(ctx context.Context) (answered bool, err error) {
	i := int(t.next.Add(1)) % len(t.stubs)
	_, err = dohost.Call(ctx, t.stubs[i], t.method, 1)
	if e, ok := errors.AsType[*dohost.Error](err); ok && e.Outcome == dohost.OutcomeNotRun && errors.Is(err, dohost.ErrOverloaded) {
		t.refused.Add(1)
		return false, nil
	}
	if err == nil {
		t.answered[i].Add(1)
	}
	return err == nil, err
}

// verify compares the answers with the counts on the disk, which new incarnations of all objects read.
func (t *traffic) verify(ctx context.Context, done int64) error {
	if err := t.reopen(); err != nil {
		return err
	}
	var sum int64
	for i, s := range t.stubs {
		n, err := dohost.Call(ctx, s, (*subject).get, 0)
		if err != nil {
			return err
		}
		if want := t.answered[i].Load(); int64(n) != want {
			return fmt.Errorf("%v holds %d, and %d calls were answered", s.ID(), n, want)
		}
		sum += int64(n)
	}
	if sum != done {
		return fmt.Errorf("the objects hold %d, and %d calls were counted", sum, done)
	}
	return nil
}

// closedLoop makes a call when the one before it is answered.
type closedLoop struct {
	*traffic
	callers int
}

func (c *closedLoop) work(ctx context.Context, m *meter) error {
	return m.each(c.callers, func(_ int, w *worker) error {
		for !w.over() {
			began := time.Now()
			answered, err := c.call(ctx)
			if err != nil {
				return err
			}
			if answered {
				w.did(began)
			}
		}
		return nil
	})
}

// openLoopSide makes calls at a rate, independently of their answers.
type openLoopSide struct {
	*traffic
	seed    uint64
	callers int     // maximum
	share   float64 // of the closed loop's rate
	rate    float64 // the same, in calls a second
	target  Target
	seen    []offeredLoad // in each round
}

// offeredLoad is the observations of a round, without the answers.
type offeredLoad struct {
	calls, refused   int64
	rates            []float64 // of the calls, in calls a second
	late             *hdrhistogram.Histogram
	heap, goroutines uint64 // maximum
}

func (o *openLoopSide) work(ctx context.Context, m *meter) error {
	due := arrivals(o.seed+uint64(len(o.seen)), o.rate, time.Until(m.until))
	l := &openLoop{due: due, callers: o.callers, late: newHistogram(), call: o.call}
	seen, refused := offeredLoad{calls: int64(len(due)), late: l.late}, o.refused.Load()
	ended := make(chan struct{})
	err := together(2, func(i int) error {
		if i > 0 {
			seen.heap, seen.goroutines = peaks(ended)
			return nil
		}
		defer close(ended)
		err := l.run(ctx, m)
		seen.rates = []float64{float64(seen.calls) / l.took.Seconds()}
		return err
	})
	seen.refused = o.refused.Load() - refused
	o.seen = append(o.seen, seen)
	return err
}

// peaks samples until ended, and returns the maximum of bytes in the heap, and of goroutines.
func peaks(ended <-chan struct{}) (heap, goroutines uint64) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		metrics.Read(samples)
		heap, goroutines = max(heap, samples[0].Value.Uint64()), max(goroutines, samples[1].Value.Uint64())
		select {
		case <-look.C:
		case <-ended:
			return heap, goroutines
		}
	}
}

// add adds the observations of another round.
func (o *offeredLoad) add(other offeredLoad) {
	if o.late == nil {
		o.late = newHistogram()
	}
	o.late.Merge(other.late)
	o.calls, o.refused, o.rates = o.calls+other.calls, o.refused+other.refused, append(o.rates, other.rates...)
	o.heap, o.goroutines = max(o.heap, other.heap), max(o.goroutines, other.goroutines)
}

func (o *offeredLoad) notes(by *overload, due float64) []string {
	return []string{
		fmt.Sprintf("%s calls/s were due, and %s/s made: the load generator shares the cores with the host",
			number(due), number(median(o.rates))),
		fmt.Sprintf("%s calls; %s of them were refused with ErrOverloaded and did not run: an object has at most %d",
			number(float64(o.calls)), number(float64(o.refused)), by.events),
		fmt.Sprintf("times are from when a call was due; the load generator made it %s late at p50, %s at p99",
			duration(time.Duration(o.late.ValueAtQuantile(50))), duration(time.Duration(o.late.ValueAtQuantile(99)))),
	}
}
