package consumer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

const workers dohost.Namespace[worker] = ClassName

// worker is the object that works on the wakes of a subscription.
type worker struct {
	*agent.Agent[struct{}]
	of *Subscription // nil: the program has no such subscription any more
}

// wake is the row of a wake. There is at most one.
type wake struct {
	Wake       string
	Generation uint64
	Token      string
	Pull       bool
	Lease      time.Duration
	Streams    []streamTail // with pending messages
	Refused    int          `msgpack:",omitempty"` // streams that are not in Streams, since their paths or offsets are too long
}

// streamTail is a stream in a wake.
type streamTail struct {
	Path  string
	Acked string // the server's cursor
	Tail  string
}

func (s *streamTail) size() int { return len(s.Path) + len(s.Acked) + len(s.Tail) }

const wakeKey = "wake"

var wakes = dohost.Collection[wake]{
	Name:    "dohost.streams.wakes",
	Key:     func(wake) string { return wakeKey },
	Indexes: []dohost.Index[wake]{{Name: "work", Of: func(wake) dohost.Key { return dohost.KeyOf(wakeKey) }}},
}

// maxStreams and maxStreamBytes bound the streams of a delivery that are stored, the second by their paths and offsets. If a wake has more, the
// server wakes the worker again for the rest.
const maxStreams, maxStreamBytes = 1000, 512 << 10

// acceptRequest is a wake for a worker.
type acceptRequest struct {
	Wake wake
	// Sure is set for a wake that is known to be the present one of the server.
	Sure bool
}

// accept stores a wake, unless it is stored, or may be older than the stored one. A server that has lost its memory begins with lower
// generations again, so only the server knows: unsure asks the caller to find out.
func (w *worker) accept(ctx context.Context, r acceptRequest) (unsure bool, err error) {
	row, ok, err := wakes.Get(ctx, w.Storage(), wakeKey)
	if err != nil {
		return false, err
	}
	stored := row.Value
	switch {
	case ok && stored.Wake == r.Wake.Wake:
		if !stored.merge(r.Wake.Streams) {
			return false, nil
		}
		r.Wake = stored
	case ok && stored.Generation >= r.Wake.Generation && !r.Sure:
		return true, nil
	}
	return false, wakes.Put(ctx, w.Storage(), r.Wake)
}

// merge adds the streams of another delivery of the wake, and reports whether it has changed the wake.
func (w *wake) merge(list []streamTail) (changed bool) {
	at, size := map[string]int{}, 0
	for i, s := range w.Streams {
		at[s.Path] = i
		size += s.size()
	}
	for _, s := range list {
		i, ok := at[s.Path]
		switch {
		case !ok && len(w.Streams) < maxStreams && size+s.size() <= 2*maxStreamBytes:
			w.Streams, changed, size = append(w.Streams, s), true, size+s.size()
		case ok && w.Streams[i].Tail < s.Tail:
			w.Streams[i].Tail, changed = s.Tail, true
		}
	}
	return changed
}

// waiting reports whether the worker has a wake that has not ended.
func (w *worker) waiting(ctx context.Context, id string) (bool, error) {
	row, ok, err := wakes.Get(ctx, w.Storage(), wakeKey)
	return ok && row.Value.Wake == id, err
}

var errNoSubscription = errors.New("consumer: the program has no subscription of this ID")

// work drains the streams of a wake.
func (w *worker) work(ctx context.Context, row dohost.Row[wake]) error {
	if w.of == nil {
		return errNoSubscription
	}
	of, now := w.of, row.Value
	err := dohost.Await(ctx, func(ctx context.Context) error { return of.drain(ctx, w.Object(), &now) })
	switch {
	case errors.Is(err, dohost.ErrFenced) && ctx.Err() != nil:
		return err
	case errors.Is(err, agent.ErrWakeStale):
		w.Object().Report(ctx, "consumer:superseded", slog.Uint64("generation", now.Generation), slog.String("reason", err.Error()))
	case err != nil:
		return err
	}
	stored, ok, err := wakes.Get(ctx, w.Storage(), wakeKey)
	if err != nil || !ok || stored.Value.Wake != now.Wake {
		return err // the agent calls work again for the newer wake
	}
	_, err = wakes.Delete(ctx, w.Storage(), wakeKey)
	return err
}
