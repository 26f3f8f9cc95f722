package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// RowsOptions tunes [OnRows] and [OnRowBatch]. Nil means the defaults.
type RowsOptions struct {
	// Prefix selects the rows of the index by the beginning of their keys: KeyOf("pending") in an index of states.
	// Empty means all rows of the index.
	Prefix dohost.Key
	// Parallel bounds the calls of the method that run at a time in one agent. Zero means 1: the calls follow the order of
	// the index. At most 1,000.
	Parallel int
	// Batch bounds the rows of one call of OnRowBatch. Zero means 50; at most 500. OnRows ignores it.
	Batch int
	// Retry bounds the consecutive calls for a row that fail or are interrupted. Then the row is parked, and needs an operator.
	// So the defaults are larger than in other policies: MaxAttempts is 5, BaseDelay is 1 s, and MaxDelay is 5 min, or BaseDelay
	// if that is more. A delay is at least three quarters of its bound. Every error is retried. MaxElapsed must not be positive,
	// and ShouldRetry must be nil.
	Retry dohost.RetryPolicy
}

func (o *RowsOptions) withDefaults(batch int) RowsOptions {
	var set RowsOptions
	if o != nil {
		set = *o
	}
	if set.Parallel == 0 {
		set.Parallel = 1
	}
	if set.Batch == 0 || batch == 1 {
		set.Batch = batch
	}
	if set.Retry.MaxAttempts == 0 {
		set.Retry.MaxAttempts = 5
	}
	if set.Retry.BaseDelay == 0 {
		set.Retry.BaseDelay = time.Second
	}
	if set.Retry.MaxDelay == 0 {
		set.Retry.MaxDelay = max(5*time.Minute, set.Retry.BaseDelay)
	}
	return set
}

func (o *RowsOptions) check() error {
	switch {
	case o.Parallel < 0 || o.Parallel > 1000:
		return fmt.Errorf("the option Parallel is %d: want 1 to 1,000", o.Parallel)
	case o.Batch < 0 || o.Batch > 500:
		return fmt.Errorf("the option Batch is %d: want 1 to 500", o.Batch)
	case o.Retry.MaxElapsed > 0:
		return fmt.Errorf("the option Retry.MaxElapsed is %v: want zero, since the attempts for a row have no time limit", o.Retry.MaxElapsed)
	case o.Retry.ShouldRetry != nil:
		return errors.New("the option Retry.ShouldRetry is set: want nil, since every error is retried")
	}
	return nil
}

// OnRows turns the rows of an index into work: the agent calls m with each row until the row has left the index. Any code
// may insert rows. The batch that puts a row into the index also sets the agent's alarm, so the row wakes the agent without
// a request, even after a crash of the process.
//
// m runs as a separate event. It gets the row as it is when the call begins. To finish the row, m deletes it or changes it
// so that it is no longer in the index. The writes of m after its last Await are one batch with the end of the call: a row
// that leaves the index in this batch leaves it together with the effects. m runs at least once for each row, and exactly
// once if it has no Await and returns no error.
//
// A call has failed if m returns an error, or nil although the row is still in the index. Then the agent calls m again, later.
// After RowsOptions.Retry the row is parked: it stays in the index, and m is not called for it until other code writes
// it, or it is retried ([Rows], dohost retry). Other rows are not affected. A [PostponeError] is not a failure: the agent calls
// m again after the error's time. If other code has written the row during a successful call, the agent calls m again
// immediately, with the new row. The methods of OnRows and the related functions do not count as other code: otherwise two
// methods that write each other's rows would repeat one another without a delay. A row that does not decode is parked.
//
// A row that leaves the index and enters it again is new work, with another position, which begins after the end of a
// running call for the old row. If only m itself takes the row out and puts it back, the row stays in the current call.
//
// If the end of the incarnation interrupts a call, the next incarnation calls m again. A row whose calls may have ended
// their process waits until the other rows have begun, and begins when no other such row is running.
//
// Open returns an error for an index that the collection does not have, for a second OnRows with overlapping rows, and
// for options out of their bounds. The names of the collection and of the index, and the prefix, are stored with the
// state of a row.
func OnRows[O, T any](of *dohost.Collection[T], index string, m func(*O, context.Context, dohost.Row[T]) error, o *RowsOptions) Entry[O] {
	var call func(any, context.Context, []any) error
	if m != nil {
		call = func(self any, ctx context.Context, rows []any) error {
			return m(self.(*O), ctx, rows[0].(dohost.Row[T]))
		}
	}
	return workIndexEntry[O](of, index, o, 1, call)
}

// OnRowBatch is [OnRows] with up to RowsOptions.Batch rows for each call: all rows that are in the index when the call begins,
// in the order of the index. The rows of a call stay together. If the call fails, m gets the rows that are still in the index
// again; rows inserted in between are not included. The rows of a call are parked together: a batch should be small if one row
// can fail the others, or m should take such a row out of the index itself. A row that m takes out of the index is progress:
// earlier failed or interrupted calls no longer count for the other rows. All rows of a call share one position: for operations
// of package ledger, give each row its own ledger.Scope.
func OnRowBatch[O, T any](of *dohost.Collection[T], index string, m func(*O, context.Context, []dohost.Row[T]) error, o *RowsOptions) Entry[O] {
	return workIndexEntry[O](of, index, o, 50, batchCall(m))
}

// OnRowGroups is [OnRowBatch] with rows of one group in each call. group returns the name of a row's group, which must depend on
// the row alone. So a row that makes a call fail, or ends its process, affects only the rows of its group. The groups begin in
// the order of their first rows. A call gets the rows of its group among the first 100 that wait, or Batch if that is more.
func OnRowGroups[O, T any](
	of *dohost.Collection[T], index string, group func(T) string, m func(*O, context.Context, []dohost.Row[T]) error, o *RowsOptions,
) Entry[O] {
	e := workIndexEntry[O](of, index, o, 50, batchCall(m))
	return Entry[O]{bind: func(c *class) {
		if group == nil {
			c.mistake("OnRowGroups of the index %q without a group function", index)
			return
		}
		before := len(c.workIndexes)
		e.bind(c)
		for _, w := range c.workIndexes[before:] {
			w.group = func(row any) string { return group(row.(dohost.Row[T]).Value) }
		}
	}}
}

// batchCall returns m with rows of any type; nil if m is nil.
func batchCall[O, T any](m func(*O, context.Context, []dohost.Row[T]) error) func(any, context.Context, []any) error {
	if m == nil {
		return nil
	}
	return func(self any, ctx context.Context, rows []any) error {
		typed := make([]dohost.Row[T], len(rows))
		for i, row := range rows {
			typed[i] = row.(dohost.Row[T])
		}
		return m(self.(*O), ctx, typed)
	}
}

// maxIndexName bounds the name of a workIndex, which is in the keys of tasks.
const maxIndexName = 800

// workIndex is an index whose rows are work, for rows of any type.
type workIndex struct {
	RowsOptions
	name              string // in stored rows and positions
	collection, index string
	of                any // the *dohost.Collection

	keys func(ctx context.Context, s *dohost.Storage, after dohost.Cursor) iter.Seq2[dohost.Row[struct{}], error]
	// read returns a dohost.Row of the collection's type, or nil if there is none, and whether the index has it.
	read func(ctx context.Context, s *dohost.Storage, key string) (row any, listed bool, err error)
	call func(self any, ctx context.Context, rows []any) error
	// group returns the name of the group of a row that read has returned. Nil means that all rows are one group.
	group func(row any) string
	// rewrite writes a row again, so that its places in the index are those of the present Index.Of.
	rewrite func(ctx context.Context, s *dohost.Storage, key string) error
}

// covers reports whether a row with these places in the index is work.
func (w *workIndex) covers(places iter.Seq2[dohost.Key, dohost.Cursor]) bool {
	for key := range places {
		if strings.HasPrefix(string(key), string(w.Prefix)) {
			return true
		}
	}
	return false
}

func workIndexEntry[O, T any](
	of *dohost.Collection[T], index string, o *RowsOptions, batch int, call func(any, context.Context, []any) error,
) Entry[O] {
	return Entry[O]{bind: func(c *class) {
		if of == nil || call == nil {
			c.mistake("OnRows of the index %q without a collection or a method", index)
			return
		}
		at := slices.IndexFunc(of.Indexes, func(x dohost.Index[T]) bool { return x.Name == index })
		if at < 0 {
			c.mistake("OnRows of the collection %q: it has no index %q", of.Name, index)
			return
		}
		w := &workIndex{RowsOptions: o.withDefaults(batch), collection: of.Name, index: index, of: of, call: call}
		if err := w.check(); err != nil {
			c.mistake("OnRows of the collection %q, index %q: %w", of.Name, index, err)
		}
		w.name = workName(of.Name) + "/" + workName(index)
		if w.Prefix != "" {
			w.name += "/" + strconv.Quote(string(w.Prefix))
		}
		if len(w.name) > maxIndexName {
			c.mistake("OnRows of %.60q: the names and the prefix have %d bytes together, quoted; the limit is %d", w.name, len(w.name), maxIndexName)
		}
		for _, other := range c.workIndexes {
			if other.collection == of.Name && other.index == index &&
				(strings.HasPrefix(string(w.Prefix), string(other.Prefix)) || strings.HasPrefix(string(other.Prefix), string(w.Prefix))) {
				c.mistake("two OnRows of the collection %q, index %q, whose rows overlap", of.Name, index)
			}
		}
		w.keys = func(ctx context.Context, s *dohost.Storage, after dohost.Cursor) iter.Seq2[dohost.Row[struct{}], error] {
			return of.Keys(ctx, s, &dohost.Query[T]{Index: index, Prefix: w.Prefix, After: after})
		}
		w.read = func(ctx context.Context, s *dohost.Storage, key string) (any, bool, error) {
			row, ok, err := of.Get(ctx, s, key)
			if err != nil || !ok {
				return nil, false, err
			}
			return row, of.InIndex(row.Value, index, w.Prefix), nil
		}
		w.rewrite = func(ctx context.Context, s *dohost.Storage, key string) error {
			_, err := of.Update(ctx, s, key, func(*T) error { return nil })
			return err
		}
		c.workIndexes = append(c.workIndexes, w)
	}}
}
