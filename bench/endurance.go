package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/runtime"
)

// Parameters of the endurance run.
const (
	enduranceObjectCount = 4000
	enduranceCallers     = 32
	maxRows              = 20              // of an object, before it is cleared
	lifetimeMean         = time.Second     // of an incarnation, before chaos ends it
	alarmEvery           = 2 * time.Second // of each object
)

// endurance runs mixed work for a long time, while chaos ends incarnations, and reports whether the resources of the
// process grow.
func endurance(ctx context.Context, b *bench) (err error) {
	d := cmp.Or(b.endure, 10*b.duration)
	e := &enduranceRun{
		n: min(enduranceObjectCount, b.objects/10), every: min(alarmEvery, d), seed: b.seed, hist: newHistogram(),
		options: dohost.Options{
			IdleAfter: -1,
			Chaos:     dohost.Chaos{Mean: min(lifetimeMean, d/2), Seed: b.seed},
		},
	}
	// Small caches, which are full before the middle third.
	kernel.Tune(&e.options, func(ro *runtime.Options) { ro.Store.MemTable, ro.Store.Cache = 1<<20, 8<<20 })
	e.options.Listener.Fenced = func(dohost.Ended) { e.ended.Add(1) }
	e.alarms = newAlarmRecord(e.n)
	if e.dir, err = b.newDir(); err != nil {
		return err
	}
	gs, err := e.run(ctx, b, d)
	if err != nil {
		return err
	}
	b.progress("reading the objects")
	delivered, err := e.verify(ctx)
	if err != nil {
		return fmt.Errorf("no figure: %w", err)
	}
	what := fmt.Sprintf("mixed work under chaos for %v", d)
	rate := float64(e.ops.Load()) / d.Seconds()
	b.add(Row{
		ID: "E1", What: what, Unit: rateUnit, Target: Target{Text: "nothing lost or doubled"},
		Sides: []Figure{{
			Side: ours, Value: rate, Rounds: []float64{rate}, Checked: e.ops.Load() + delivered,
			P50: time.Duration(e.hist.ValueAtQuantile(50)), P99: time.Duration(e.hist.ValueAtQuantile(99)),
		}},
		Notes: []string{
			fmt.Sprintf("%d callers of %d objects: adds, appends, rows of a collection with an index, reads, "+
				"and DeleteAll at %d rows", enduranceCallers, e.n, maxRows),
			fmt.Sprintf("%d evictions, at any place; %d calls with an unknown outcome, after which the object was read; "+
				"%d alarms", e.ended.Load(), e.unknown, delivered),
			"memtable 1 MiB, block cache 8 MiB",
		},
	})
	row := growthRow(gs)
	row.ID, row.Sides[0].Checked = "E1a", e.ops.Load()+delivered
	b.add(row)
	b.result.Curves = append(b.result.Curves, curves("E1", what, gs)...)
	return nil
}

// enduranceRun is one endurance run.
type enduranceRun struct {
	n       int
	dir     string
	every   time.Duration // between an object's alarms
	seed    uint64
	options dohost.Options
	alarms  *alarmRecord
	want    []objectContents // of each object, from its last answer
	ops     atomic.Int64
	ended   atomic.Int64 // incarnations

	mu      sync.Mutex // guards the rest
	hist    *hdrhistogram.Histogram
	unknown int
}

func (e *enduranceRun) open() (*dohost.Host, error) {
	o := e.options
	return dohost.Open(e.dir, &o, enduranceClass(e.every, e.alarms))
}

// run starts callers, each with its own objects, and samples gauges.
func (e *enduranceRun) run(ctx context.Context, b *bench, d time.Duration) (gs []*gauge, err error) {
	h, err := e.open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	e.want = make([]objectContents, e.n)
	err = fillBy(b, 0, e.n, func(i int) error {
		draw := rand.New(rand.NewPCG(e.seed, uint64(i)))
		k := &enduranceCaller{enduranceRun: e, host: h}
		in := initialContents{After: time.Duration(draw.Int64N(int64(e.every))), Rows: 1 + draw.IntN(maxRows)}
		return k.apply(ctx, i, objectContents{Rows: in.Rows}, func(ctx context.Context, s dohost.Stub[enduranceObject]) (objectContents, error) {
			return dohost.Call(ctx, s, (*enduranceObject).begin, in)
		})
	})
	if err != nil {
		return nil, err
	}
	heapAfterGC()
	gs = append(gauges(e.dir), e.rateGauge())
	until := time.Now().Add(d)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	_ = together(1+enduranceCallers, func(i int) (err error) {
		defer func() {
			if err != nil {
				end(err) // the first error causes those of other callers
			}
		}()
		if i == 0 {
			return watch(ctx, gs, d)
		}
		k := &enduranceCaller{enduranceRun: e, host: h, draw: rand.New(rand.NewPCG(e.seed, uint64(e.n+i)))}
		for time.Now().Before(until) {
			if err := k.step(ctx, i-1+enduranceCallers*k.draw.IntN(e.n/enduranceCallers)); err != nil {
				return err
			}
		}
		return nil
	})
	return gs, context.Cause(ctx)
}

// rateUnit is the unit of the callers' rate.
const rateUnit = "operations/s"

// rateGauge is a gauge of the operations in a second since the last sample.
func (e *enduranceRun) rateGauge() *gauge {
	last, before := time.Now(), e.ops.Load()
	return &gauge{name: "operations", unit: rateUnit, read: func() (float64, error) {
		now, ops := time.Now(), e.ops.Load()
		rate := float64(ops-before) / max(now.Sub(last), time.Microsecond).Seconds()
		last, before = now, ops
		return rate, nil
	}}
}

// verify opens the store again, without chaos, and returns the number of deliveries that its objects have counted.
func (e *enduranceRun) verify(ctx context.Context) (delivered int64, err error) {
	e.options.Chaos = dohost.Chaos{}
	h, err := e.open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for i := range e.want {
		s := enduranceObjects.Get(h, name(i))
		got, err := dohost.Call(ctx, s, (*enduranceObject).stopAlarms, 0)
		if err != nil {
			return 0, err
		}
		if err := e.check(i, got); err != nil {
			return 0, fmt.Errorf("%v: %w", s.ID(), err)
		}
		delivered += int64(got.Deliveries)
	}
	if wrong := e.alarms.wrong.Load(); wrong != nil {
		return 0, errors.New(*wrong)
	}
	return delivered, nil
}

// check returns an error unless an object has the contents of its last answer, and all alarms that the alarm record
// counted.
func (e *enduranceRun) check(i int, got objectContents) error {
	if want := e.want[i].callerOwned(); got.callerOwned() != want {
		return fmt.Errorf("it holds %+v, want %+v", got.callerOwned(), want)
	}
	r := e.alarms.deliveries[name(i)]
	least := r.durable.Load()
	most := least + r.unknown.Load()
	least = max(least, int64(e.want[i].Deliveries))
	if n := int64(got.Deliveries); n < least || n > most {
		return fmt.Errorf("it has counted %d deliveries of its alarm, want %d to %d", n, least, most)
	}
	return nil
}
