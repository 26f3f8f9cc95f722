package agent

import (
	"context"

	"github.com/dohost/dohost/internal/work"
)

// Park parks a row that waits, because a [PostponeError] has postponed it or its last call has failed, and with it the other rows of that call:
// as if their calls had failed too often. why is the reason for operators. A retry, or a write of a row by other code, makes the rows due
// again. It returns false if the row does not wait: its call runs, it is parked already, or it has no call.
//
// Errors: those of the collections.
func (r Rows) Park(ctx context.Context, collection, key string, why error) (parked bool, err error) {
	rw := r.work
	err = rw.rows.transaction(ctx, func(ctx context.Context) error {
		for _, x := range rw.indexes {
			if x.collection != collection {
				continue
			}
			t, ok, err := rw.member(ctx, x, key)
			if err != nil {
				return err
			}
			if !ok || t.State != work.Waiting {
				continue
			}
			t.Item, t.Error = work.Item{State: work.Dead, Attempt: t.Attempt}, short(why.Error())
			if err := put(ctx, rw.rows, &rowTasks, &t); err != nil {
				return err
			}
			rw.reportParked(ctx, &t)
			rw.wakeWaiters()
			parked = true
		}
		return nil
	})
	return parked && err == nil, err
}
