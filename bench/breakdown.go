package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/runtime"
)

// Breakdown divides the time of an operation into consecutive parts, which add up to the whole.
type Breakdown struct {
	ID, What string
	Whole    time.Duration // the mean
	Parts    []Part
	Ops      int
}

// Part is a piece of the way.
type Part struct {
	What string
	Mean time.Duration
	P50  time.Duration
}

// mark is the end of a part: a place that the operation passes.
type mark struct {
	place eviction.Place
	what  string // the part from the previous mark to this one
}

// stopwatch records the last time at each place. Places that other goroutines pass count too: the operation waits for
// them.
type stopwatch [eviction.NumPlaces]atomic.Int64

func (s *stopwatch) at(p runtime.Point) eviction.EndMode {
	s[p.Place].Store(time.Now().UnixNano())
	return eviction.EndNone
}

// breakdownOps is the number of operations for each second of a round's duration.
const breakdownOps = 2000

// measure repeats an operation, alone. It calls before first each time, and does not measure it.
func (s *stopwatch) measure(what string, n int, marks []mark, before, op func() error) (Breakdown, error) {
	times := make([][]time.Duration, len(marks)+1)
	b := Breakdown{What: what, Ops: n}
	for range n {
		if err := before(); err != nil {
			return b, err
		}
		for i := range s {
			s[i].Store(0)
		}
		began := time.Now().UnixNano()
		if err := op(); err != nil {
			return b, err
		}
		ended := time.Now().UnixNano()
		for i, m := range marks {
			at := s[m.place].Load()
			if at < began || at > ended {
				return b, fmt.Errorf("%s: %v is not on the way, after %q", what, m.place, m.what)
			}
			times[i] = append(times[i], time.Duration(at-began))
			began = at
		}
		times[len(marks)] = append(times[len(marks)], time.Duration(ended-began))
	}
	names := append(slices.Clone(marks), mark{what: "return"})
	for i, ts := range times {
		var sum time.Duration
		for _, t := range ts {
			sum += t
		}
		b.Parts = append(b.Parts, Part{What: names[i].what, Mean: sum / time.Duration(n), P50: median(ts)})
		b.Whole += sum / time.Duration(n)
	}
	return b, nil
}

// breakdowns divides the time of a durable call, and that of a cold wake.
func breakdowns(ctx context.Context, b *bench) (err error) {
	var watch stopwatch
	var o dohost.Options
	kernel.Tune(&o, func(ro *runtime.Options) { ro.Policy.At = watch.at })
	h, err := b.open(o, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	s := subjects.Get(h, name(0))
	for range wakeRows {
		if _, err := dohost.Call(ctx, s, (*subject).append, 1); err != nil {
			return err
		}
	}
	n := max(50, int(b.duration.Seconds()*breakdownOps))
	b.progress("%d durable calls", n)
	durable, err := watch.measure("durable increment, 1 object, 1 caller", n, []mark{
		{eviction.PlaceSend, "the call: argument, event"},
		{eviction.PlaceStart, "queue, passed to a runner"},
		{eviction.PlaceCommit, "handler: read, decode, encode, write"},
		{eviction.PlaceRecord, "commit"},
		{eviction.PlaceSync, "record: batch, log buffer, memtable"},
		{eviction.PlaceDurable, "write and sync of the log, by Pebble and the disk"},
		{eviction.PlaceRelease, "release of the waiting outputs"},
		{eviction.PlaceAnswer, "answer to the caller"},
	}, func() error { return nil }, func() error { _, err := dohost.Call(ctx, s, (*subject).add, 1); return err })
	if err != nil {
		return err
	}
	b.progress("%d cold wakes", n)
	wake, err := watch.measure(fmt.Sprintf("cold wake and a read of %d rows, 1 caller", wakeRows), n, []mark{
		{eviction.PlaceSend, "the call: argument, event"},
		{eviction.PlaceWake, "table entry, queue, passed to a runner"},
		{eviction.PlaceConstruct, "the next incarnation: epoch, queue, batch"},
		{eviction.PlaceStart, "constructor, and the end of its section"},
		{eviction.PlaceCommit, "handler: iterator, rows, decode"},
		{eviction.PlaceRelease, "commit of an empty batch, release"},
		{eviction.PlaceAnswer, "answer to the caller"},
	}, func() error { h.Evict(s.ID(), dohost.EndFence); return nil },
		func() error { _, err := dohost.Call(ctx, s, (*subject).first, 0); return err })
	if err != nil {
		return err
	}
	durable.ID, wake.ID = "B1", "B2"
	for _, d := range []Breakdown{durable, wake} {
		b.result.Breakdowns = append(b.result.Breakdowns, d)
		b.progress("%s", d.text())
	}
	return nil
}

// text is the breakdown as a table, for a terminal and for results.md.
func (d *Breakdown) text() string {
	out := fmt.Sprintf("%s: %s: %s, the mean of %s\n\n| part | mean | of the whole | p50 |\n|---|---|---|---|\n",
		d.ID, d.What, duration(d.Whole), number(float64(d.Ops)))
	for _, p := range d.Parts {
		share := 100 * float64(p.Mean) / float64(d.Whole)
		out += fmt.Sprintf("| %s | %s | %.0f %% | %s |\n", p.What, duration(p.Mean), share, duration(p.P50))
	}
	return out
}
