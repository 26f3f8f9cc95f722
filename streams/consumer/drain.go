package consumer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

const (
	// idlePause precedes the end of a wake without progress: the server has it pending, so it would send the next one immediately.
	idlePause = time.Second
	// maxFailures bounds the errors in the error of a drain.
	maxFailures = 10
)

// drain works on a wake until it has ended, or is stale.
func (s *Subscription) drain(ctx context.Context, h dohost.Locator, w *wake) error {
	_, err := agent.RunWake(ctx, w, s.lifecycle(w), func(ctx context.Context, session *agent.Session[*wake]) (struct{}, error) {
		d := &drain{of: s, host: h, session: session}
		for i := range w.Streams {
			d.streams = append(d.streams, &drainedStream{streamTail: w.Streams[i]})
		}
		// A wake names tails, so the drain is finite. Data that follow them are in the next wake.
		if _, err := agent.Drain(ctx, agent.DrainSource{Pending: d.pending, Cycle: d.cycle}, &agent.DrainOptions{MaxCycles: -1, MaxTime: -1}); err != nil {
			return struct{}{}, d.failure(err)
		}
		if err := d.failure(nil); err != nil {
			return struct{}{}, err
		}
		if !d.moved {
			if err := dohost.Sleep(ctx, idlePause); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, session.Complete(ctx, agent.WorkDone)
	})
	return err
}

// lifecycle has the requests for a wake. A failed wake stays claimed until its lease ends, since the agent repeats the drain.
func (s *Subscription) lifecycle(w *wake) *agent.Lifecycle[*wake] {
	return &agent.Lifecycle[*wake]{
		Claim: func(ctx context.Context, w *wake) (agent.WakeClaim, error) {
			return agent.WakeClaim{Wake: w.Wake, Generation: w.Generation}, s.ack(ctx, w, nil, false)
		},
		Heartbeat: func(ctx context.Context, w *wake, _ agent.WakeClaim) error {
			ctx, cancel := context.WithTimeout(ctx, w.Lease/3) // one that hangs does not cost the lease
			defer cancel()
			return s.ack(ctx, w, nil, false)
		},
		SaveCursors: func(ctx context.Context, w *wake, _ agent.WakeClaim, to []agent.SourceCursor) error {
			return s.ack(ctx, w, to, false)
		},
		Complete: func(ctx context.Context, w *wake, _ agent.WakeClaim, work agent.WorkState) error {
			return s.ack(ctx, w, nil, work == agent.WorkDone)
		},
		HeartbeatInterval: w.Lease / 3,
	}
}

// drain is the state of the work on a wake.
type drain struct {
	of      *Subscription
	host    dohost.Locator
	session *agent.Session[*wake]
	streams []*drainedStream
	moved   bool // an object or a cursor of the server has another position than before

	failures []error // of streams, the first maxFailures
	failed   int     // streams
}

// drainedStream is a stream of a drain.
type drainedStream struct {
	streamTail
	at    storedPosition // of the object; not known: it begins at the server's cursor
	read  bool           // at has been read
	again bool           // the stream was deleted, and perhaps created again: the object's position is not valid in it
	done  bool           // nothing is left to do: it has failed, or the object has all that the wake names, or the stream has been deleted
}

// from returns the position where the next read begins.
func (s *drainedStream) from() position {
	if !s.at.Known || s.again {
		return position{Offset: s.Acked}
	}
	return s.at.At
}

// pending reports whether there is a stream with messages of the wake.
func (d *drain) pending(context.Context) (bool, error) {
	for _, s := range d.streams {
		if !s.done {
			return true, nil
		}
	}
	return false, nil
}

// cycle takes one response of each pending stream, and acknowledges the positions. An error of one stream does not affect the others: the
// drain continues without it.
func (d *drain) cycle(ctx context.Context) error {
	var moved []*drainedStream
	for _, s := range d.streams {
		if s.done {
			continue
		}
		before := s.from()
		if err := d.take(ctx, s); err != nil {
			d.fail(s, err)
		}
		// The server may have lost an earlier acknowledgement, so the first one is sent in any case.
		if after := s.from(); s.at.Known && !s.again && after.Offset > s.Acked && (after.Offset != before.Offset || s.done) {
			moved = append(moved, s)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return d.saveCursors(ctx, moved)
}

// saveCursors acknowledges the positions of streams. The server refuses all cursors of a request if it refuses one, for example the cursor of a
// stream that has just been deleted.
func (d *drain) saveCursors(ctx context.Context, moved []*drainedStream) error {
	if len(moved) == 0 {
		return nil
	}
	cursors := make([]agent.SourceCursor, len(moved))
	for i, s := range moved {
		cursors[i] = agent.SourceCursor{Source: s.Path, Position: s.at.At.Offset}
	}
	d.moved = true
	err := d.session.SaveCursors(ctx, cursors...)
	if !offsetRefused(err) {
		return err
	}
	for i, s := range moved {
		switch err := d.session.SaveCursors(ctx, cursors[i]); {
		case offsetRefused(err):
			d.fail(s, err)
		case err != nil:
			return err
		}
	}
	return nil
}

func offsetRefused(err error) bool {
	e, ok := errors.AsType[*serverError](err)
	return ok && e.code == "INVALID_OFFSET"
}

// fail ends the work on a stream. The drain returns the error when it has worked on the other streams.
func (d *drain) fail(s *drainedStream, err error) {
	s.done = true
	if d.failed++; len(d.failures) < maxFailures {
		d.failures = append(d.failures, &streamError{s.Path, err})
	}
}

// streamError is an error of a stream, which its text names.
type streamError struct {
	path string
	err  error
}

func (e *streamError) Error() string {
	return fmt.Sprintf("consumer: stream %q: %s", e.path, strings.TrimPrefix(e.err.Error(), "consumer: "))
}

// Unwrap returns the error without the path.
func (e *streamError) Unwrap() error { return e.err }

// failure joins the errors of the streams, and err.
func (d *drain) failure(err error) error {
	if n := d.failed - len(d.failures); n > 0 {
		err = errors.Join(fmt.Errorf("consumer: %d more streams have failed", n), err)
	}
	if n := d.session.Wake().Refused; n > 0 {
		err = errors.Join(fmt.Errorf("consumer: %d streams without a path of 1 to %d bytes, or with offsets of more than %d", n, maxPath, maxOffset), err)
	}
	return errors.Join(append(d.failures, err)...)
}

// take reads one response of a stream, and passes it to the stream's object.
func (d *drain) take(ctx context.Context, s *drainedStream) error {
	target, name, err := d.of.targetOf(s.Path)
	if err != nil {
		return err
	}
	if !s.read {
		if s.at, err = target.at(ctx, d.host, name, positionKey(d.of.ID, s.Path)); err != nil {
			return err
		}
		s.read = true
		if err := d.checkPosition(ctx, s); err != nil || s.done {
			return err
		}
	}
	from := s.from()
	r, err := d.of.read(ctx, http.MethodGet, s.Path, from.Offset)
	if err != nil {
		return err
	}
	defer r.close()
	switch {
	case r.next == "" && s.at.Known && !s.again: // it was deleted, and perhaps created again
		s.again = true
		return nil
	case r.next == "": // its messages were deleted with it
		s.done = true
		return nil
	case r.next < from.Offset:
		return fmt.Errorf("consumer: the server answers a read at %q with the next offset %q", from.Offset, r.next)
	}
	before := s.at
	p := &passing{drain: d, stream: s, target: target, name: name, next: r.next}
	err = p.pass(ctx, r)
	d.moved = d.moved || s.at != before
	if err != nil {
		return err
	}
	s.done = s.at.At.Skip == 0 && s.at.At.Offset >= s.Tail || r.next == from.Offset
	return nil
}

// checkPosition compares the object's position with the tail that the wake names. A later one usually means that an earlier drain has read
// more than its wake had named. But if it is later than the present tail too, the stream was deleted, and created again.
func (d *drain) checkPosition(ctx context.Context, s *drainedStream) error {
	from := s.from()
	if from.Offset > s.Tail {
		r, err := d.of.read(ctx, http.MethodHead, s.Path, "")
		if err != nil {
			return err
		}
		defer r.close()
		s.again = r.next != "" && from.Offset > r.next
	}
	s.done = !s.again && from.Skip == 0 && from.Offset >= s.Tail
	return nil
}
