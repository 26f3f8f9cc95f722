package chat

import (
	"context"
	"iter"
	"runtime/debug"

	"github.com/dohost/dohost"
)

// modelEvent is a chunk of a model, a value that the model passes to [Prompt.SaveCheckpoint], or a usage that it reports.
type modelEvent struct {
	chunk      Chunk
	err        error
	checkpoint any
	saved      chan<- error // nil for other events
	usage      *Usage       // nil for other events
}

// usageReporter returns a [Prompt.ReportUsage]: a usage is recorded after the chunks that were yielded before it.
func usageReporter(ch chan<- modelEvent) func(context.Context, Usage) {
	return func(ctx context.Context, u Usage) {
		select {
		case ch <- modelEvent{usage: &u}:
		case <-ctx.Done():
		}
	}
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

// modelRequest is a request to a model, and its receivers.
type modelRequest struct {
	ask  func(context.Context, *Prompt) iter.Seq2[Chunk, error]
	save func(v any) error // gets the values of [Prompt.SaveCheckpoint]
	each func(Chunk) error
	// usage records the call. Nil means that nothing is recorded.
	usage *usageCall
}

// receive asks a model, and passes its chunks to each. The row of the call is durable before that. The model runs on a goroutine of its
// own. When receive returns, that goroutine has ended, or its context is cancelled.
func receive(ctx context.Context, p *Prompt, r *modelRequest) error {
	if r.usage == nil {
		return receiveChunks(ctx, p, r)
	}
	err := r.usage.begin(ctx, p)
	if err == nil {
		err = receiveChunks(ctx, p, r)
	}
	if ended := r.usage.end(ctx, err); err == nil {
		return ended
	}
	return err
}

func receiveChunks(ctx context.Context, p *Prompt, r *modelRequest) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan modelEvent, 16)
	p.SaveCheckpoint, p.ReportUsage = checkpointSaver(ch), usageReporter(ch)
	go runModel(inner, ch, func() iter.Seq2[Chunk, error] { return r.ask(inner, p) })
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
			s.saved <- r.save(s.checkpoint)
			continue
		}
		if err := r.receive(ctx, s); err != nil {
			return err
		}
	}
}

// receive receives a chunk or a usage. The chunk, and the usage that it changes, are in one batch, unless each gives up the turn.
func (r *modelRequest) receive(ctx context.Context, s modelEvent) error {
	if s.usage != nil {
		if r.usage == nil {
			return nil
		}
		return r.usage.report(ctx, *s.usage)
	}
	if r.usage != nil {
		r.usage.count(s.chunk)
	}
	if err := r.each(s.chunk); err != nil || r.usage == nil {
		return err
	}
	return r.usage.storeSometimes(ctx)
}

// isFrame reports whether a chunk begins or ends a message or a step. The loops that ask models add these chunks themselves.
func isFrame(c Chunk) bool {
	switch c.Type() {
	case "start", "finish", "start-step", "finish-step":
		return true
	}
	return false
}

// stream sends the chunks that a model yields. resumes is set for [ResumableModel].ResumeStream.
func (a *answerRun) stream(
	ctx context.Context, p *Prompt, ask func(context.Context, *Prompt) iter.Seq2[Chunk, error], resumes bool,
) error {
	return receive(ctx, p, &modelRequest{ask: ask, usage: &usageCall{
		meter: a.l.meter(), resumes: resumes, retry: a.l.retryNoSpace,
		hold: func(ctx context.Context, do func(context.Context) error) error { return do(ctx) },
	}, save: func(v any) error {
		return a.l.retryNoSpace(ctx, func() error { return a.r.SaveCheckpoint(ctx, v) })
	}, each: func(c Chunk) error {
		if isFrame(c) {
			return nil
		}
		a.invalidCall = a.invalidCall || c.Type() == "tool-input-error"
		if err := a.recordUnstartedCall(ctx, c); err != nil {
			return err
		}
		return a.r.Send(ctx, c)
	}})
}
