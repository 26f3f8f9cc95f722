package inbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// ErrExpired is the error of [WaitReply] for a request whose Deadline is over: it has no response, and gets none. It is an [ErrNoReply].
var ErrExpired = fmt.Errorf("inbox: the deadline of the request is over: %w", ErrNoReply)

// errDeadline ends a call of the model at the deadline of its cycle, and a wait for a response at the deadline of the request.
var errDeadline = errors.New("inbox: the deadline is over")

// isOver reports whether a deadline is over. The zero time means no deadline.
func isOver(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// earlier returns the earlier one of two deadlines.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cycleDeadline returns the deadline of a cycle, which its request sets. A program may have sent the request in several messages: then the latest
// counts, since the response is for all of them.
func cycleDeadline(pending []dohost.Row[Message]) (latest time.Time) {
	for _, row := range pending {
		switch m := row.Value; {
		case m.Request == "" || m.Deadline.IsZero():
			return time.Time{}
		case m.Deadline.After(latest):
			latest = m.Deadline
		}
	}
	return latest
}

// expiry ends the cycles of rows without a response when no code waits for it any more.
type expiry[O, Row any] struct {
	deadline func(pending []dohost.Row[Row]) time.Time // zero: none
	// expire takes rows out of the index. It runs instead of Respond.
	expire func(o *O, ctx context.Context, pending []dohost.Row[Row]) error
}

// expire marks the messages of a request as expired.
func (a *Agent) expire(ctx context.Context, of Ref, messages *dohost.Collection[Message], pending []dohost.Row[Message]) error {
	m := pending[0].Value
	_, answered, err := Reply(ctx, of.Storage(), messages, m) // to a message with the same request
	if err != nil {
		return err
	}
	for _, row := range pending {
		_, err := messages.Update(ctx, of.Storage(), row.Key, func(m *Message) error {
			m.Processed, m.Expired = time.Now(), !answered
			return nil
		})
		if err != nil {
			return err
		}
	}
	if a.Chunks != nil { // they remain, without an end
		if _, err := generations.Delete(ctx, of.Storage(), placeOf(ctx)); err != nil {
			return err
		}
	}
	if answered {
		return nil
	}
	of.Object().Report(ctx, "inbox:expired", slog.String("agent", a.Name), slog.String("from", m.From), slog.String("request", m.Request))
	return nil
}

// cycleModel is the model of a cycle. It is not asked after the deadline, and its answer ends there. The tools of a cycle do not end
// there: it would not be known whether they took effect. An error of a budget that the model itself returns is an otherBudget.
type cycleModel struct{ chat.Model }

// forCycles returns the model of the cycles of an agent.
func forCycles(m chat.Model) chat.Model {
	if m == nil {
		return nil
	}
	return cycleModel{m}
}

func (m cycleModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	stream := m.untilDeadline(ctx, p)
	return func(yield func(chat.Chunk, error) bool) {
		for c, err := range stream {
			if _, other := errors.AsType[*chat.BudgetError](err); other {
				err = otherBudget{err}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// untilDeadline asks the model until the deadline of the cycle.
func (m cycleModel) untilDeadline(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	of, ok := ctx.Value(requesterKey{}).(*requester)
	if !ok || of.deadline.IsZero() {
		return m.Model.Stream(ctx, p)
	}
	return func(yield func(chat.Chunk, error) bool) {
		limited, cancel := context.WithDeadlineCause(ctx, of.deadline, errDeadline)
		defer cancel()
		if limited.Err() != nil {
			yield(chat.Chunk{}, context.Cause(limited))
			return
		}
		var failed error
		for c, err := range m.Model.Stream(limited, p) {
			if failed = err; err != nil {
				break
			}
			if !yield(c, nil) {
				return
			}
		}
		if limited.Err() != nil { // also without an error of the model, whose answer may be incomplete
			failed = context.Cause(limited)
		}
		if failed != nil {
			yield(chat.Chunk{}, failed)
		}
	}
}

// waitRows is [agent.Rows.Wait] until the deadline of a request.
func waitRows(ctx context.Context, a Ref, deadline time.Time) error {
	if end, ok := ctx.Deadline(); deadline.IsZero() || ok && !end.After(deadline) {
		return a.Rows().Wait(ctx)
	}
	limited, cancel := context.WithDeadlineCause(ctx, deadline, errDeadline)
	defer cancel()
	err := a.Rows().Wait(limited)
	if errors.Is(err, errDeadline) {
		return nil
	}
	return err
}
