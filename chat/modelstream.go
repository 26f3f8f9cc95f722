package chat

import (
	"context"
	"iter"
	"runtime/debug"

	"github.com/dohost/dohost"
)

// modelEvent is a chunk of a model, or a value that the model passes to [Prompt.SaveCheckpoint].
type modelEvent struct {
	chunk      Chunk
	err        error
	checkpoint any
	saved      chan<- error // nil for a chunk
}

// checkpointSaver returns a [Prompt.SaveCheckpoint]: a value is saved after the chunks that were yielded
// before it.
func checkpointSaver(ch chan<- modelEvent) func(context.Context, any) error {
	return func(ctx context.Context, v any) error {
		saved := make(chan error, 1)
		select {
		case ch <- modelEvent{checkpoint: v, saved: saved}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-saved:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// runModel sends the chunks that a model yields, and closes ch. If the model panics, or
// ends its goroutine, runModel sends a *ModelPanic.
func runModel(ctx context.Context, ch chan<- modelEvent, ask func() iter.Seq2[Chunk, error]) {
	defer close(ch)
	send := func(s modelEvent) bool {
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
			send(modelEvent{err: &ModelPanic{Value: recover(), Stack: debug.Stack()}})
		}
	}()
	for c, err := range ask() {
		if !send(modelEvent{chunk: c, err: err}) || err != nil {
			break
		}
	}
	returned = true
}

// receive passes each the chunks that a model yields, and save the values of [Prompt.SaveCheckpoint]. The model runs on a
// goroutine of its own. When receive returns, that goroutine has ended, or its context is cancelled.
func receive(
	ctx context.Context, p *Prompt, ask func(context.Context, *Prompt) iter.Seq2[Chunk, error], save func(v any) error, each func(Chunk) error,
) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan modelEvent, 16)
	p.SaveCheckpoint = checkpointSaver(ch)
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
		case s.saved != nil:
			s.saved <- save(s.checkpoint)
			continue
		}
		if err := each(s.chunk); err != nil {
			return err
		}
	}
}

// isFrame reports whether a chunk begins or ends a message or a step. The loops that ask models add these chunks themselves.
func isFrame(c Chunk) bool {
	switch c.Type() {
	case "start", "finish", "start-step", "finish-step":
		return true
	}
	return false
}

// stream sends the chunks that a model yields.
func (a *answerRun) stream(ctx context.Context, p *Prompt, ask func(context.Context, *Prompt) iter.Seq2[Chunk, error]) error {
	save := func(v any) error {
		return a.l.retryNoSpace(ctx, func() error { return a.r.SaveCheckpoint(ctx, v) })
	}
	return receive(ctx, p, ask, save, func(c Chunk) error {
		if isFrame(c) {
			return nil
		}
		a.invalidCall = a.invalidCall || c.Type() == "tool-input-error"
		if err := a.recordUnstartedCall(ctx, c); err != nil {
			return err
		}
		return a.r.Send(ctx, c)
	})
}
