package randtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// Fault is a fault of the host.
type Fault struct {
	Kind FaultKind
	At   int `json:",omitempty"` // milliseconds after the beginning of the run
	For  int `json:",omitempty"` // milliseconds before the next process
}

// FaultKind is the kind of a fault.
type FaultKind string

// The kinds of faults.
const (
	PowerCut FaultKind = "PowerCut"
	Kill     FaultKind = "Kill"
	SyncFail FaultKind = "SyncFail" // the syncs of the process fail
	Restart  FaultKind = "Restart"  // the process closes in good order
)

var faultKinds = []FaultKind{PowerCut, Kill, SyncFail, Restart}

// GoString returns the name of the constant.
func (k FaultKind) GoString() string { return "randtest." + string(k) }

// ErrSync is the error of a sync that a fault makes fail.
var ErrSync = errors.New("a sync of the disk failed")

// make makes the fault happen.
func (f Fault) make(h *dohosttest.Host) error {
	switch f.Kind {
	case SyncFail:
		h.FailSync(ErrSync)
		h.Advance(milliseconds(f.For))
	case PowerCut, Kill:
		h.EndFor(modes[f.Kind], milliseconds(f.For))
		return nil
	}
	err := h.Restart()
	if err != nil && (strings.Contains(err.Error(), ErrSync.Error()) || errors.Is(err, dohost.ErrFenced) || errors.Is(err, dohost.ErrClosed)) {
		return nil // this fault, or an ending while the host closes
	}
	return err
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Run returns the Run of a scenario with concurrent callers, and faults of the host. Each act begins at its time, in
// milliseconds after the beginning, or after the previous act of its caller, if that is later.
func Run[A any](work [][]A, faults []Fault, at func(A) int, do func(context.Context, *dohosttest.Host, A) error) func(context.Context, *dohosttest.Host) error {
	return func(_ context.Context, h *dohosttest.Host) error {
		begun := time.Now()
		wait := func(at int) { h.Advance(time.Until(begun.Add(milliseconds(at)))) }
		h.Client(func(context.Context) error {
			for _, f := range faults {
				wait(f.At)
				if err := f.make(h); err != nil {
					return fmt.Errorf("%s: %w", f.Kind, err)
				}
			}
			return nil
		})
		for _, acts := range work {
			h.Client(func(ctx context.Context) error {
				for _, a := range acts {
					wait(at(a))
					if err := do(ctx, h, a); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return nil // dohosttest waits for the clients
	}
}
