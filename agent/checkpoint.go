package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// ErrFiberDone is the error of an operation on a fiber that has ended or was cancelled.
var ErrFiberDone = errors.New("agent: the fiber has ended")

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
		return &dohost.LimitError{Subject: "checkpoint", Size: len(checkpoint), Limit: maxCheckpoint}
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

// errMoved is the error of a change that needs the alarm.
var errMoved = errors.New("agent: the fiber's time has changed without its alarm")

// updateRunning is update for a change after which the fiber needs the same alarm, such as a new checkpoint.
func (fs *fibers) updateRunning(ctx context.Context, id string, change func(*fiberRow) error) error {
	_, err := fs.update(fs.rows.keepAlarm(ctx), id, func(r *fiberRow) error {
		pending, at := r.pending(), r.NotBefore
		if err := change(r); err != nil {
			return err
		}
		if r.pending() != pending || r.NotBefore != at {
			return errMoved
		}
		return nil
	})
	return err
}

// maxCheckpoint bounds checkpoints, in bytes of JSON: a row holds nearly 2 MiB, and needs room for the fields that
// recovery adds.
const maxCheckpoint = 2<<20 - 64<<10

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
