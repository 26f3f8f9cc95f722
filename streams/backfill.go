package streams

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/dohost/dohost"
)

// backfillPage bounds the streams that one step of a backfill looks at.
const backfillPage = 256

// backfill links the existing streams that match the pattern or that the client has named. Their cursors are the present
// tails, so a new subscription replays no data. The creation waits for it, and the alarm continues one that a crash has
// interrupted. One event at a time makes a step. A link that has a cursor keeps it.
//
// Between the step that publishes the subscription and the one that reads a tail, a stream may have had an append, whose notice arrives
// later: it moves the cursor back to the offset before that append (link.Fresh).
func (s *Subscription) backfill(ctx context.Context) error {
	for {
		c, w, err := s.load(ctx)
		if err != nil || c == nil || !w.Scan && !w.Unread {
			return err
		}
		if err := s.fill(ctx, c, w); err != nil {
			return err
		}
	}
}

// fill is one step of a backfill, or waits for the step of another event.
func (s *Subscription) fill(ctx context.Context, c *config, w *wake) error {
	if filling := s.filling; filling != nil {
		return dohost.Await(ctx, func(ctx context.Context) error {
			select {
			case <-filling:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	filling := make(chan struct{})
	s.filling = filling
	defer func() {
		s.filling = nil
		close(filling)
	}()
	if w.Scan {
		return s.scan(ctx, c, w)
	}
	return s.readTails(ctx, c)
}

// scan links the next streams in order of name that match the pattern.
func (s *Subscription) scan(ctx context.Context, c *config, w *wake) error {
	instance, after, matching := c.Instance, w.Scanned, c.pattern()
	var found []string
	last, seen := "", 0
	err := dohost.Await(ctx, func(ctx context.Context) error {
		for id, err := range hostOf(s.state).Objects(ctx, string(Streams), after) {
			if errors.Is(err, dohost.ErrDamaged) {
				continue // the objects outside of the damaged block follow
			}
			if err != nil {
				return err
			}
			if matching.matches(id.Name, strings.Split(id.Name, "/")) {
				found = append(found, id.Name)
			}
			if last, seen = id.Name, seen+1; seen == backfillPage {
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	tails, err := s.tails(ctx, found)
	if err != nil {
		return err
	}
	c, w, err = s.load(ctx)
	if err != nil || c == nil || c.Instance != instance || !w.Scan || w.Scanned != after {
		return err // the subscription is deleted, or the other run has made this step
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		for i, path := range found {
			if tails[i] == "" || tails[i] == unreadable {
				continue // it is deleted, or its next append links it
			}
			if err := s.linkAt(ctx, path, tails[i], true); err != nil {
				return err
			}
		}
		w.Scan, w.Scanned = seen == backfillPage, last
		return s.save(ctx, w)
	})
}

// readTails gives the links without a cursor one. A stream whose tail cannot be read gets its cursor from its next append.
func (s *Subscription) readTails(ctx context.Context, c *config) error {
	instance := c.Instance
	unread := &dohost.Query[link]{Index: "new"} // at most maxExplicit: a link by the pattern has a cursor
	rows, err := links.List(ctx, s.state.Storage(), unread)
	if err != nil {
		return err
	}
	read := map[string]string{}
	var paths []string
	for _, row := range rows {
		paths = append(paths, row.Key)
	}
	tails, err := s.tails(ctx, paths)
	if err != nil {
		return err
	}
	for i, path := range paths {
		read[path] = tails[i]
	}
	c, w, err := s.load(ctx)
	if err != nil || c == nil || c.Instance != instance {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		w.Unread = false
		if rows, err = links.List(ctx, s.state.Storage(), unread); err != nil {
			return err
		}
		for _, row := range rows {
			switch tail, ok := read[row.Key]; {
			case !ok: // the client has added it since
				w.Unread = true
			case tail == unreadable:
			default:
				// A stream is linked before it exists.
				if err := s.linkAt(ctx, row.Key, cmp.Or(tail, offsetStart), false); err != nil {
					return err
				}
			}
		}
		return s.save(ctx, w)
	})
}

// linkAt gives a link a cursor, unless it has one. With glob it makes a missing link.
func (s *Subscription) linkAt(ctx context.Context, path, tail string, glob bool) error {
	row, ok, err := links.Get(ctx, s.state.Storage(), path)
	if err != nil || !ok && !glob {
		return err
	}
	l := row.Value
	if !ok {
		l = link{Path: path, Fresh: true}
	}
	l.Glob = l.Glob || glob
	if l.Acked == "" {
		l.Acked, l.Tail = tail, tail
	}
	return links.Put(ctx, s.state.Storage(), l)
}

// unreadable is in the place of a tail that cannot be read.
const unreadable = "unreadable"

// tails returns the tails of streams, with an empty text for one that does not exist, and unreadable for one that fails: its next append
// links it, at the offset before that append. It gives up the turn.
func (s *Subscription) tails(ctx context.Context, paths []string) ([]string, error) {
	tails := make([]string, len(paths))
	err := dohost.Await(ctx, func(ctx context.Context) error {
		for i, path := range paths {
			h := hostOf(s.state)
			exists, err := h.Exists(ctx, Streams.Get(h, path).ID()) // a name of the client must not wake an object
			if err == nil && !exists {
				continue
			}
			err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error {
				found, err := dohost.Call(ctx, Streams.Get(h, path), (*Stream).head, struct{}{})
				if found != nil {
					tails[i] = found.Tail
				}
				return err
			})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				tails[i] = unreadable
			}
		}
		return nil
	})
	return tails, err
}
