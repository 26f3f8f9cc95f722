package guard

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Within calls f on a goroutine of its own, and waits until f has ended, for timeout at
// most. A call that takes longer counts in stuck until f has ended.
//
// Errors: a *Failure if f ended without returning; an error that names timeout if f has not ended.
func Within(timeout time.Duration, stuck *atomic.Int64, f func()) error {
	var decided atomic.Bool // set by the first of the two: the end of f, and the end of the wait
	ended := Start(func() {
		defer func() {
			if !decided.CompareAndSwap(false, true) {
				stuck.Add(-1)
			}
		}()
		f()
	})
	late := time.NewTimer(timeout)
	defer late.Stop()
	var failure *Failure
	select {
	case failure = <-ended:
	case <-late.C:
		stuck.Add(1)
		if decided.CompareAndSwap(false, true) {
			return fmt.Errorf("the function has not returned after %v", timeout)
		}
		stuck.Add(-1) // f has just ended
		failure = <-ended
	}
	if failure != nil {
		return failure
	}
	return nil
}

// resultWithin is Within for a function with a result.
func resultWithin[T any](stuck *atomic.Int64, f func() T) (v T, err error) {
	result := make(chan T, 1)
	if err := Within(callTimeout, stuck, func() { result <- f() }); err != nil {
		return v, err
	}
	return <-result, nil
}
