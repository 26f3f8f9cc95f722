package agent

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dohost/dohost/internal/work"
)

// Park parks rows of a collection that wait after a [PostponeError] or a failed call, together with the other rows of their calls, as if the calls
// had failed too often. The text of cause is for operators. A retry, or a write of a row by other code, makes the rows due again. Park returns the
// number of these calls. It skips a row that does not wait: its call is running, the row is already parked, or no call for it has begun.
// Everything is one batch.
//
// Errors: those of the collections.
func (r Rows) Park(ctx context.Context, collection string, keys []string, cause error) (parked int, err error) {
	rw := r.work
	err = rw.rows.transaction(ctx, func(ctx context.Context) error {
		for _, x := range rw.indexes {
			if x.collection != collection {
				continue
			}
			for _, key := range keys {
				t, ok, err := rw.member(ctx, x, key)
				if err != nil {
					return err
				}
				if !ok || t.State != work.Waiting {
					continue
				}
				t.Item, t.Error, t.Postponed = work.Item{State: work.Dead, Attempt: t.Attempt}, short(cause.Error()), false
				if err := rw.park(ctx, x, &t); err != nil {
					return err
				}
				parked++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return parked, nil
}

// park stores and reports a task whose rows are parked, and calls the hooks of the extensions in the same batch.
func (rw *rowWork) park(ctx context.Context, x *indexWork, t *rowTask) error {
	rw.report(ctx, "rows:parked", errors.New(t.Error), slog.String("index", t.Index), slog.String("id", t.ID), slog.Int("rows", len(t.Keys)))
	rw.wakeWaiters()
	if err := put(ctx, rw.rows, &rowTasks, t); err != nil {
		return err
	}
	return rw.of.rowsParked(ctx, x.collection, t.Keys)
}

// rowsParked calls the hooks of the extensions.
func (c *core) rowsParked(ctx context.Context, collection string, keys []string) error {
	for _, x := range c.class.extensions {
		if x.rowsParked == nil {
			continue
		}
		if err := x.rowsParked(ctx, Handle{c}, collection, keys); err != nil {
			return err
		}
	}
	return nil
}

// parkDamaged parks a row that does not decode, without the other rows of its task if it has some.
func (rw *rowWork) parkDamaged(ctx context.Context, x *indexWork, t *rowTask, key string, cause error) error {
	parked := *t
	parked.Keys, parked.Error = []string{key}, short(cause.Error())
	if len(t.Keys) > 1 {
		parked.ID = rw.newID()
	}
	parked.Item = work.Item{State: work.Dead, Attempt: t.Attempt}
	return rw.park(ctx, x, &parked)
}
