package streams

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// linked is the result of addStreams and removeStream.
type linked int

const (
	linkedDone linked = iota
	linkedNotFound
	linkedTooMany
	linkedCrowded // a stream has too many subscriptions
)

var errTooManyNames = errors.New("streams: the subscription names too many streams")

// addStreams links streams by name, at their tails.
func (s *Subscription) addStreams(ctx context.Context, paths []string) (linked, error) {
	c, w, err := s.load(ctx)
	if err != nil || c == nil {
		return linkedNotFound, err
	}
	if s.crowds(c, paths) {
		return linkedCrowded, nil
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) error {
		for _, path := range paths {
			row, ok, err := links.Get(ctx, s.state.Storage(), path)
			if err != nil {
				return err
			}
			l := row.Value
			if !ok {
				l = link{Path: path, Fresh: true}
			}
			l.Explicit = true
			if err := links.Put(ctx, s.state.Storage(), l); err != nil {
				return err
			}
		}
		w.Unread = true
		if err := s.save(ctx, w); err != nil {
			return err
		}
		names, err := links.Count(ctx, s.state.Storage(), &dohost.Query[link]{Index: "named"})
		if err == nil && names > maxExplicit {
			err = errTooManyNames // nothing is written
		}
		return err
	})
	switch {
	case errors.Is(err, errTooManyNames):
		return linkedTooMany, nil
	case err != nil:
		return 0, err
	}
	if err := s.publish(ctx, c); err != nil {
		return 0, err
	}
	return linkedDone, s.backfill(ctx)
}

// removeStream removes the name of a stream. A link by the pattern remains.
func (s *Subscription) removeStream(ctx context.Context, path string) (linked, error) {
	c, _, err := s.load(ctx)
	if err != nil || c == nil {
		return linkedNotFound, err
	}
	row, ok, err := links.Get(ctx, s.state.Storage(), path)
	if err != nil || !ok || !row.Value.Explicit {
		return linkedDone, err
	}
	l := row.Value
	if l.Explicit = false; l.Glob {
		err = links.Put(ctx, s.state.Storage(), l)
	} else {
		_, err = links.Delete(ctx, s.state.Storage(), path)
	}
	if err == nil { // until that is durable, the stream must find the subscription
		err = dohost.Await(ctx, func(context.Context) error { return nil })
	}
	if err == nil {
		c, _, err = s.load(ctx)
	}
	if err != nil || c == nil {
		return linkedDone, err
	}
	return linkedDone, s.publish(ctx, c)
}
