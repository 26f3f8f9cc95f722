package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// everyMS are calls due at each millisecond.
func everyMS(n int) (due []time.Duration) {
	for i := range n {
		due = append(due, time.Duration(i)*time.Millisecond)
	}
	return due
}

// slowLoop is an open loop with calls of 5 ms each, which does not measure.
func slowLoop(due []time.Duration, callers int) *openLoop {
	return &openLoop{due: due, callers: callers, late: newHistogram(), call: func(context.Context) (bool, error) {
		time.Sleep(5 * time.Millisecond)
		return true, nil
	}}
}

// A call that waits because its target is slow counts from its due time.
func TestOpenLoopMeasuresFromTheDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		if err := slowLoop(everyMS(4), 1).run(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{5e6, 9e6, 13e6, 17e6} // they end at 5, 10, 15 and 20 ms
		if got := m.workers[0].took; m.ops() != 4 || !slices.Equal(got, want) {
			t.Errorf("%d calls, %v, want %v", m.ops(), got, want)
		}
	})
}

// It issues all calls in time, with as many callers as a slow target needs.
func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := &meter{}, slowLoop(everyMS(100), 1000)
		if err := l.run(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if l.took != 99*time.Millisecond || m.ops() != 100 || len(m.workers) > 6 {
			t.Errorf("%d calls offered in %v by %d callers", m.ops(), l.took, len(m.workers))
		}
		for _, w := range m.workers {
			if took := slices.Max(w.took); took != 5*time.Millisecond {
				t.Errorf("a call took %v", took)
			}
		}
	})
}

func TestOpenLoopArrivalsMatchTheRate(t *testing.T) {
	due := arrivals(1, 1000, 10*time.Second)
	if n := len(due); n < 9700 || n > 10_300 || !slices.IsSorted(due) || due[n-1] >= 10*time.Second {
		t.Errorf("%d arrivals, the last at %v", n, due[n-1])
	}
	if !slices.Equal(due, arrivals(1, 1000, 10*time.Second)) || slices.Equal(due, arrivals(2, 1000, 10*time.Second)) {
		t.Error("they do not depend on the seed, or not on it alone")
	}
}

// Calls beyond an object's limit are refused, and did not run.
func TestOverloadRefusedCallsDidNotRun(t *testing.T) {
	b := small(t)
	h, err := b.open(dohost.Options{MaxEvents: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }() // the last host
	o := &openLoopSide{traffic: newTraffic(h, 1, (*subject).addSlowly), callers: 1000, rate: 20_000}
	r, err := oneRound(t.Context(), o, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if seen := o.seen[0]; seen.refused == 0 || seen.refused+r.ops != seen.calls {
		t.Errorf("of %d calls %d were answered and %d refused", seen.calls, r.ops, seen.refused)
	}
	for d := int64(-1); d <= 1; d++ {
		if err := o.verify(t.Context(), r.ops+d); (err == nil) != (d == 0) {
			t.Errorf("%d of %d calls: %v", r.ops+d, r.ops, err)
		}
	}
	o.answered[0].Add(1)
	if o.verify(t.Context(), r.ops) == nil {
		t.Error("an answered call that is not there was not noticed")
	}
}
