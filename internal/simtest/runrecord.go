package simtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost"
)

// none is the empty argument or result of a method.
type none = struct{}

// runRecord records a run outside of its objects, so that no ending loses the record.
type runRecord struct {
	mu           sync.Mutex
	faults       []string
	seen         map[string]int
	incarnations map[string]int
	processes    uint64 // processes until the last incarnation began
	crashed      bool   // of an object
	newest       int    // serial of the newest incarnation that has used its storage
}

func (w *runRecord) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults, w.seen, w.incarnations, w.processes = nil, map[string]int{}, map[string]int{}, 0
	w.crashed, w.newest = false, 0
}

// listener counts incarnations and processes.
func (w *runRecord) listener() dohost.Listener {
	return dohost.Listener{
		Waking: func(id dohost.ID, e dohost.Epoch) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.incarnations[id.String()]++
			w.processes = max(w.processes, e.Host)
		},
		Fenced: func(e dohost.Ended) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.crashed = w.crashed || e.Mode == dohost.EndCrash
		},
	}
}

// recordUse records that the storage of an incarnation has answered. It must not answer after
// the storage of a newer one has.
func (w *runRecord) recordUse(serial int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if serial < w.newest {
		w.faults = append(w.faults, fmt.Sprintf("incarnation %d uses its storage after %d has", serial, w.newest))
	}
	w.newest = max(w.newest, serial)
}

// restarted reports whether a process has ended, once an object has woken in the next one.
func (w *runRecord) restarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes > 1
}

// mayLoseWrites reports whether an ending may have lost writes that were not on their way to the disk.
func (w *runRecord) mayLoseWrites() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crashed || w.processes > 1
}

// faultf records a fault.
func (w *runRecord) faultf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// count counts something, and returns how often it was seen.
func (w *runRecord) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
	return w.seen[what]
}

func (w *runRecord) countOf(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[what]
}

// endings returns how many incarnations of an object have ended and have a successor.
func (w *runRecord) endings(id dohost.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.incarnations[id.String()]-1)
}

// mayPostpone reports whether an alarm may be due again later although its handler did not
// fail: two processes may have ended while its run was charged, where the first charged run
// is that of the second process.
func (w *runRecord) mayPostpone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes > 3
}

// onTime reports whether the Scheduled time of a run is the time that the alarm was set for, both in milliseconds,
// or a later one if the alarm may have been postponed.
func (w *runRecord) onTime(scheduled, due int64) bool {
	return scheduled == due || scheduled > due && w.mayPostpone()
}

// err returns the faults as an error.
func (w *runRecord) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(w.faults, "; "))
}

// retry repeats a retryable call until it is answered. Its error has only the text of the
// last one: EveryPoint excuses a client for the end of an incarnation, but must not excuse
// this failure.
func retry(ctx context.Context, fn func(context.Context) error) error {
	o := &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent, MaxAttempts: -1, MaxElapsed: time.Hour}
	if err := dohost.Retry(ctx, o, fn); err != nil {
		return fmt.Errorf("a client gives up: %v", err)
	}
	return nil
}

// retryCall is retry for one method.
func retryCall[O, In, Out any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) (Out, error), in In) (out Out, err error) {
	err = retry(ctx, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, s, m, in)
		return err
	})
	return out, err
}

// differ returns an error if a part of an object is not as expected.
func differ(what string, got, want any) error {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		return fmt.Errorf("%s: %s, want %s", what, g, w)
	}
	return nil
}
