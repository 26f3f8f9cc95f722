package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// FiberStatus is the state of a fiber.
type FiberStatus string

// The statuses of a fiber. The last five are final, except that SetStatus can change the status of an
// interrupted or dead fiber, and all but completed fibers can be restarted.
const (
	FiberPending     FiberStatus = "pending"     // it has not begun
	FiberRunning     FiberStatus = "running"     // it has; perhaps in an incarnation that has ended
	FiberCompleted   FiberStatus = "completed"   // its method has returned
	FiberFailed      FiberStatus = "failed"      // it has failed too often
	FiberCancelled   FiberStatus = "cancelled"   // by [Fibers.Cancel]
	FiberInterrupted FiberStatus = "interrupted" // its kind is no longer registered: see [Fibers.SetStatus]
	FiberDead        FiberStatus = "dead"        // OnInterrupted or OnRecovery failed too often: see [Fibers.Retry]
)

// FiberInfo describes a fiber.
type FiberInfo struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"` // or its kind
	Started    bool            `json:"started"`
	Key        string          `json:"key,omitempty"`
	Status     FiberStatus     `json:"status"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"` // the last one
	Attempt    int             `json:"attempt"`         // failures and interruptions; of RunFiber's, calls of the hook
	Retries    int             `json:"retries"`         // see KindOptions.MaxRetries
	Created    time.Time       `json:"created"`
	Updated    time.Time       `json:"updated"`
	Ended      time.Time       `json:"ended,omitzero"`
}

func infoOf(r *fiberRow) FiberInfo {
	return FiberInfo{
		ID: r.ID, Name: r.Name, Started: r.Started, Key: r.Key, Status: r.status(), Checkpoint: r.Checkpoint,
		Result: r.Result, Error: r.Error, Attempt: r.tries(), Retries: r.Retries,
		Created: time.UnixMilli(r.Created), Updated: time.UnixMilli(r.Updated), Ended: timeOf(r.Ended),
	}
}

// tries returns how often a fiber failed or was interrupted; for a fiber of RunFiber, how often its hook was
// called.
func (r *fiberRow) tries() int {
	if r.Started {
		return r.Attempt
	}
	return r.Calls
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// final reports whether a fiber has ended or is dead.
func (s FiberStatus) final() bool { return s != FiberPending && s != FiberRunning }

// FiberQuery selects fibers. The zero FiberQuery, and nil, select the newest 50.
type FiberQuery struct {
	Kind   string        // empty for all
	Status []FiberStatus // none for all
	Limit  int           // zero means 50; at most 100
}

// List returns the fibers that q selects, the newest first: fibers of [StartFiber], and dead fibers of [RunFiber]. A
// fiber is dead after too many failed or interrupted calls of OnInterrupted or OnRecovery.
//
// Errors: one for a Limit that is out of range.
func (f Fibers) List(ctx context.Context, q *FiberQuery) ([]FiberInfo, error) {
	if q == nil {
		q = &FiberQuery{}
	}
	limit, err := checkLimit(q.Limit, 50, 100)
	if err != nil {
		return nil, err
	}
	var rows []dohost.Row[fiberRow]
	for _, index := range q.indexes() { // the index of the dead fibers has the fibers of RunFiber, too
		some, err := fiberRows.List(ctx, f.fibers.store(), &dohost.Query[fiberRow]{
			Index: index, Reverse: true, Limit: limit,
			Where: func(r fiberRow) bool { return (r.State == work.Dead) == (index == "dead") && q.matches(r) },
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	slices.SortFunc(rows, func(a, b dohost.Row[fiberRow]) int { return cmp.Compare(b.Value.Number, a.Value.Number) })
	infos := make([]FiberInfo, min(len(rows), limit))
	for i := range infos {
		infos[i] = infoOf(&rows[i].Value)
	}
	return infos, nil
}

// indexes returns the indexes of the fibers that q selects.
func (q *FiberQuery) indexes() []string {
	switch {
	case len(q.Status) > 0 && !slices.Contains(q.Status, FiberDead):
		return []string{"started"}
	case len(q.Status) == 1:
		return []string{"dead"}
	}
	return []string{"started", "dead"}
}

func (q *FiberQuery) matches(r fiberRow) bool {
	return (q.Kind == "" || r.Name == q.Kind) && (len(q.Status) == 0 || slices.Contains(q.Status, r.status()))
}

func checkLimit(n, fallback, limit int) (int, error) {
	switch {
	case n == 0:
		return fallback, nil
	case n < 0 || n > limit:
		return 0, fmt.Errorf("agent: limit %d: want 1 to %d", n, limit)
	}
	return n, nil
}

// Get returns the description of a fiber. A fiber of [RunFiber] is found until it ends.
func (f Fibers) Get(ctx context.Context, id string) (info FiberInfo, ok bool, err error) {
	row, ok, err := get(ctx, f.fibers.rows, &fiberRows, id)
	if err != nil || !ok {
		return info, false, err
	}
	return infoOf(&row), true, nil
}

// GetByKey returns the description of the fiber that was started with a key.
func (f Fibers) GetByKey(ctx context.Context, key string) (info FiberInfo, ok bool, err error) {
	row, ok, err := f.fibers.byKey(ctx, key)
	if err != nil || !ok || key == "" {
		return info, false, err
	}
	return infoOf(&row), true, nil
}

// Wait returns when a fiber has ended or is dead. It gives up the turn while it waits. ok is false if
// there is no such fiber. The end of ctx ends the wait.
//
// Errors: the ctx's cause, and the errors of [dohost.Recv].
func (f Fibers) Wait(ctx context.Context, id string) (info FiberInfo, ok bool, err error) {
	fs := f.fibers
	for {
		info, ok, err = f.Get(ctx, id)
		if err != nil || !ok || info.Status.final() {
			return info, ok, err
		}
		if fs.waiters == nil {
			fs.waiters = map[string]chan struct{}{}
		}
		ch, ok := fs.waiters[id]
		if !ok {
			ch = make(chan struct{})
			fs.waiters[id] = ch
		}
		if _, _, err := dohost.Recv(ctx, ch); err != nil {
			return info, true, err
		}
	}
}

// Cancel ends a fiber: it cancels the fiber's context and ignores its result. It reports whether there was
// a fiber that had not ended.
func (f Fibers) Cancel(ctx context.Context, id string) (bool, error) {
	fs := f.fibers
	row, eff, err := fs.stepRow(ctx, id, work.Event{Kind: work.Cancel})
	switch {
	case err != nil || eff == work.Refused:
		return false, err
	case eff == work.Delete:
		_, err = fs.delete(ctx, id)
	default:
		err = fs.rows.transaction(ctx, func(ctx context.Context) error {
			if err := fs.put(ctx, &row); err != nil {
				return err
			}
			return fs.extendedCancelled(ctx, infoOf(&row))
		})
	}
	if err != nil {
		return false, err
	}
	if f, ok := fs.calls[id]; ok {
		if err := fs.obj.Emit(ctx, func(err error) {
			if err == nil { // else the row is open again
				f.cancel(context.Canceled)
			}
		}); err != nil {
			return false, err
		}
	}
	fs.reportEnded(ctx, id, FiberCancelled)
	return true, nil
}

// Restart restarts a fiber of [StartFiber] that failed, was cancelled, is interrupted or is dead, from its
// last checkpoint, with all counts at zero. The fiber runs as a separate task, once the restart is durable and
// a cancelled call of its method has returned. OnFiberEnded is no longer called for the previous end. Restart
// reports whether it restarted the fiber: it does not restart a completed fiber, since finished work does not
// run again.
//
// Errors: one for a kind that the class does not have; [dohost.ErrOverloaded] when the object has
// too many tasks.
func (f Fibers) Restart(ctx context.Context, id string) (bool, error) {
	fs := f.fibers
	row, eff, err := fs.stepRow(ctx, id, work.Event{Kind: work.Restart})
	if err != nil || eff == work.Refused {
		return false, err
	}
	if _, ok := fs.class.kinds[row.Name]; !ok {
		return false, fmt.Errorf("agent: class %s has no fiber kind %q", fs.obj.ID().Class, row.Name)
	}
	if _, err := fs.firstExpiry(ctx, false); err != nil { // before there is a write that may be rolled back
		return false, err
	}
	row.Error, row.Result, row.Began, row.Ended = "", nil, 0, 0
	err = fs.rows.transaction(ctx, func(ctx context.Context) error {
		if err := fs.put(ctx, &row); err != nil {
			return err
		}
		return fs.launch(ctx, &row, false)
	})
	if err != nil {
		return false, err
	}
	fs.report(ctx, "fiber:restarted", nil, slog.String("fiber", id), slog.String("kind", row.Name))
	return true, nil
}

// SetStatus sets the final status of a fiber that is dead, or that has the status interrupted because its kind is no longer
// registered. It reports whether there was such a fiber.
//
// Errors: one for a status other than completed, failed and cancelled.
func (f Fibers) SetStatus(ctx context.Context, id string, status FiberStatus) (bool, error) {
	outcome := slices.Index(finalStatuses[:], status)
	if outcome <= 0 {
		return false, fmt.Errorf("agent: final status %q: want completed, failed or cancelled", status)
	}
	fs := f.fibers
	row, eff, err := fs.stepRow(ctx, id, work.Event{Kind: work.Resolve, Outcome: work.Outcome(outcome)})
	if err != nil || eff == work.Refused {
		return false, err
	}
	err = fs.put(ctx, &row)
	return err == nil, err
}

// DeleteEnded deletes the ended fibers that q selects and returns their number. It deletes interrupted fibers only
// if q lists that status, and no fiber with a pending call of OnFiberEnded; for dead fibers see [Fibers.Delete].
// It deletes at most q.Limit fibers: zero means 100, the maximum is 500.
//
// Errors: one for a Limit that is out of range.
func (f Fibers) DeleteEnded(ctx context.Context, q *FiberQuery) (deleted int, err error) {
	if q == nil {
		q = &FiberQuery{}
	}
	limit, err := checkLimit(q.Limit, 100, 500)
	if err != nil {
		return 0, err
	}
	fs := f.fibers
	rows, err := fiberRows.List(ctx, fs.store(), &dohost.Query[fiberRow]{Index: "started", Limit: limit, Where: func(r fiberRow) bool {
		return (r.State == work.Ended || r.State == work.Orphaned && len(q.Status) > 0) && q.matches(r)
	}})
	if err != nil {
		return 0, err
	}
	if _, err := fs.firstExpiry(ctx, false); err != nil { // before there is a write that may be rolled back
		return 0, err
	}
	err = fs.rows.transaction(ctx, func(ctx context.Context) error {
		for _, r := range rows {
			if _, err := fs.delete(ctx, r.Key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(rows), nil
}

// Retry runs a fiber again if it is dead, or if it has ended without completing. A dead fiber is passed to OnInterrupted
// or OnRecovery again, with its count of hook calls at zero; any other fiber is restarted, as [Fibers.Restart] describes.
// Retry reports whether there was such a fiber.
//
// Errors: the errors of Restart.
func (f Fibers) Retry(ctx context.Context, id string) (existed bool, err error) {
	fs := f.fibers
	row, eff, err := fs.stepRow(ctx, id, work.Event{Kind: work.Retry})
	switch {
	case err != nil:
		return false, err
	case eff == work.Refused:
		return f.Restart(ctx, id)
	}
	err = fs.rows.batch(ctx, false, func(ctx context.Context) error {
		if err := fs.deferRecovery(ctx); err != nil {
			return err
		}
		return fs.put(ctx, &row)
	})
	return err == nil, err
}

// Delete deletes a fiber that is dead, or that has ended with no call of OnFiberEnded pending. It reports whether there
// was such a fiber.
func (f Fibers) Delete(ctx context.Context, id string) (existed bool, err error) {
	fs := f.fibers
	row, ok, err := get(ctx, fs.rows, &fiberRows, id)
	if err != nil || !ok {
		return false, err
	}
	if s := row.State; s != work.Dead && s != work.Ended && s != work.Orphaned {
		return false, nil
	}
	fs.times.expiryRead, fs.times.deleted = false, true
	return fs.delete(ctx, id)
}
