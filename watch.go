package dohost

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// DeltaKind is the kind of a [Delta].
type DeltaKind uint8

// The kinds of deltas.
const (
	// DeltaReset begins a list of all rows: the consumer drops the rows that it has. A DeltaEnter for each row
	// follows, and then DeltaReady. Rows that change in between have deltas as well.
	DeltaReset DeltaKind = 1 + iota
	// DeltaEnter reports a row that the query selects now.
	DeltaEnter
	// DeltaUpdate reports a change of a selected row.
	DeltaUpdate
	// DeltaExit reports a row that the query no longer selects. Delta.Row is the row as it was.
	DeltaExit
	// DeltaReady reports that the deltas so far make up the result of the query at Delta.At. The watch has nothing more
	// to report yet, and waits.
	DeltaReady
)

// String returns reset, enter, update, exit or ready.
func (k DeltaKind) String() string {
	if k < DeltaReset || k > DeltaReady {
		return fmt.Sprintf("DeltaKind(%d)", uint8(k))
	}
	return [...]string{"reset", "enter", "update", "exit", "ready"}[k-DeltaReset]
}

// Delta is a step of [Collection.Watch].
type Delta[T any] struct {
	Kind DeltaKind
	// Row is the row of a DeltaEnter, DeltaUpdate or DeltaExit.
	Row Row[T]
	// Was is the Cursor that the row of a DeltaUpdate had before. It differs from Row.Cursor if the row has moved
	// within the query.
	Was Cursor
	// At is the position to continue from after this delta: see WatchOptions.After. It is the zero
	// Position from a DeltaReset to the next DeltaReady. If one change has several deltas, since the row has several
	// places in the index, At is the position after the change in the last of them only.
	At Position
}

// WatchOptions tunes a [Collection.Watch]. A nil *WatchOptions means the defaults.
type WatchOptions struct {
	// After continues an earlier watch of the same query from the At of one of its deltas. If the feed does not have the
	// changes since then, the watch begins with a DeltaReset, as it does without After.
	After Position
	// Heartbeat is the longest time without a delta: the watch then repeats the DeltaReady. Zero means no repetition.
	Heartbeat time.Duration
}

// Watch yields the rows that q selects, and then every change to them, until the loop ends. It needs a [Feed] with
// Values and Before, and holds no rows: with At, a watch continues exactly where another watch ended, in another
// incarnation or process.
//
// A consumer that keeps a map from Cursor to Row has the result of q whenever Watch yields a DeltaReady:
//
//	for d, err := range orders.Watch(ctx, store, q, nil) {
//		if err != nil {
//			return err
//		}
//		switch d.Kind {
//		case dohost.DeltaReset:
//			clear(rows)
//		case dohost.DeltaEnter, dohost.DeltaUpdate:
//			delete(rows, d.Was)
//			rows[d.Row.Cursor] = d.Row
//		case dohost.DeltaExit:
//			delete(rows, d.Row.Cursor)
//		}
//	}
//
// If each row has at most one place in the index of q, a map from Key to Row is sufficient.
//
// All deltas are durable: no crash undoes a row or a change that Watch has yielded. All watches of a feed get the changes
// in the feed's order. A DeltaReset repeats the rows after a DeleteAll, and if the watch lags by more than the feed's
// Keep or MaxAge allow. A watch that begins with After gets a DeltaReset if After is a position of another history: after
// an import of the object or the restore of a backup.
//
// The loop runs with the turn, and may write, Await and Call. Watch gives up the turn before it reads, at least once
// every 64 changes or 256 rows, and while it waits; it then holds no iterator and no lock. It has at most 256 KiB of
// rows in memory, or one row or change.
//
// q must select by the row alone: if Where, or the index's Of or Each, returns different results for the same row,
// the deltas are wrong. This includes a watch that continues: a program that changes q, Of or Each must not use an
// older After, or must give the feed another name. A query with a Limit cannot be watched. With Reverse, the first
// rows arrive in reverse order.
//
// A change with an undecodable value leads to a DeltaReset: the row may have been replaced since. A row that does
// not decode when the rows are listed ends the watch.
//
// Errors, the last thing that Watch yields: [ErrMisuse], inside a [Transaction] as well; an error that names the row for
// a row that does not decode, or for such changes during ten lists in succession; [ErrOverloaded] if
// the object has 256 watches, or half of Options.MaxEvents; a [*FeedError] if the feed is trimmed ten times in succession
// before Watch has read all rows; [ErrClosed] when the host begins to close; the ctx's cause; [ErrFenced].
func (c *Collection[T]) Watch(ctx context.Context, s *Storage, q *Query[T], o *WatchOptions) iter.Seq2[Delta[T], error] {
	return func(yield func(Delta[T], error) bool) { c.watchAll(ctx, s, q, o, yield) }
}

// watchAll is the loop of Watch. The compiler copies the function that Watch returns into each caller, so that function only calls this one.
func (c *Collection[T]) watchAll(ctx context.Context, s *Storage, q *Query[T], o *WatchOptions, yield func(Delta[T], error) bool) {
	w, err := c.watch(s, q, o)
	if err == nil {
		err = w.run(ctx, func(d Delta[any]) bool {
			row := Row[T]{Key: d.Row.Key, Value: typed[T](d.Row.Value), Version: d.Row.Version, Cursor: d.Row.Cursor}
			return yield(Delta[T]{Kind: d.Kind, Row: row, Was: d.Was, At: d.At}, nil)
		})
	}
	if err != nil && !errors.Is(err, errLoopEnded) {
		yield(Delta[T]{}, err)
	}
}
