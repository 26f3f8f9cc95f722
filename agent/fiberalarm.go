package agent

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// wakeup returns when the fibers need the alarm. While a fiber is open, the alarm is set to the next heartbeat or earlier,
// and is also delivered when the host starts.
func (fs *fibers) wakeup(ctx context.Context, now time.Time, sure bool) (wakeup, error) {
	expires, err := fs.firstExpiry(ctx)
	if err != nil || fs.none {
		return expires, err
	}
	beat, more := wakeup{at: now.Add(fs.class.options.KeepAlive), atStart: true}, wakeup{at: fs.rows.plan.continueAt}
	if fs.resumed && !fs.hookDelayed {
		fs.resumed = false
		return earliest(expires, beat, more), nil
	}
	row, ok, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "open"})
	fs.none = sure && err == nil && !ok
	if err != nil || !ok {
		return expires, err
	}
	if row.NotBefore == 0 && fs.hookDelayed {
		row, _, err = first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "open", Start: dohost.KeyOf(int64(1))})
		if err != nil {
			return wakeup{}, err
		}
	}
	again := timeOf(row.NotBefore)
	if row.NotBefore > 0 && !again.After(now) { // the disk or the task limit was full, or the call is being started
		again = now.Add(time.Second)
	}
	return earliest(expires, beat, more, wakeup{at: again}), nil
}

// firstExpiry returns when the first ended fiber expires. An incarnation reads it once, and each end of a fiber
// updates it: if it is too early, the alarm reads it again. It must not be too late, so code that deletes or
// restarts such a fiber in a Transaction, which may be rolled back, reads it before.
func (fs *fibers) firstExpiry(ctx context.Context) (wakeup, error) {
	if !fs.expiryRead {
		row, _, err := first(ctx, fs.rows, &fiberRows, dohost.Query[fiberRow]{Index: "expires"})
		if err != nil {
			return wakeup{}, err
		}
		fs.expiryRead, fs.expiry = true, row.Expires
	}
	return wakeup{at: timeOf(fs.expiry)}, nil
}

// expiryBatch bounds the fibers that one batch deletes.
const expiryBatch = 500

func (fs *fibers) expire(ctx context.Context, now time.Time) error {
	if first := fs.expiry; fs.expiryRead && (first == 0 || first > now.UnixMilli()) {
		return nil
	}
	fs.expiryRead = false
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

// deferRecovery makes the alarm continue recovery in a second.
func (fs *fibers) deferRecovery(ctx context.Context) error {
	return fs.rows.change(ctx, func(p *plan) {
		if p.continueAt.IsZero() {
			p.continueAt = time.Now().Add(time.Second)
		}
	})
}
