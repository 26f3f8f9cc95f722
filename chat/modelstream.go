package chat

import (
	"context"
	"errors"
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
	over       bool         // the model has yielded its last chunk
}

// modelEvents are the events of a call of a model. The model sends them from its goroutine, and from others that it starts, which may
// outlive the call. So no one closes events: the receiver closes received when it receives no more, and then all senders return.
type modelEvents struct {
	events   chan modelEvent
	received chan struct{}
}

var errModelOver = errors.New("chat: the call of the model is over")

// usageReporter returns a [Prompt.ReportUsage]: a usage is recorded after the chunks that were yielded before it.
func usageReporter(ch *modelEvents) func(context.Context, Usage) {
	return func(ctx context.Context, u Usage) {
		select {
		case ch.events <- modelEvent{usage: &u}:
		case <-ch.received:
		case <-ctx.Done():
		}
	}
}

// checkpointSaver returns a [Prompt.SaveCheckpoint]: a value is saved after the chunks that were yielded
// before it.
func checkpointSaver(ch *modelEvents) func(context.Context, any) error {
	return func(ctx context.Context, v any) error {
		saved := make(chan error, 1)
		select {
		case ch.events <- modelEvent{checkpoint: v, saved: saved}:
		case <-ch.received:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-saved:
			return err
		case <-ch.received:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case err := <-saved: // received was closed later
			return err
		default:
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return errModelOver
	}
}

// runModel sends the chunks that a model yields, and an event that is over. If the model panics, or
// ends its goroutine, runModel sends a *ModelPanic.
func runModel(ctx context.Context, ch *modelEvents, ask func() iter.Seq2[Chunk, error]) {
	send := func(s modelEvent) bool {
		select {
		case ch.events <- s:
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
	send(modelEvent{over: true})
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

func receiveChunks(ctx context.Context, p *Prompt, r *modelRequest) (err error) {
	ch := &modelEvents{make(chan modelEvent, 16), make(chan struct{})}
	defer close(ch.received) // after cancel, so that SaveCheckpoint returns the cause of its ctx
	inner, cancel := context.WithCancelCause(ctx)
	defer func() {
		if exhaustedBudget(err) != nil {
			cancel(ErrReplyOver) // a provider that stores the answer stops it
		}
		cancel(nil)
	}()
	p.SaveCheckpoint, p.ReportUsage = checkpointSaver(ch), usageReporter(ch)
	go runModel(inner, ch, func() iter.Seq2[Chunk, error] { return r.ask(inner, p) })
	for {
		s, err := r.next(ctx, ch.events)
		switch {
		case err != nil:
			return err
		case s.over:
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

// next receives an event. It writes the row of the usage when that lacks an event for too long, and returns an error when a budget of time
// is exhausted.
func (r *modelRequest) next(ctx context.Context, events <-chan modelEvent) (modelEvent, error) {
	u := r.usage
	if u == nil {
		s, _, err := dohost.Recv(ctx, events)
		return s, err
	}
	for {
		store, stopStore := u.withStoreTime(ctx)
		wait, stop := u.withBudgetTime(store)
		s, _, err := dohost.Recv(wait, events)
		stop()
		stopStore()
		switch {
		case !errors.Is(err, errStoreUsage) && !errors.Is(err, errBudgetTime):
			return s, err
		case ctx.Err() != nil:
			return s, context.Cause(ctx)
		}
		if err := u.overBudget(); err != nil {
			return s, err
		}
		if err := u.storeNow(ctx); err != nil {
			return s, err
		}
	}
}

// receive receives a chunk or a usage. The chunk, and the usage that it changes, are in one batch, unless each gives up the turn.
func (r *modelRequest) receive(ctx context.Context, s modelEvent) error {
	if s.usage != nil {
		if r.usage != nil {
			r.usage.report(*s.usage)
		}
		return nil
	}
	if r.usage != nil {
		r.usage.count(s.chunk)
	}
	if err := r.each(s.chunk); err != nil || r.usage == nil {
		return err
	}
	if err := r.usage.storeSometimes(ctx); err != nil {
		return err
	}
	return r.usage.overBudget()
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
		meter: a.l.meter(), resumes: resumes, suspends: true, step: a.l.stream.Steps(), retry: a.l.retryNoSpace, pause: usagePause,
		withChunks: true,
		withTurn:   func(ctx context.Context, do func(context.Context) error) error { return do(ctx) },
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
