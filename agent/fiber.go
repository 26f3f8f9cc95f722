package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// ErrFiberDone is the error of an operation on a fiber that has ended or was cancelled.
var ErrFiberDone = errors.New("agent: the fiber has ended")

// FiberStatus is the state of a fiber.
type FiberStatus string

// The statuses of a fiber. The last five are final, except that an interrupted or dead fiber can be
// given another one by SetStatus, and all but a completed one can be restarted.
const (
	FiberPending     FiberStatus = "pending"     // it has not begun
	FiberRunning     FiberStatus = "running"     // it has; perhaps in an incarnation that has ended
	FiberCompleted   FiberStatus = "completed"   // its method has returned
	FiberFailed      FiberStatus = "failed"      // it has failed too often
	FiberCancelled   FiberStatus = "cancelled"   // by [Fibers.Cancel]
	FiberInterrupted FiberStatus = "interrupted" // its kind is no longer registered: see [Fibers.SetStatus]
	FiberDead        FiberStatus = "dead"        // OnInterrupted or OnRecovery failed too often: see [Fibers.Retry]
)

// fiberRow is the stored form of a fiber. The row of a fiber of StartFiber outlives the fiber's end, the row of
// one of RunFiber does not. Recovery reads and writes rows between the end of an incarnation and the next step of its
// fiber, so fields that are mostly zero are left out.
type fiberRow struct {
	work.Item
	ID         string
	Name       string // or its kind
	Started    bool   `msgpack:",omitempty"` // by StartFiber
	Key        string `msgpack:",omitempty"`
	Checkpoint []byte `msgpack:",omitempty"` // JSON; nil before the first one is saved
	Saved      uint64 `msgpack:",omitempty"` // the number of checkpoints that were saved
	// Work is the name of the work, if it is not that of the ID: see fiberRow.work.
	Work    string `msgpack:",omitempty"`
	Result  []byte `msgpack:",omitempty"` // JSON
	Error   string `msgpack:",omitempty"`
	Retries int    // see KindOptions.MaxRetries
	Number  uint64 // in the order of creation within the agent
	Created int64
	Began   int64 `msgpack:",omitempty"`
	Updated int64
	Ended   int64 `msgpack:",omitempty"`
}

// finalStatuses are the statuses of fibers that have ended.
var finalStatuses = [...]FiberStatus{work.Completed: FiberCompleted, work.Failed: FiberFailed, work.Cancelled: FiberCancelled}

// status returns the public state of the fiber.
func (r *fiberRow) status() FiberStatus {
	switch r.State {
	case work.Ended, work.Notifying:
		return finalStatuses[r.Outcome]
	case work.Orphaned:
		return FiberInterrupted
	case work.Dead:
		return FiberDead
	}
	if r.Began == 0 {
		return FiberPending
	}
	return FiberRunning
}

var fiberRows = dohost.Collection[fiberRow]{
	Name: "dohost.fibers",
	Key:  func(r fiberRow) string { return r.ID },
	Indexes: []dohost.Index[fiberRow]{
		{Name: "open", Of: func(r fiberRow) dohost.Key { return r.due() }},
		{Name: "started", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.Started, dohost.KeyOf(r.Number)) }},
		{Name: "key", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.Key != "", dohost.KeyOf(r.Key)) }},
		{Name: "expires", Of: func(r fiberRow) dohost.Key {
			return partialIndexKey(r.Expires != 0, dohost.KeyOf(r.Expires)+dohost.KeyOf(r.ID))
		}},
		{Name: "dead", Of: func(r fiberRow) dohost.Key { return partialIndexKey(r.State == work.Dead, dohost.KeyOf(r.Number)) }},
	},
}

// pending reports whether the row needs the alarm.
func (r *fiberRow) pending() bool { return r.Open() || r.State == work.Notifying }

// due returns the row's key in the index of rows that need the alarm, or "".
func (r *fiberRow) due() dohost.Key {
	return partialIndexKey(r.pending(), dohost.KeyOf(r.NotBefore)+dohost.KeyOf(r.Number))
}

// partialIndexKey returns a row's key in a partial index, or "" for a row that is not in that index.
func partialIndexKey(in bool, k dohost.Key) dohost.Key {
	if in {
		return k
	}
	return ""
}

// fiberCall is a call of a fiber's function or method in this incarnation.
type fiberCall struct {
	fibers *fibers
	id     string
	run    uint64 // the number of its run
	cancel context.CancelCauseFunc

	// Owned by the holder of the turn.
	saved    uint64        // the number of checkpoints, when it was last read
	returned bool          // a started fiber's method has returned
	done     chan struct{} // closed when the call has returned; nil without a waiter
}

type fiberKey struct{}

// FiberID returns the id of the fiber that runs with ctx.
func FiberID(ctx context.Context) (id string, ok bool) {
	f, ok := ctx.Value(fiberKey{}).(*fiberCall)
	if !ok {
		return "", false
	}
	return f.id, true
}

// SaveCheckpoint saves v, as JSON, as the checkpoint of the fiber that runs with ctx, and replaces the previous one. The
// checkpoint is on disk when SaveCheckpoint returns. If ctx holds the turn, all earlier writes are on disk too, and
// SaveCheckpoint keeps the turn while it waits; inside an Await, SaveCheckpoint acquires the turn itself. For a fiber
// with many small steps use [SetCheckpoint].
//
// Errors: [dohost.ErrMisuse] if ctx is not a fiber's and inside a [dohost.Transaction], where nothing is saved;
// [ErrFiberDone]; [dohost.ErrFenced] when the incarnation has ended; a [*dohost.LimitError] for more than nearly 2 MiB;
// one for a value that is not JSON.
func SaveCheckpoint(ctx context.Context, v any) error {
	f, checkpoint, err := checkpointOf(ctx, v)
	if err != nil {
		return err
	}
	// Sync is not possible inside a transaction, nor is Exclusive, which refuses before the checkpoint is written.
	err = dohost.Exclusive(ctx, func(ctx context.Context) error { return f.saveCheckpoint(ctx, checkpoint) })
	if errors.Is(err, dohost.ErrMisuse) {
		inAwait := false
		held := dohost.HoldTurn(ctx, func(ctx context.Context) error {
			inAwait = true
			return f.saveCheckpoint(ctx, checkpoint)
		})
		if inAwait || !errors.Is(held, dohost.ErrMisuse) {
			return held
		}
	}
	if err != nil {
		return err
	}
	return f.fibers.store().Sync(ctx)
}

// SetCheckpoint saves v like [SaveCheckpoint], but does not wait: the checkpoint commits with the event's other writes,
// and is durable before any output leaves the agent. It can be combined with other writes, also in a
// [dohost.Transaction]. It needs a ctx that holds the turn.
//
// Errors: [dohost.ErrMisuse] if ctx is not a fiber's or does not hold the turn, [ErrFiberDone]; [dohost.ErrFenced]; a
// [*dohost.LimitError] for more than nearly 2 MiB; one for a value that is not JSON.
func SetCheckpoint(ctx context.Context, v any) error {
	f, snapshot, err := checkpointOf(ctx, v)
	if err != nil {
		return err
	}
	return f.saveCheckpoint(ctx, snapshot)
}

// checkpointOf returns the fiber that runs with ctx, and v encoded as its checkpoint.
func checkpointOf(ctx context.Context, v any) (f *fiberCall, checkpoint []byte, err error) {
	f, ok := ctx.Value(fiberKey{}).(*fiberCall)
	if !ok {
		return nil, nil, errNoFiber
	}
	checkpoint, err = marshal(v)
	return f, checkpoint, err
}

func (f *fiberCall) saveCheckpoint(ctx context.Context, checkpoint []byte) error {
	if len(checkpoint) > maxCheckpoint {
		return &dohost.LimitError{What: "checkpoint", Size: len(checkpoint), Limit: maxCheckpoint}
	}
	err := f.fibers.updateRunning(ctx, f.id, func(r *fiberRow) error {
		before := r.Item
		eff, err := f.fibers.step(r, work.Event{Kind: work.Progressed, Run: f.run}, time.Now())
		switch {
		case err != nil:
			return err
		case eff == work.Refused || f.returned:
			return ErrFiberDone
		case bytes.Equal(r.Checkpoint, checkpoint): // that is no progress
			r.Item = before
		default:
			r.Checkpoint = checkpoint
		}
		r.Saved++ // also of an equal one: the work before it is not repeated
		return nil
	})
	if noRow(err) {
		return ErrFiberDone
	}
	return err
}

// maxName bounds the names of fibers, kinds and callbacks, and the keys and ids that callers choose,
// in bytes.
const maxName = 256

// reservedPrefix begins the names of fibers and collections that programs cannot use.
const reservedPrefix = "dohost."

const (
	// maxCheckpoint bounds checkpoints, in bytes of JSON: a row holds nearly 2 MiB, and needs room for the
	// fields that recovery adds.
	maxCheckpoint = 2<<20 - 64<<10
	// maxErrorText bounds how much of an error's text a row keeps, in bytes.
	maxErrorText = 4 << 10
)

// truncatedText returns the part of an error's text that a row keeps.
func truncatedText(err error) string {
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "")
}

// retryInNewBatch calls do, and calls it again in a new batch if the current one, which the user filled, has no room
// for it.
func retryInNewBatch(ctx context.Context, do func() error) error {
	err := do()
	if _, full := errors.AsType[*dohost.LimitError](err); full {
		if err = dohost.Sleep(ctx, 0); err == nil {
			err = do()
		}
	}
	return err
}

// decodeCheckpoint decodes a checkpoint, and reports whether there is one.
func decodeCheckpoint(checkpoint []byte, v any) (bool, error) {
	if checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(checkpoint, v); err != nil {
		return true, fmt.Errorf("agent: decoding the checkpoint: %w", err)
	}
	return true, nil
}
