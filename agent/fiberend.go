package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// callOutcome is the outcome of a call of a fiber's method.
type callOutcome struct {
	run    uint64 // the number of the run
	result json.RawMessage
	failed error
	final  bool // it failed, and is not retried
}

// write writes a row with this outcome. If the result does not fit into the row, the fiber fails: its effects
// stay.
func (e *callOutcome) write(do func() error) error {
	err := do()
	if _, full := errors.AsType[*dohost.LimitError](err); full {
		*e = callOutcome{run: e.run, failed: fmt.Errorf("agent: the fiber's result: %w", err), final: true}
		err = do()
	}
	return err
}

// applyOutcome sets the outcome of a call of a fiber's method in its row.
func (fs *fibers) applyOutcome(r *fiberRow, e *callOutcome, now time.Time) error {
	eff, err := fs.step(r, work.Event{Kind: work.Returned, Run: e.run, Failed: e.failed != nil, Final: e.final}, now)
	switch {
	case err != nil:
		return err
	case eff == work.Refused:
		return errCancelled
	case e.failed != nil:
		r.Error = truncatedText(e.failed)
	default:
		r.Result = e.result
	}
	return nil
}

// errCancelled ends the update of a row that has ended in the meantime.
var errCancelled = errors.New("agent: the fiber was cancelled")

// recordOutcomeLater is for a full disk. Work that has ended must not run again, so it deletes the fiber's row
// immediately, which needs no space, and writes the ended row again when there is space. The row of a failed
// call that will be retried stays, and gets the outcome then, unless the fiber was cancelled.
func (fs *fibers) recordOutcomeLater(ctx context.Context, row *fiberRow, e *callOutcome) error {
	before, ok, err := get(ctx, fs.rows, &fiberRows, row.ID) // with the checkpoints of the call
	if err != nil {
		return err
	}
	if !ok {
		return errCancelled
	}
	ended, now := before, time.Now()
	if err := fs.applyOutcome(&ended, e, now); err != nil {
		return err
	}
	if !ended.Open() {
		if _, err := fs.delete(ctx, row.ID); err != nil {
			return err
		}
	}
	for {
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if ended.Open() {
			err = fs.recordOutcome(ctx, row, e)
		} else {
			err = e.write(func() error {
				*row = before
				if err := fs.applyOutcome(row, e, now); err != nil {
					return err
				}
				return fs.put(ctx, row)
			})
		}
		if !errors.Is(err, dohost.ErrNoSpace) {
			return err
		}
	}
}

// end deletes a row, in the batch of the last writes if the row fits into it.
func (fs *fibers) end(ctx context.Context, id string) error {
	return retryInNewBatch(ctx, func() error {
		_, err := fs.delete(ctx, id)
		return err
	})
}

// firstExpiry returns when the first ended fiber expires. An incarnation reads it once, and each end of a fiber
// updates it: if it is too early, the alarm reads it again. It must not be too late, so code that restarts such a fiber in a
// Transaction, which may be rolled back, reads it before. After a deletion it is remembered only with sure: see rows.arm.
func (fs *fibers) firstExpiry(ctx context.Context, sure bool) (wakeup, error) {
	t := &fs.times
	if t.expiryRead {
		return wakeup{at: timeOf(t.expiry)}, nil
	}
	row, _, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "expires"})
	if err != nil {
		return wakeup{}, err
	}
	if sure || !t.deleted {
		t.expiryRead, t.expiry, t.deleted = true, row.Expires, false
	}
	return wakeup{at: timeOf(row.Expires)}, nil
}

// expiryBatch bounds the fibers that one batch deletes.
const expiryBatch = 500

func (fs *fibers) expire(ctx context.Context, now time.Time) error {
	t := &fs.times
	if t.expiryRead && (t.expiry == 0 || t.expiry > now.UnixMilli()) {
		return nil
	}
	t.expiryRead = false
	rows, err := fiberRows.List(ctx, fs.store(), &dohost.Query[fiberRow]{
		Index: "expires", End: dohost.KeyOf(now.UnixMilli()).PrefixEnd(), Limit: expiryBatch,
	})
	for _, r := range rows {
		if err == nil {
			_, err = fs.delete(ctx, r.Key)
		}
	}
	return err
}
