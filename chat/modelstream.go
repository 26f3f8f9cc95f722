package chat

import (
	"context"
	"iter"
	"runtime/debug"

	"github.com/dohost/dohost"
)

// said is a chunk of a model, or a value that the model passes to [Prompt.SaveCheckpoint].
type said struct {
	chunk Chunk
	err   error
	keep  any
	kept  chan<- error // nil for a chunk
}

// keeper returns a [Prompt.SaveCheckpoint]: a value is saved after the chunks that were yielded
// before it.
func keeper(ch chan<- said) func(context.Context, any) error {
	return func(ctx context.Context, v any) error {
		kept := make(chan error, 1)
		select {
		case ch <- said{keep: v, kept: kept}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-kept:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runModel sends the chunks that a model yields, and closes ch. If the model panics, or
// ends its goroutine, runModel sends a *ModelPanic.
func runModel(ctx context.Context, ch chan<- said, ask func() iter.Seq2[Chunk, error]) {
	defer close(ch)
	send := func(s said) bool {
		select {
		case ch <- s:
			return true
		case <-ctx.Done():
			return false
		}
	}
	returned := false
	defer func() {
		if !returned {
			send(said{err: &ModelPanic{Value: recover(), Stack: debug.Stack()}})
		}
	}()
	for c, err := range ask() {
		if !send(said{chunk: c, err: err}) || err != nil {
			break
		}
	}
	returned = true
}

// stream sends the chunks that a model yields. The model runs on a goroutine of its own. When stream
// returns, that goroutine has ended, or its context is cancelled.
func (a *answering) stream(ctx context.Context, p *Prompt, ask func(context.Context, *Prompt) iter.Seq2[Chunk, error]) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan said, 16)
	p.SaveCheckpoint = keeper(ch)
	go runModel(inner, ch, func() iter.Seq2[Chunk, error] { return ask(inner, p) })
	for {
		s, ok, err := dohost.Recv(ctx, ch)
		switch {
		case err != nil:
			return err
		case !ok:
			return nil
		case s.err != nil:
			return s.err
		case s.kept != nil:
			s.kept <- a.r.l.whenRoom(ctx, func() error { return a.r.SaveCheckpoint(ctx, s.keep) })
			continue
		}
		if t := s.chunk.Type(); t == "start" || t == "finish" || t == "start-step" || t == "finish-step" {
			continue // Answer sends the chunks of steps
		}
		a.erred = a.erred || s.chunk.Type() == "tool-input-error"
		if err := a.mark(ctx, s.chunk); err != nil {
			return err
		}
		if err := a.r.Send(ctx, s.chunk); err != nil {
			return err
		}
	}
}
