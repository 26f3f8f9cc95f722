package dohost

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// errLoopEnded ends a watch after a break of its loop.
var errLoopEnded = errors.New("loop ended")

// errHeartbeat is the cause of the end of a wait after WatchOptions.Heartbeat.
var errHeartbeat = errors.New("heartbeat")

// errReset is the reason for a DeltaReset that is not a *FeedError.
var errReset = errors.New("history changed")

// The limits of the data that a watch reads while it holds the turn.
const (
	watchChanges = 64
	watchRows    = 256
	watchBytes   = 256 << 10
)

// maxWatchResets is how often a watch begins to list the rows without finding all changes since it began.
const maxWatchResets = 10

// watcher is one Watch. Its invariants:
//
//   - The consumer has exactly the rows that covers selects, as they were at the position at. covers is the query, limited
//     while listing to the places up to frontier. So each change of a row follows from the change alone: from the
//     places of its values before and after it. The entry of the feed has both.
//   - Listing reads a page of rows after frontier and the feed's end with one turn, and then waits until both are
//     durable. It yields the changes up to that end, with the old frontier, before it yields the page. Then the consumer
//     has the rows up to the end of the page at that position.
//   - Nothing is yielded that was read with the turn and not durable: pages wait as above, and the feed is read only
//     directly after the turn was given up, when the event has no writes of its own that ReadFeed would return.
//   - While the turn is given up, and while the loop runs, the watcher refers to copies only.
type watcher struct {
	rows    watched
	s       *Storage
	selects func(cursor string) bool
	o       WatchOptions
	yield   func(Delta[any]) bool
	poll    func(at Position) error // called between reads without deltas too, with the position of the consumer; or nil

	at        Position
	deletions uint64 // runtime's Deletions when the watch began or was reset
	listing   bool
	frontier  Cursor // the place of the last row that was read; empty: of none
	resets    int    // since the last DeltaReady
	announced bool   // by a DeltaReady at the position at
}

// watched is the collection and the query of a watcher without the type of the rows, so that the code of the watcher is compiled
// once. Where the type is T, a value of type any holds a T.
type watched struct {
	objectstore.Collection
	query  objectstore.RowQuery
	decode func(key string, data []byte) (any, error)
	where  func(v any) bool  // Query.Where, or nil
	keys   func(v any) []Key // in the index of the query; nil: the rows are in the order of their keys
}

// row decodes a row.
func (c *watched) row(r objectstore.CollectionRow) (row Row[any], err error) {
	row.Key, row.Cursor = keyAndCursor(r)
	row.Version = r.Version
	row.Value, err = c.decode(row.Key, r.Value)
	return row, err
}

// watch returns the watcher of a query.
func (c *Collection[T]) watch(s *Storage, q *Query[T], o *WatchOptions) (*watcher, error) {
	if q == nil {
		q = new(Query[T])
	}
	query, err := c.query(q)
	if err != nil {
		return nil, err
	}
	rows := watched{Collection: c.bytes(), query: query}
	rows.decode = func(key string, data []byte) (any, error) { return c.decode(key, data) }
	if where := q.Where; where != nil {
		rows.where = func(v any) bool { return where(typed[T](v)) }
	}
	if at := slices.IndexFunc(c.Indexes, func(x Index[T]) bool { return x.Name == q.Index }); at >= 0 && q.Index != "" {
		index := &c.Indexes[at]
		rows.keys = func(v any) []Key { return index.keys(typed[T](v)) }
	}
	return newWatcher(s, rows, q.Limit, o)
}

// typed returns the T of a value, which is nil if T is an interface and the value is.
func typed[T any](v any) T {
	t, _ := v.(T)
	return t
}

// newWatcher returns the watcher of a query with a Limit.
func newWatcher(s *Storage, rows watched, limit int, o *WatchOptions) (*watcher, error) {
	w := &watcher{rows: rows, s: s}
	if o != nil {
		w.o = *o
	}
	switch {
	case !rows.Feed.Values || !rows.Feed.Before:
		return nil, fmt.Errorf("%w: Watch of %q needs a Feed with Values and Before", errCollection, rows.Name)
	case limit != 0:
		return nil, fmt.Errorf("%w: Watch of %q with a Limit: the row after the last one is not known when a row leaves", errCollection, rows.Name)
	case w.o.Heartbeat < 0:
		return nil, fmt.Errorf("%w: Watch of %q with a negative Heartbeat", errCollection, rows.Name)
	}
	var err error
	w.selects, err = rows.query.Selects()
	return w, err
}

// run yields deltas until the loop or ctx ends.
func (w *watcher) run(ctx context.Context, yield func(Delta[any]) bool) error {
	ctx, end, err := w.s.rt().BeginWatch(ctx)
	if err != nil {
		return err
	}
	defer end()
	w.yield, w.at, w.listing = yield, w.o.After, w.o.After.Log == ""
	if w.deletions, err = w.s.rt().Deletions(ctx); err != nil {
		return err
	}
	for {
		step := w.follow
		if w.listing {
			step = w.list
		}
		err := step(ctx)
		trimmed, ok := errors.AsType[*FeedError](err)
		switch {
		case err == nil:
			continue
		case !ok && !errors.Is(err, errReset):
			return err
		}
		switch w.resets++; {
		case w.resets <= maxWatchResets || err == errReset:
		case trimmed != nil:
			return fmt.Errorf("dohost: Watch of %q: the feed keeps too few entries to list the rows: %w", w.rows.Name, err)
		default:
			return err
		}
		w.listing, w.frontier, w.at = true, "", Position{}
	}
}

// list yields all rows, by pages.
func (w *watcher) list(ctx context.Context) error {
	for first := true; w.listing; first = false {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if !first && w.poll != nil {
			if err := w.poll(Position{}); err != nil {
				return err
			}
		}
		rows, end, err := w.page(ctx, first)
		if err != nil {
			return err
		}
		if err := AwaitDurable(ctx); err != nil {
			return err
		}
		if first {
			w.at = end
			if err := w.send(Delta[any]{Kind: DeltaReset}); err != nil {
				return err
			}
		}
		if err := w.catchUp(ctx, end); err != nil {
			return err
		}
		for i, row := range rows.list {
			rows.list[i] = Row[any]{} // frees the value while the consumer is slow
			if err := w.send(Delta[any]{Kind: DeltaEnter, Row: row}); err != nil {
				return err
			}
		}
		w.frontier, w.listing = rows.last, rows.more
	}
	return w.ready()
}

// catchUp yields the changes up to end, which is durable, of the rows that are already listed.
func (w *watcher) catchUp(ctx context.Context, end Position) error {
	for w.at.Offset < end.Offset {
		n, err := w.read(ctx, int(min(end.Offset-w.at.Offset, watchChanges)))
		if err == nil && n == 0 {
			err = errReset // a DeleteAll of the changes
		}
		if err == nil {
			err = w.releaseTurn(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page is the rows that a watcher has read with one turn.
type page struct {
	list []Row[any] // without the rows that Where rejects
	last Cursor     // of the last row that was read
	more bool       // there may be rows after it
}

// page reads the rows after frontier, and the end of the feed. The first page begins a list.
func (w *watcher) page(ctx context.Context, first bool) (p page, end Position, err error) {
	n, err := w.s.rt().Deletions(ctx)
	if err != nil {
		return p, end, err
	}
	if first {
		w.deletions = n
	} else if n != w.deletions {
		return p, end, errReset
	}
	if _, end, err = w.s.rt().FeedEnds(ctx, w.rows.Feed.Name); err != nil {
		return p, end, err
	}
	rq, b := w.rows.query, w.rows.Collection
	if p.last = w.frontier; p.last != "" {
		rq.After = []byte(p.last)
	}
	rq.Limit = 0
	read, size := 0, 0
	for r, err := range w.s.rt().Rows(ctx, &b, rq) {
		if err != nil {
			return p, end, err
		}
		if read == watchRows || size >= watchBytes {
			p.more = true
			break
		}
		row, err := w.rows.row(r)
		if err != nil {
			return p, end, err
		}
		read, size, p.last = read+1, size+len(r.Value)+len(r.Cursor), row.Cursor
		if w.rows.where == nil || w.rows.where(row.Value) {
			p.list = append(p.list, row)
		}
	}
	return p, end, nil
}

// follow yields changes until an error.
func (w *watcher) follow(ctx context.Context) error {
	for {
		if w.poll != nil {
			if err := w.poll(w.at); err != nil {
				return err
			}
		}
		if err := w.checkDeletions(ctx); err != nil {
			return err
		}
		ready, err := w.s.rt().FeedReady(ctx, w.rows.Feed.Name, w.at)
		if err != nil {
			return err
		}
		if !ready && !w.announced {
			if err := w.ready(); err != nil {
				return err
			}
		}
		if err := w.wait(ctx); errors.Is(err, errHeartbeat) {
			w.announced = false
			continue
		} else if err != nil {
			return err
		}
		if err := w.checkDeletions(ctx); err != nil { // a position without a log is valid in the next one
			return err
		}
		if _, err := w.read(ctx, watchChanges); err != nil {
			return err
		}
	}
}

// checkDeletions returns errReset after a DeleteAll.
func (w *watcher) checkDeletions(ctx context.Context) error {
	n, err := w.s.rt().Deletions(ctx)
	if err == nil && n != w.deletions {
		err = errReset
	}
	return err
}

// wait gives up the turn until the feed has a change after at, or for WatchOptions.Heartbeat.
func (w *watcher) wait(ctx context.Context) error {
	limited := ctx
	if w.o.Heartbeat > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, w.o.Heartbeat, errHeartbeat)
		defer cancel()
	}
	waited, err := w.s.rt().WaitFeed(limited, w.rows.Feed.Name, w.at)
	if err != nil || waited {
		return err
	}
	return w.releaseTurn(ctx)
}

// releaseTurn commits the writes of the loop, releases the turn, so that the events in the turn queue run, and reacquires it.
func (w *watcher) releaseTurn(ctx context.Context) error {
	return runtime.Wait(ctx, func(ctx context.Context) error { return context.Cause(ctx) })
}

// read yields up to limit changes after at, and returns how many it has read.
func (w *watcher) read(ctx context.Context, limit int) (n int, err error) {
	changes, err := w.s.rt().ReadFeed(ctx, w.rows.Feed.Name, w.at, limit, watchBytes)
	if err != nil {
		return 0, err
	}
	_, end, err := w.s.rt().FeedEnds(ctx, w.rows.Feed.Name)
	if err != nil {
		return 0, err
	}
	for i := range changes {
		if err := w.change(&changes[i], end.Log); err != nil {
			return i, err
		}
	}
	return len(changes), nil
}

// change yields the deltas of an entry of the feed.
func (w *watcher) change(ch *objectstore.Change, log string) error {
	deltas, err := w.deltas(ch)
	if err != nil {
		return err
	}
	after := Position{Log: log, Offset: ch.Offset}
	ch.Value, ch.Before = nil, nil // frees the values while the consumer is slow
	for i, d := range deltas {
		deltas[i] = Delta[any]{}
		switch {
		case w.listing:
		case i == len(deltas)-1:
			d.At = after
		default:
			d.At = w.at
		}
		if err := w.send(d); err != nil {
			return err
		}
	}
	w.at, w.announced = after, false
	return nil
}

func (w *watcher) ready() error {
	w.resets, w.announced = 0, true
	return w.send(Delta[any]{Kind: DeltaReady, At: w.at})
}

func (w *watcher) send(d Delta[any]) error {
	if !w.yield(d) {
		return errLoopEnded
	}
	return nil
}
