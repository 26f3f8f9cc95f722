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

// arrivals are when calls are due, from the beginning on: independent of each other, and
// so many a second on average.
func arrivals(seed uint64, rate float64, d time.Duration) (due []time.Duration) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for at := 0.0; ; {
		at += draw.ExpFloat64() / rate
		if at >= d.Seconds() {
			return due
		}
		due = append(due, time.Duration(at*float64(time.Second)))
	}
}

// openLoop makes calls when they are due, whatever has become of those before. Who makes
// them is started when nobody is free, up to a bound: beyond it a call waits, and the
// time counts.
type openLoop struct {
	due     []time.Duration
	callers int
	late    *hdrhistogram.Histogram // from when a call was due to when somebody had it
	call    func(ctx context.Context) (answered bool, err error)
	took    time.Duration // to offer all; longer than was meant if the callers were too few
}

// breath is how many calls that are overdue are handed out before others get a turn at
// the processor.
const breath = 64

// run counts what was answered, from when it was due.
func (l *openLoop) run(ctx context.Context, m *meter) (err error) {
	var (
		began   = time.Now()
		calls   = make(chan time.Time) // when they are due
		wg      sync.WaitGroup
		callers []*caller
	)
	for i, due := range l.due {
		at := began.Add(due)
		if ahead := time.Until(at); ahead > 0 {
			time.Sleep(ahead)
		} else if i%breath == 0 {
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

// offer hands a call to a caller who is free. If there is none it waits for one, unless
// there may be more of them.
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

// caller makes calls that it is handed.
type caller struct {
	*worker
	loop *openLoop
	err  error // the first
}

// serve makes the call that is due at a time, and then those that come.
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
