package dohosttest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuckAfter is how long nothing may move, by the real clock, before a bubble is given up.
var stuckAfter = 20 * time.Second

var errStuck = errors.New("no progress")

// bubble runs f in a bubble of virtual time. Its error is a fault of the bubble itself:
// leaked goroutines, or goroutines that wait for something outside of virtual time, such as
// a real socket. moved counts the steps of the code in the bubble.
func bubble(t *testing.T, moved *atomic.Int64, f func(t *testing.T)) error {
	ended := make(chan error, 1)
	go func() {
		var err error
		defer func() { ended <- err }()
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("a goroutine has leaked (%v):\n%s", p, strings.Join(left(), "\n\n"))
			}
		}()
		synctest.Test(t, f)
	}()
	// A ticker drops the ticks of a process that was paused, so a pause counts as one tick.
	const ticks = 20
	tick := time.NewTicker(stuckAfter / ticks)
	defer tick.Stop()
	last, still := moved.Load(), 0
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		if n := moved.Load(); n != last {
			last, still = n, 0
		}
		if still++; still > ticks {
			return fmt.Errorf("%w for %v: a goroutine keeps running, or waits for something outside "+
				"virtual time, such as a real socket, a mutex that is never unlocked, or a host that was opened "+
				"outside the bubble:\n%s", errStuck, stuckAfter, strings.Join(left(), "\n\n"))
		}
	}
}

// left returns the stacks of the goroutines in bubbles, except the goroutines of ended
// bubbles themselves.
func left() (stacks []string) {
	buf := make([]byte, 1<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		head, _, _ := strings.Cut(s, "\n")
		if strings.Contains(head, "synctest bubble") && !strings.Contains(s, "synctest.Wait") &&
			!strings.Contains(s, "internal/synctest.Run") {
			stacks = append(stacks, s)
		}
	}
	return stacks
}
