package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// Errors of wakes.
var (
	// ErrWakeStale is the error of a request for a wake that its source has ended or replaced by a newer wake.
	ErrWakeStale = errors.New("agent: the wake is stale")
	// ErrWakeClaimed is the error of a claim of a wake that another worker has.
	ErrWakeClaimed = errors.New("agent: another worker has the wake")
	// ErrCursorBack is the error of a cursor that precedes an accepted one of its source.
	ErrCursorBack = errors.New("agent: the cursor precedes the last saved one")
	// ErrWakeEnded is the error of a call of a [Session] after the end of its wake.
	ErrWakeEnded = errors.New("agent: the wake has been completed, or has failed")
)

// WakeClaim is the claim of a wake by one worker. A source refuses requests with an older generation.
type WakeClaim struct {
	Wake       string
	Generation uint64
}

// SourceCursor is a position in a source of data, such as a stream. Positions are opaque.
type SourceCursor struct {
	Source   string
	Position string
}

// Lifecycle connects wakes of a source, such as a queue, a webhook or an alarm, with the code that works on them: see [RunWake]. Claim is
// required. The other functions may be nil, and then do nothing.
//
// The functions get the context of RunWake. For one Session, a call of a function begins when the last call has
// returned.
type Lifecycle[W any] struct {
	// Claim assigns the wake exclusively to this worker. For a wake that it cannot have, it should return ErrWakeStale or
	// ErrWakeClaimed, possibly wrapped.
	Claim func(ctx context.Context, wake W) (WakeClaim, error)
	// Heartbeat extends the claim.
	Heartbeat func(ctx context.Context, wake W, c WakeClaim) error
	// SaveCursors records the positions that the work has reached. Its effects up to them are durable.
	SaveCursors func(ctx context.Context, wake W, c WakeClaim, to []SourceCursor) error
	// Complete ends the wake. If work is pending, the source should send another wake soon.
	Complete func(ctx context.Context, wake W, c WakeClaim, work WorkState) error
	// Fail ends the wake after an error of the work.
	Fail func(ctx context.Context, wake W, c WakeClaim, cause error) error

	// Compare compares two positions of a source, as [strings.Compare] does. Nil compares their bytes.
	Compare func(source, a, b string) int
	// HeartbeatInterval is the time between two calls of Heartbeat while the work runs, for example a third of the lease. Zero
	// means none.
	HeartbeatInterval time.Duration
}

// RunWake claims a wake, calls fn, and completes the wake. No part of fn runs before the claim. If fn returns nil without a call of
// [Session.Complete], RunWake completes the wake with pending work, so the source does not lose it. If fn returns an error, RunWake calls Fail,
// unless fn has ended the wake, the wake is stale, or ctx has ended: another worker continues then.
//
// With a HeartbeatInterval a separate goroutine calls Heartbeat until fn returns, so RunWake must be called without the turn of an object: in a
// [dohost.Await], or outside of objects. If Heartbeat returns ErrWakeStale, the context of fn ends with it. Other errors of Heartbeat are
// ignored: the next call may succeed.
//
// Errors: the errors of Claim, fn, Complete and Fail; [ErrWakeStale], joined to the error of fn, if a heartbeat got it; [dohost.ErrMisuse] without
// a Claim or an fn.
func RunWake[W, R any](
	ctx context.Context, wake W, l *Lifecycle[W], fn func(context.Context, *Session[W]) (R, error),
) (result R, err error) {
	var none R
	if l == nil || l.Claim == nil || fn == nil {
		return none, fmt.Errorf("agent: RunWake without a Claim or a function: %w", dohost.ErrMisuse)
	}
	c, err := l.Claim(ctx, wake)
	if err != nil {
		return none, fmt.Errorf("agent: claiming the wake: %w", err)
	}
	s := newSession(wake, c, l)
	result, err = callWithHeartbeats(ctx, s, fn)
	switch {
	case err == nil:
		if err = s.Complete(ctx, WorkPending); err == nil || errors.Is(err, ErrWakeEnded) {
			return result, nil
		}
	case !errors.Is(err, ErrWakeStale):
		if failed := s.Fail(ctx, err); failed != nil && !errors.Is(failed, ErrWakeEnded) {
			err = errors.Join(err, failed)
		}
	}
	return none, err
}

// callWithHeartbeats calls fn, and Heartbeat until fn has returned.
func callWithHeartbeats[W, R any](ctx context.Context, s *Session[W], fn func(context.Context, *Session[W]) (R, error)) (R, error) {
	if s.of.HeartbeatInterval <= 0 || s.of.Heartbeat == nil {
		return fn(ctx, s)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.beat(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-stopped
	}()
	r, err := fn(ctx, s)
	if stale := context.Cause(ctx); err != nil && errors.Is(stale, ErrWakeStale) && !errors.Is(err, ErrWakeStale) {
		err = errors.Join(stale, err)
	}
	return r, err
}
