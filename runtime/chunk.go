package runtime

import (
	"context"

	"github.com/dohost/dohost/eviction"
)

// Chunk emits a piece of a streamed response as an output (see EmitOutput), and then gives
// up the turn until wait returns. wait runs on this goroutine after everything committed is
// durable, and waits for the consumer of the pieces. Without the turn, with a context of
// this incarnation, the piece leaves after everything committed so far.
//
// Errors: the errors of wait, ErrNoTurn, ErrTurnBusy, ErrInTransaction, ErrFenced.
func (s *State) Chunk(ctx context.Context, size int, emit func(error), wait func(context.Context) error) error {
	if err := s.incarnation().cause(); err != nil {
		return err
	}
	t := turnOf(ctx)
	if t == nil || t.state.Load() != turnHeld {
		if err := s.EmitOutput(ctx, size, emit); err != nil {
			return err
		}
		return wait(ctx)
	}
	held, err := s.access(ctx)
	if err != nil {
		return err
	}
	nested := held.tx != nil
	held.done()
	if nested {
		return ErrInTransaction
	}
	if err := s.EmitOutput(ctx, size, emit); err != nil {
		return err
	}
	return t.runWithoutTurn(eviction.PlaceChunk, true, func() error {
		return wait(&releasedCtx{Context: ctx, t: t})
	})
}
