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

// witness records a run outside of its objects, so that no ending loses the record.
type witness struct {
	mu     sync.Mutex
	faults []string
	seen   map[string]int
	lives  map[string]int
	hosts  uint64 // processes until the last incarnation began
	crash  bool   // of an object
	newest int    // serial of the newest incarnation that has used its storage
}

func (w *witness) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults, w.seen, w.lives, w.hosts = nil, map[string]int{}, map[string]int{}, 0
	w.crash, w.newest = false, 0
}

// listener counts incarnations and processes.
func (w *witness) listener() dohost.Listener {
	return dohost.Listener{
		Waking: func(id dohost.ID, e dohost.Epoch) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lives[id.String()]++
			w.hosts = max(w.hosts, e.Host)
		},
		Fenced: func(e dohost.Ended) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.crash = w.crash || e.Mode == dohost.EndCrash
		},
	}
}

// used records that the storage of an incarnation has answered. It must not answer after
// the storage of a newer one has.
func (w *witness) used(serial int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if serial < w.newest {
		w.faults = append(w.faults, fmt.Sprintf("incarnation %d uses its storage after %d has", serial, w.newest))
	}
	w.newest = max(w.newest, serial)
}

// restarted reports whether a process has ended, once an object has woken in the next one.
func (w *witness) restarted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts > 1
}

// mayDrop reports whether an ending may have lost writes that were not on their way to the disk.
func (w *witness) mayDrop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crash || w.hosts > 1
}

// fault records a fault.
func (w *witness) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// see counts something, and returns how often it was seen.
func (w *witness) see(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
	return w.seen[what]
}

func (w *witness) times(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[what]
}

// endings returns how many incarnations of an object have ended and have a successor.
func (w *witness) endings(id dohost.ID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, w.lives[id.String()]-1)
}

// mayPostpone reports whether an alarm may be due again later although its handler did not
// fail: two processes may have ended while its run was charged, where the first charged run
// is that of the second process.
func (w *witness) mayPostpone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hosts > 3
}

// onTime reports whether the Scheduled time of a run is the time that the alarm was set for, both in milliseconds,
// or a later one if the alarm may have been postponed.
func (w *witness) onTime(scheduled, due int64) bool {
	return scheduled == due || scheduled > due && w.mayPostpone()
}

// wrong returns the faults as an error.
func (w *witness) wrong() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(w.faults, "; "))
}

// surely repeats a retryable call until it is answered. Its error has only the text of the
// last one: EveryPoint excuses a client for the end of an incarnation, but must not excuse
// this failure.
func surely(ctx context.Context, fn func(context.Context) error) error {
	o := &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent, MaxAttempts: -1, MaxElapsed: time.Hour}
	if err := dohost.Retry(ctx, o, fn); err != nil {
		return fmt.Errorf("a client gives up: %v", err)
	}
	return nil
}

// ask is surely for one method.
func ask[O, In, Out any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) (Out, error), in In) (out Out, err error) {
	err = surely(ctx, func(ctx context.Context) (err error) {
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
