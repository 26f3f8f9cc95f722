package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Session is a claimed wake, for the function of [RunWake]. Its methods may be called concurrently; each waits for the last call of the
// Lifecycle's functions.
type Session[W any] struct {
	wake  W
	claim WakeClaim
	of    *Lifecycle[W]

	busy  chan struct{}     // has an element during a call; its holder owns the fields below
	at    map[string]string // the accepted position of each source
	ended bool
}

func newSession[W any](wake W, c WakeClaim, l *Lifecycle[W]) *Session[W] {
	return &Session[W]{wake: wake, claim: c, of: l, busy: make(chan struct{}, 1), at: map[string]string{}}
}

// Wake returns the wake.
func (s *Session[W]) Wake() W { return s.wake }

// Claim returns the claim of the wake.
func (s *Session[W]) Claim() WakeClaim { return s.claim }

// Heartbeat extends the claim.
//
// Errors: the errors of the Lifecycle's Heartbeat, [ErrWakeEnded], the context's cause.
func (s *Session[W]) Heartbeat(ctx context.Context) error {
	return s.call(ctx, func() error {
		if s.of.Heartbeat == nil {
			return nil
		}
		return s.of.Heartbeat(ctx, s.wake, s.claim)
	})
}

// SaveCursors records the position reached in each source. The effects up to that position must be durable. SaveCursors may repeat
// the last position of a source.
//
// Errors: [ErrCursorBack] for a position that precedes an accepted one, or an earlier one of the call, and then none is recorded; the errors of
// the Lifecycle's SaveCursors; [ErrWakeEnded]; the context's cause.
func (s *Session[W]) SaveCursors(ctx context.Context, to ...SourceCursor) error {
	return s.call(ctx, func() error {
		at := maps.Clone(s.at)
		for _, c := range to {
			if last, ok := at[c.Source]; ok && s.compare(c.Source, c.Position, last) < 0 {
				return fmt.Errorf("%w: source %q is at %q, not %q", ErrCursorBack, c.Source, last, c.Position)
			}
			at[c.Source] = c.Position
		}
		if s.of.SaveCursors != nil {
			if err := s.of.SaveCursors(ctx, s.wake, s.claim, to); err != nil {
				return err
			}
		}
		s.at = at
		return nil
	})
}

func (s *Session[W]) compare(source, a, b string) int {
	if s.of.Compare == nil {
		return strings.Compare(a, b)
	}
	return s.of.Compare(source, a, b)
}

// Complete ends the wake. Pass WorkDone only if no work is pending: the source should send another wake soon for [WorkPending].
//
// Errors: the errors of the Lifecycle's Complete, after which the wake has not ended; [ErrWakeEnded]; the context's cause.
func (s *Session[W]) Complete(ctx context.Context, work WorkState) error {
	return s.end(ctx, func() error {
		if s.of.Complete == nil {
			return nil
		}
		return s.of.Complete(ctx, s.wake, s.claim, work)
	})
}

// Fail ends the wake after an error of the work.
//
// Errors: the errors of the Lifecycle's Fail, after which the wake has not ended; [ErrWakeEnded]; the context's cause.
func (s *Session[W]) Fail(ctx context.Context, cause error) error {
	return s.end(ctx, func() error {
		if s.of.Fail == nil {
			return nil
		}
		return s.of.Fail(ctx, s.wake, s.claim, cause)
	})
}

// end is call for a function that ends the wake.
func (s *Session[W]) end(ctx context.Context, do func() error) error {
	return s.call(ctx, func() error {
		if err := do(); err != nil {
			return err
		}
		s.ended = true
		return nil
	})
}

// call calls a function of the Lifecycle when no other call runs.
func (s *Session[W]) call(ctx context.Context, do func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case s.busy <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.busy }()
	if s.ended {
		return ErrWakeEnded
	}
	return do()
}

// beat calls Heartbeat until the wake or ctx ends. It cancels ctx if the wake is stale.
func (s *Session[W]) beat(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(s.of.HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch err := s.Heartbeat(ctx); {
		case errors.Is(err, ErrWakeEnded):
			return
		case errors.Is(err, ErrWakeStale):
			cancel(err)
			return
		}
	}
}
