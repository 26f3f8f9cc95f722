package agent

import (
	"context"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// RowsState is the state of the rows of a call of OnRows.
type RowsState string

// The states of rows.
const (
	RowsRunning RowsState = "running" // a call is running, or was interrupted and begins again
	RowsWaiting RowsState = "waiting" // the last call has failed, and the next one waits for its delay
	RowsParked  RowsState = "parked"  // too many calls have failed or were interrupted
)

// RowsInfo describes the rows of a call of [OnRows] or [OnRowBatch] that has begun but has not finished them. A row
// without a call has no RowsInfo.
type RowsInfo struct {
	ID      string    `json:"id"`
	Index   string    `json:"index"` // the names of the collection and of the index, and the prefix, quoted
	Keys    []string  `json:"keys"`  // of the rows
	State   RowsState `json:"state"`
	Attempt int       `json:"attempt"`         // calls that failed or were interrupted, since a row has left the index by a call
	Error   string    `json:"error,omitempty"` // the last one
	Since   time.Time `json:"since"`           // the first call
	Next    time.Time `json:"next,omitzero"`   // the next call, if the rows wait
}

func (t *rowTask) info() RowsInfo {
	info := RowsInfo{ID: t.ID, Index: t.Index, Keys: t.Keys, State: RowsParked, Attempt: t.Attempt, Error: t.Error, Since: timeOf(t.Since)}
	switch t.State {
	case work.Running:
		info.State = RowsRunning
	case work.Waiting:
		info.State, info.Next = RowsWaiting, timeOf(t.NotBefore)
	}
	return info
}

// RowsQuery selects the rows of calls. The zero RowsQuery, and nil, select the rows of 50 calls.
type RowsQuery struct {
	State RowsState // empty for all
	Limit int       // the maximum number of calls; zero means 50; at most 100
}

// List returns the rows that q selects, of calls that run, wait or are parked.
//
// Errors: one for a Limit that is out of range.
func (r Rows) List(ctx context.Context, q *RowsQuery) ([]RowsInfo, error) {
	if q == nil {
		q = &RowsQuery{}
	}
	limit, err := checkLimit(q.Limit, 50, 100)
	if err != nil {
		return nil, err
	}
	query := &dohost.Query[rowTask]{Limit: limit}
	switch q.State {
	case "":
	case RowsParked:
		query.Index = byParked
	default:
		query.Where = func(t rowTask) bool { return t.info().State == q.State }
	}
	return list(ctx, r.work.rows, &rowTasks, query, func(_ context.Context, t rowTask) (RowsInfo, error) { return t.info(), nil })
}

// Collection returns the collection of that name that has an OnRows of the agent's class, as a [*dohost.Collection]. Nil means that there is
// none. It is meant for packages that access the rows of agents of any class, such as package inbox.
func (r Rows) Collection(name string) any {
	for _, x := range r.work.indexes {
		if x.collection == name {
			return x.of
		}
	}
	return nil
}

// Parked reports whether a row of a collection that has an OnRows is parked. Unlike List, it reads only that row.
//
// Errors: those of the collections.
func (r Rows) Parked(ctx context.Context, collection, key string) (bool, error) {
	for _, x := range r.work.indexes {
		if x.collection != collection {
			continue
		}
		if t, ok, err := r.work.member(ctx, x, key); err != nil || ok && t.info().State == RowsParked {
			return err == nil, err
		}
	}
	return false, nil
}

// Retry makes parked or waiting rows due, as if they had never failed. Operations of package ledger keep their identity: an
// operation that an earlier call has completed is not repeated. It returns false if there are no such rows.
func (r Rows) Retry(ctx context.Context, id string) (existed bool, err error) {
	err = r.work.rows.transaction(ctx, func(ctx context.Context) error {
		t, ok, err := get(ctx, r.work.rows, &rowTasks, id)
		if existed = ok && t.State != work.Running; err != nil || !existed {
			return err
		}
		t.reset()
		return put(ctx, r.work.rows, &rowTasks, &t)
	})
	return existed && err == nil, err
}

// rowsDetail describes rows for operators.
func rowsDetail(v *dohost.Snapshot, t *rowTask) dohost.Resource {
	info := t.info()
	d := dohost.Resource{Kind: detailRows, ID: t.ID, State: string(info.State)}
	if info.State == RowsParked {
		d.Can = []dohost.Action{dohost.ActionRetry}
	} else {
		d.Fault = alarmFault(v)
	}
	text := parts{t.Index}
	text.add(len(t.Keys) == 1, "row %q", t.Keys[0])
	text.add(len(t.Keys) > 1, "%d rows from %q", len(t.Keys), t.Keys[0])
	text.add(true, "since %s", info.Since.UTC().Format(time.RFC3339))
	text.add(t.Attempt > 0, "%d attempts failed or interrupted", t.Attempt)
	text.add(!info.Next.IsZero(), "next call %s", info.Next.UTC().Format(time.RFC3339))
	text.add(t.Error != "", "%q", short(t.Error))
	d.Text = text.String()
	return d
}
