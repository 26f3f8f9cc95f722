package dohost

import (
	"context"
	"errors"
	"fmt"

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
type watcher[T any] struct {
	c       *Collection[T]
	s       *Storage
	q       Query[T]
	rq      objectstore.RowQuery
	selects func(cursor string) bool
	o       WatchOptions
	yield   func(Delta[T], error) bool
	poll    func(at Position) error // called between reads without deltas too, with the position of the consumer; or nil

	at        Position
	deletions uint64 // runtime's Deletions when the watch began or was reset
	listing   bool
	frontier  Cursor // the place of the last row that was read; empty: of none
	resets    int    // since the last DeltaReady
	announced bool   // by a DeltaReady at the position at
}

// watch returns the watcher of a query.
func (c *Collection[T]) watch(s *Storage, q *Query[T], o *WatchOptions) (*watcher[T], error) {
	w := &watcher[T]{c: c, s: s}
	if q != nil {
		w.q = *q
	}
	if o != nil {
		w.o = *o
	}
	switch {
	case c.Feed == nil || !c.Feed.Values || !c.Feed.Before:
		return nil, fmt.Errorf("%w: Watch of %q needs a Feed with Values and Before", errCollection, c.Name)
	case w.q.Limit != 0:
		return nil, fmt.Errorf("%w: Watch of %q with a Limit: the row after the last one is not known when a row leaves", errCollection, c.Name)
	case w.o.Heartbeat < 0:
		return nil, fmt.Errorf("%w: Watch of %q with a negative Heartbeat", errCollection, c.Name)
	}
	var err error
	if w.rq, err = c.query(&w.q); err != nil {
		return nil, err
	}
	w.selects, err = w.rq.Selects()
	return w, err
}

// run yields deltas until the loop or ctx ends.
func (w *watcher[T]) run(ctx context.Context, yield func(Delta[T], error) bool) error {
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
			return fmt.Errorf("dohost: Watch of %q: the feed keeps too few entries to list the rows: %w", w.c.Name, err)
		default:
			return err
		}
		w.listing, w.frontier, w.at = true, "", Position{}
	}
}

// list yields all rows, by pages.
func (w *watcher[T]) list(ctx context.Context) error {
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
			if err := w.send(Delta[T]{Kind: DeltaReset}); err != nil {
				return err
			}
		}
		if err := w.catchUp(ctx, end); err != nil {
			return err
		}
		for i, row := range rows.list {
			rows.list[i] = Row[T]{} // frees the value while the consumer is slow
			if err := w.send(Delta[T]{Kind: DeltaEnter, Row: row}); err != nil {
				return err
			}
		}
		w.frontier, w.listing = rows.last, rows.more
	}
	return w.ready()
}

// catchUp yields the changes up to end, which is durable, of the rows that are already listed.
func (w *watcher[T]) catchUp(ctx context.Context, end Position) error {
	for w.at.Offset < end.Offset {
		n, err := w.read(ctx, int(min(end.Offset-w.at.Offset, watchChanges)))
		if err == nil && n == 0 {
			err = errReset // a DeleteAll of the changes
		}
		if err == nil {
			err = w.giveUpTurn(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page is the rows that a watcher has read with one turn.
type page[T any] struct {
	list []Row[T] // without those that Where rejects
	last Cursor   // of the last row that was read
	more bool     // there may be rows after it
}

// page reads the rows after frontier, and the end of the feed. The first page begins a list.
func (w *watcher[T]) page(ctx context.Context, first bool) (p page[T], end Position, err error) {
	n, err := w.s.rt().Deletions(ctx)
	if err != nil {
		return p, end, err
	}
	if first {
		w.deletions = n
	} else if n != w.deletions {
		return p, end, errReset
	}
	if _, end, err = w.s.rt().FeedEnds(ctx, w.c.Feed.Name); err != nil {
		return p, end, err
	}
	rq, b := w.rq, w.c.bytes()
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
		row, err := w.c.row(r)
		if err != nil {
			return p, end, err
		}
		read, size, p.last = read+1, size+len(r.Value)+len(r.Cursor), row.Cursor
		if w.q.Where == nil || w.q.Where(row.Value) {
			p.list = append(p.list, row)
		}
	}
	return p, end, nil
}

// follow yields changes until an error.
func (w *watcher[T]) follow(ctx context.Context) error {
	for {
		if w.poll != nil {
			if err := w.poll(w.at); err != nil {
				return err
			}
		}
		n, err := w.s.rt().Deletions(ctx)
		if err != nil {
			return err
		}
		if n != w.deletions {
			return errReset
		}
		ready, err := w.s.rt().FeedReady(ctx, w.c.Feed.Name, w.at)
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
		if _, err := w.read(ctx, watchChanges); err != nil {
			return err
		}
	}
}

// wait gives up the turn until the feed has a change after at, or for WatchOptions.Heartbeat.
func (w *watcher[T]) wait(ctx context.Context) error {
	limited := ctx
	if w.o.Heartbeat > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, w.o.Heartbeat, errHeartbeat)
		defer cancel()
	}
	waited, err := w.s.rt().WaitFeed(limited, w.c.Feed.Name, w.at)
	if err != nil || waited {
		return err
	}
	return w.giveUpTurn(ctx)
}

// giveUpTurn commits the writes of the loop, and lets the object's other events run.
func (w *watcher[T]) giveUpTurn(ctx context.Context) error {
	return runtime.Wait(ctx, func(ctx context.Context) error { return context.Cause(ctx) })
}

// read yields up to limit changes after at, and returns how many it has read.
func (w *watcher[T]) read(ctx context.Context, limit int) (n int, err error) {
	changes, err := w.s.rt().ReadFeed(ctx, w.c.Feed.Name, w.at, limit, watchBytes)
	if err != nil {
		return 0, err
	}
	_, end, err := w.s.rt().FeedEnds(ctx, w.c.Feed.Name)
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
func (w *watcher[T]) change(ch *objectstore.Change, log string) error {
	deltas, err := w.deltas(ch)
	if err != nil {
		return err
	}
	after := Position{Log: log, Offset: ch.Offset}
	ch.Value, ch.Before = nil, nil // frees the values while the consumer is slow
	for i, d := range deltas {
		deltas[i] = Delta[T]{}
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

func (w *watcher[T]) ready() error {
	w.resets, w.announced = 0, true
	return w.send(Delta[T]{Kind: DeltaReady, At: w.at})
}

func (w *watcher[T]) send(d Delta[T]) error {
	if !w.yield(d, nil) {
		return errLoopEnded
	}
	return nil
}
