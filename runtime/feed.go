package runtime

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/dohost/dohost/objectstore"
)

// FeedEnds returns the positions before the first and after the last entry of a feed, in
// the view of the turn.
func (s *State) FeedEnds(ctx context.Context, feed string) (start, end objectstore.Position, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return start, end, err
	}
	defer t.done()
	return s.incarnation().batch.FeedEnds(feed)
}

// ReadFeed returns up to limit entries of a feed after a position: durable entries, and
// then entries of this batch. It stops when their values have maxBytes bytes; zero means
// no bound. Errors: *objectstore.FeedError.
func (s *State) ReadFeed(ctx context.Context, feed string, after objectstore.Position, limit, maxBytes int) ([]objectstore.Change, error) {
	t, err := s.storage(ctx)
	if err != nil {
		return nil, err
	}
	defer t.done()
	return s.incarnation().batch.ReadFeed(feed, after, limit, maxBytes)
}

// WaitFeed returns when ReadFeed has an entry after a position, or when ctx has ended. If
// there is no entry yet it is an Await, which gives up the turn: then waited is true. A
// DeleteAll until then is a *objectstore.FeedError with Reset.
//
// Errors: *objectstore.FeedError, the ctx's cause, the errors of Await.
func (s *State) WaitFeed(ctx context.Context, feed string, after objectstore.Position) (waited bool, err error) {
	var deletions uint64
	for ; ; waited = true {
		ready, grown, n, err := s.watchFeed(ctx, feed, after)
		if err != nil {
			return waited, err
		}
		if waited && n != deletions {
			return waited, &objectstore.FeedError{Feed: feed, At: after, Reset: true}
		}
		if deletions = n; ready {
			return waited, context.Cause(ctx)
		}
		if grown == nil {
			// The pending entries are durable before an Await calls its fn.
			err = Await(ctx, func(ctx context.Context) error { return context.Cause(ctx) })
		} else {
			err = Wait(ctx, func(ctx context.Context) error {
				select {
				case <-grown:
				case <-ctx.Done():
				}
				slept(ctx) // a panic closes grown, and then ends the incarnation: a simulation orders that
				select {
				case <-grown:
					return nil
				default:
					return context.Cause(ctx)
				}
			})
		}
		if err != nil {
			return true, err
		}
	}
}

// FeedReady reports whether ReadFeed has an entry after a position.
// Errors: *objectstore.FeedError.
func (s *State) FeedReady(ctx context.Context, feed string, after objectstore.Position) (bool, error) {
	t, err := s.storage(ctx)
	if err != nil {
		return false, err
	}
	defer t.done()
	ready, _, err := s.incarnation().batch.FeedGrown(feed, after)
	return ready, err
}

// watchFeed reports whether ReadFeed has an entry after a position. If the feed has no
// entry there at all, grown is closed when it may have one, and after a DeleteAll. deletions is
// the number of DeleteAlls so far.
func (s *State) watchFeed(ctx context.Context, feed string, after objectstore.Position) (ready bool, grown <-chan struct{}, deletions uint64, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return false, nil, 0, err
	}
	defer t.done()
	deletions = s.incarnation().deletions
	ready, pending, err := s.incarnation().batch.FeedGrown(feed, after)
	if err != nil || ready || pending {
		return ready, nil, deletions, err
	}
	if s.incarnation().waiting == nil {
		s.incarnation().waiting = make(map[string]wakeReaders)
	}
	w, ok := s.incarnation().waiting[feed]
	if !ok {
		w = make(wakeReaders)
		s.incarnation().waiting[feed] = w
	}
	return false, w, deletions, nil
}

// Deletions returns the number of DeleteAlls since the object was last at rest.
func (s *State) Deletions(ctx context.Context) (uint64, error) {
	t, err := s.storage(ctx)
	if err != nil {
		return 0, err
	}
	defer t.done()
	return s.incarnation().deletions, nil
}

// allDeleted counts a DeleteAll, and wakes the readers of all feeds once it is durable.
func (inc *incarnation) allDeleted() {
	inc.deletions++
	for _, feed := range slices.Sorted(maps.Keys(inc.waiting)) {
		inc.feedGrows(feed)
	}
}

// feedGrows wakes the readers that wait for a feed once the writes of the batch are
// durable. Without readers it does nothing: a later reader finds the entry.
func (inc *incarnation) feedGrows(feed string) {
	if w, ok := inc.waiting[feed]; ok {
		delete(inc.waiting, feed)
		inc.batch.Emit(w)
	}
}

// wakeReaders is closed to wake all readers that wait for one feed. As an output it is released
// when the entry is durable. If the entry is lost, the readers wake too, and wait again.
type wakeReaders chan struct{}

// Release wakes the readers.
func (w wakeReaders) Release(error) { close(w) }

// Closing returns a channel that is closed when the host begins to close.
func (s *State) Closing() <-chan struct{} { return s.incarnation().host().Closing() }

// maxWatches bounds the watches of an object: each of them reads every change.
const maxWatches = 256

// BeginWatch counts a goroutine of an event that follows a feed until end is called. The
// returned context also ends, with ErrClosed, when the host begins to close.
//
// Errors: ErrOverloaded if 256 or half of Options.MaxEvents follow feeds.
func (s *State) BeginWatch(ctx context.Context) (watch context.Context, end func(), err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer t.done()
	h, a := s.incarnation().host(), s.incarnation().activity
	if limit := max(min(h.opts.MaxEvents/2, maxWatches), 1); a.watches.Add(1) > int64(limit) {
		a.watches.Add(-1)
		return nil, nil, fmt.Errorf("%w: the limit is %d watches and waiting readers of feeds per object", ErrOverloaded, limit)
	}
	watch, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.open, func() { cancel(context.Cause(h.open)) })
	return watch, func() {
		stop()
		cancel(nil)
		a.watches.Add(-1)
	}, nil
}
