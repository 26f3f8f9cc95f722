// Package lifecycletest helps to test states: Stress abuses the starting and stopping of a service (the Host,
// a scheduler, a sweeper, a server), and Drawn reads the diagram of a state machine, for a comparison with its code.
package lifecycletest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	workers = 10
	rounds  = 50

	// callTimeout limits the time of one start or stop. It is a deadline for deadlocks, not for slow machines.
	callTimeout = time.Minute
)

// Stress starts and stops a service from ten goroutines, fifty times each and in no order,
// then stops it once more. A service survives that if both calls may be made at any moment,
// any number of times. The caller checks that the last stop has ended everything. Stress
// finds most when the test runs with -race.
func Stress(tb testing.TB, start, stop func()) {
	tb.Helper()
	var wg sync.WaitGroup
	var returned atomic.Int64
	called := func(f func()) {
		f()
		returned.Add(1)
	}
	for worker := range workers {
		wg.Go(func() {
			for range rounds {
				// Half of them stop first, so that a stop meets a service
				// that was never started, and a start one that is stopping.
				if worker%2 == 0 {
					called(start)
				}
				called(stop)
				if worker%2 == 1 {
					called(start)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
		stop()
	}()
	tick := time.NewTicker(callTimeout)
	defer tick.Stop()
	for last := int64(-1); ; {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		n := returned.Load()
		if n == last {
			stacks := make([]byte, 1<<20)
			tb.Fatalf("starting and stopping hangs:\n%s", stacks[:runtime.Stack(stacks, true)])
		}
		last = n
	}
}
