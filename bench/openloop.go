package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// arrivals returns the due times of calls, from the beginning on: independent of each other, rate a second on average.
// The first may be later than d, so that there is always one.
func arrivals(seed uint64, rate float64, d time.Duration) (due []time.Duration) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for at := 0.0; ; {
		at += draw.ExpFloat64() / rate
		if at >= d.Seconds() && len(due) > 0 {
			return due
		}
		due = append(due, time.Duration(at*float64(time.Second)))
	}
}

// openLoop makes calls when they are due, independently of earlier calls. It starts a caller if none is free, up to a
// bound: beyond it a call waits, and the wait counts.
type openLoop struct {
	due     []time.Duration
	callers int
	late    *hdrhistogram.Histogram // from the due time of a call to its start
	call    func(ctx context.Context) (answered bool, err error)
	took    time.Duration // time to issue all calls; longer than planned if the callers were too few
}

// yieldEvery is the number of overdue calls that are issued before other goroutines get the processor.
const yieldEvery = 64

// run counts answered calls, from their due times.
func (l *openLoop) run(ctx context.Context, m *meter) (err error) {
	var (
		began   = time.Now()
		calls   = make(chan time.Time) // their due times
		wg      sync.WaitGroup
		callers []*caller
	)
	for i, due := range l.due {
		at := began.Add(due)
		if ahead := time.Until(at); ahead > 0 {
			time.Sleep(ahead)
		} else if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		err = errors.Join(err, record(l.late, time.Since(at), 1))
		if !offer(at, calls, len(callers) < l.callers) {
			c := &caller{worker: m.worker(), loop: l}
			callers = append(callers, c)
			wg.Go(func() { c.serve(ctx, at, calls) })
		}
	}
	l.took = time.Since(began)
	close(calls)
	wg.Wait()
	for _, c := range callers {
		err = errors.Join(err, c.err)
	}
	return err
}

// offer passes a call to a free caller. If none is free it returns false, or waits if there may be no more callers.
func offer(at time.Time, calls chan<- time.Time, more bool) bool {
	if !more {
		calls <- at
		return true
	}
	select {
	case calls <- at:
		return true
	default:
		return false
	}
}

// caller makes the calls that it receives.
type caller struct {
	*worker
	loop *openLoop
	err  error // the first
}

// serve makes the call that is due at a time, and then those that it receives.
func (c *caller) serve(ctx context.Context, at time.Time, calls <-chan time.Time) {
	for ok := true; ok; at, ok = <-calls {
		answered, err := c.loop.call(ctx)
		switch {
		case c.err == nil && err != nil:
			c.err = err
		case answered:
			c.did(at)
		}
	}
}
