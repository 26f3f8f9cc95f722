package chat

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
)

// runFiber runs the fiber of a reply.
func (k *conversation) runFiber(ctx context.Context, f *agent.Fiber[json.RawMessage]) error {
	row, ok, err := k.requestOfFiber(ctx, f.ID)
	if err != nil || !ok {
		return err
	}
	for row.Status == StatusRunning {
		first := f.Attempt == 0 && k.lastHandled != row.ID
		k.lastHandled = row.ID
		if row, err = k.run(ctx, row, f, first); err != nil {
			if ctx.Err() == nil { // the fiber runs again immediately
				k.base.Object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.Any("err", err))
				err = errors.Join(err, dohost.Sleep(ctx, time.Second))
			}
			return err
		}
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil // see endCancelled
	}
	return k.callOnResponse(ctx, row)
}

// requestOfFiber returns the request that a fiber answers.
func (k *conversation) requestOfFiber(ctx context.Context, fiber string) (row replyRow, ok bool, err error) {
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "fiber", Equal: dohost.KeyOf(fiber), Limit: 1})
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0].Value, true, nil
}

// run calls the handler once, and returns the new state of the request. The status is still StatusRunning if the
// handler must run again.
func (k *conversation) run(ctx context.Context, row replyRow, f *agent.Fiber[json.RawMessage], first bool) (replyRow, error) {
	l, err := k.load(ctx, row)
	if err != nil {
		return row, err
	}
	k.live = l
	if !first {
		if err := k.resume(ctx, l, f); err != nil || l.ended {
			return l.row, err
		}
	}
	if err := k.notifyReplyBegins(ctx, l); err != nil {
		return l.row, err
	}
	if first && row.Continues {
		if results, _ := l.abandonedCalls(false); len(results) > 0 {
			if err := l.addAll(ctx, results); err != nil {
				return l.row, err
			}
		}
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.cancel = cancel
	if stall := k.class.options.Stall; stall > 0 {
		l.stallTimer = time.AfterFunc(stall, func() { cancel(errStalled) })
		defer l.stallTimer.Stop()
	}
	r := &Reply{ID: row.ID, Attempt: l.row.Runs.Begun - 1, k: k, l: l, fiber: f}
	failed := k.class.reply(k.owner, inner, r)
	switch {
	case l.ended:
		return l.row, nil
	case errors.Is(context.Cause(ctx), context.Canceled): // the fiber, not the incarnation
		err = k.endWhenSpace(context.WithoutCancel(ctx), l, StatusAborted, publicFailure(errCancelled.Error()))
	case ctx.Err() != nil:
		return l.row, context.Cause(ctx) // the incarnation has ended: the row keeps StatusRunning
	case failed == nil:
		err = k.endWhenSpace(ctx, l, StatusCompleted, failure{})
	case errors.Is(context.Cause(inner), errStalled):
		l.ended = true
		k.base.Object().Report(ctx, "chat:stalled", slog.String("request", row.ID))
		return l.row, nil
	case k.resumesTruncated(failed, l):
		return l.row, k.retryTruncated(ctx, l, failed)
	default:
		k.base.Object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.Any("err", failed))
		err = k.endWhenSpace(ctx, l, StatusFailed, failure{failed.Error(), k.errorText(failed)})
	}
	return l.row, err
}

// resumesTruncated reports whether the handler failed because the connection to its model ended during an answer, and
// the reply resumes. MaxAttempts bounds these attempts even if each one adds chunks.
func (k *conversation) resumesTruncated(failed error, l *liveReply) bool {
	e, ok := errors.AsType[*ModelError](failed)
	rules := k.class.options.Recovery
	return ok && e != nil && e.Truncated && !rules.Off && (rules.MaxAttempts < 0 || l.row.Runs.Truncated < rules.MaxAttempts)
}

// retryTruncated counts an interrupted answer of a model, and waits before the next request.
func (k *conversation) retryTruncated(ctx context.Context, l *liveReply, failed error) error {
	l.row.Runs.Truncated++
	k.base.Object().Report(ctx, "chat:truncated", slog.String("request", l.row.ID), slog.Any("err", failed), slog.Int("times", l.row.Runs.Truncated))
	if err := replies.Put(ctx, k.store(), l.row); err != nil {
		return err
	}
	if err := dohost.Sleep(ctx, time.Duration(l.row.Runs.Truncated)*time.Second); err != nil {
		return err
	}
	l.ended = true // it may have been stopped during the sleep
	return nil
}

// load rebuilds the state of a reply from its log.
func (k *conversation) load(ctx context.Context, row replyRow) (*liveReply, error) {
	m, records, err := k.messageBefore(ctx, row)
	if err != nil {
		return nil, err
	}
	l := &liveReply{k: k, replyState: newReplyState(row, m, records)}
	err = k.eachChunk(ctx, &row, func(r chunkRow) error {
		var c Chunk
		if err := json.Unmarshal(r.JSON, &c); err != nil {
			return err
		}
		l.stream.Replay(c, row.Allowed)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.stream.BeginRun(row.Allowed)
	return l, nil
}

// messageBefore returns the message of a reply without the chunks of the reply, and the records of its calls.
func (k *conversation) messageBefore(ctx context.Context, row replyRow) (Message, []uimessage.CallRecord, error) {
	m := Message{ID: row.Message, Role: RoleAssistant}
	if !row.Continues {
		return m, nil, nil
	}
	old, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return m, nil, err
	}
	m, err = old.Message()
	return m, old.Calls, err
}

// eachChunk calls do for each chunk in the log of a reply, in order.
func (k *conversation) eachChunk(ctx context.Context, r *replyRow, do func(chunkRow) error) error {
	of := dohost.KeyOf(r.Number)
	for row, err := range chunkRows.All(ctx, k.store(), &dohost.Query[chunkRow]{
		Start: of + dohost.KeyOf(r.From), End: of.PrefixEnd(),
	}) {
		if err != nil {
			return err
		}
		if err := do(row.Value); err != nil {
			return err
		}
	}
	return nil
}

// resume counts the attempt, durably, and decides whether an interrupted reply resumes.
func (k *conversation) resume(ctx context.Context, l *liveReply, f *agent.Fiber[json.RawMessage]) error {
	rules := k.class.options.Recovery
	_, waits := l.abandonedCalls(false)
	v, why := l.row.Runs.countInterruption(rules, l.stream.Len(), waits && (rules.Off || !l.canRunCalls()), time.Now())
	if err := replies.Put(ctx, k.store(), l.row); err != nil {
		return err
	}
	if err := k.store().Sync(ctx); err != nil {
		return err
	}
	k.base.Object().Report(ctx, "chat:interrupted", slog.String("request", l.row.ID), slog.Int("attempt", l.row.Runs.Idle),
		slog.Uint64("chunks", l.stream.Len()), slog.String("why", why))
	var action RecoveryAction
	if v == decideResume && k.class.recovery != nil {
		var err error
		action, err = k.class.recovery(k.owner, ctx, &InterruptedReply{
			ID: l.row.ID, Attempt: l.row.Runs.Idle, Partial: l.partial(), Created: time.UnixMilli(l.row.Created), fiber: f,
		})
		if err != nil {
			k.base.Object().Report(ctx, "chat:failed", slog.String("request", l.row.ID), slog.String("hook", "OnRecovery"), slog.Any("err", err))
			action = RecoveryResume
		}
		if ctx.Err() != nil || l.ended {
			return context.Cause(ctx)
		}
	}
	if err := l.rebuildLog(ctx, f, action.discards(), v == decideResume && !action.stops()); l.ended {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case v == decideWait:
		return k.endWhenSpace(ctx, l, StatusCompleted, failure{})
	case v == decideFail, v == decideKeep:
		k.base.Object().Report(ctx, "chat:given up", slog.String("request", l.row.ID), slog.String("why", why))
		return k.endWhenSpace(ctx, l, StatusFailed, publicFailure(k.class.options.Recovery.FailureMessage))
	case action.stops():
		return k.endWhenSpace(ctx, l, StatusAborted, failure{})
	}
	l.recovering = true
	return nil
}

// rebuildLog adds error results to the abandoned calls of an interrupted reply. With drop it instead discards the
// chunks and the checkpoint, and restarts the log with the results of tools alone; the numbering continues. It is one
// Transaction, repeated until there is disk space, so no result is lost whenever an incarnation ends.
func (l *liveReply) rebuildLog(ctx context.Context, f *agent.Fiber[json.RawMessage], drop, resumes bool) error {
	return l.retryNoSpace(ctx, func() error {
		to := l.replyState
		add, _ := l.abandonedCalls(resumes)
		if drop {
			m, _, err := l.k.messageBefore(ctx, l.row)
			if err != nil {
				return err
			}
			to, add = l.rebuilt(m)
		}
		var rows []chunkRow
		from := to.stream.Len()
		to.row.Runs.Chunks = from + uint64(len(add)) // these chunks are not the handler's progress
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			if drop {
				if err := f.SetCheckpoint(ctx, nil); err != nil { // the checkpoint may refer to dropped chunks
					return err
				}
			}
			if err := l.k.deleteLog(ctx, l.row.Number, l.row.From, to.row.From); err != nil {
				return err
			}
			for i, c := range add {
				row, err := l.log(ctx, from+uint64(i), c)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			return replies.Put(ctx, l.k.store(), to.row)
		})
		if err != nil {
			return err
		}
		l.replyState = to
		for i, c := range add {
			if err := l.publish(ctx, c, rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
