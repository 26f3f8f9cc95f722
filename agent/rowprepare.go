package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/dohost/dohost"
)

// prepare returns the rows of a call that is about to call the method, and the causes why others cannot be read or written. It is false if the
// call has no task any more. It waits while the batch or the disk is full: the call would otherwise run until the incarnation ends.
func (rw *rowWork) prepare(ctx context.Context, x *indexWork, call *rowCall) (t rowTask, rows []any, damaged map[string]error, ok bool, err error) {
	damaged = map[string]error{}
	for {
		if t, ok, err = rw.taskOf(ctx, call); err != nil || !ok {
			return t, nil, nil, false, err
		}
		var stale []string
		rows, stale, err = rw.readRows(ctx, x, t, damaged)
		if err == nil && len(stale) == 0 {
			return t, rows, damaged, true, nil
		}
		if err == nil {
			err = rw.rewriteStale(ctx, x, stale, damaged) // other code may run, so the rows are read again
		}
		_, full := errors.AsType[*dohost.LimitError](err)
		switch {
		case err == nil:
			continue
		case !full && !errors.Is(err, dohost.ErrNoSpace):
			return t, nil, nil, false, err
		}
		rw.report(ctx, "rows:error", err, slog.String("index", call.Index), slog.String("id", call.ID))
		if err := dohost.Sleep(ctx, overloadPause); err != nil {
			return t, nil, nil, false, err
		}
	}
}

// readRows reads the rows of a call. stale are the rows that the stored index has, although Index.Of does not return this place any more.
func (rw *rowWork) readRows(ctx context.Context, x *indexWork, t rowTask, damaged map[string]error) (rows []any, stale []string, err error) {
	var moved []string
	for _, key := range t.Keys {
		if damaged[key] != nil {
			continue
		}
		row, listed, err := x.read(ctx, rw.store(), key)
		switch {
		case errors.Is(err, dohost.ErrFenced), errors.Is(err, dohost.ErrMisuse):
			return nil, nil, err
		case err != nil:
			damaged[key] = err
		case listed && len(rows) > 0 && !x.sameGroup(row, rows[0]):
			moved = append(moved, key)
		case listed:
			rows = append(rows, row)
		case row != nil:
			stale = append(stale, key)
		}
	}
	return rows, stale, rw.dropMoved(ctx, x, t, moved)
}

// rewriteStale writes stale rows again. They are not work, and otherwise the index would have them for ever. Each gets a new batch if the last
// one is full.
func (rw *rowWork) rewriteStale(ctx context.Context, x *indexWork, keys []string, damaged map[string]error) error {
	for _, key := range keys {
		err := retryInNewBatch(ctx, func() error { return x.rewrite(ctx, rw.store(), key) })
		_, tooLarge := errors.AsType[*dohost.LimitError](err)
		switch {
		case tooLarge:
			damaged[key] = err
		case err != nil && !errors.Is(err, dohost.ErrNotFound):
			return err
		}
	}
	return nil
}

// dropMoved removes rows whose group has changed since their task was made. They have no task then, and are due.
func (rw *rowWork) dropMoved(ctx context.Context, x *indexWork, t rowTask, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	t.Keys = slices.DeleteFunc(slices.Clone(t.Keys), func(k string) bool { return slices.Contains(keys, k) })
	if err := put(ctx, rw.rows, &rowTasks, &t); err != nil {
		return err
	}
	for _, key := range keys {
		x.endRunning(key)
	}
	x.after, x.atEnd = "", false
	return nil
}
