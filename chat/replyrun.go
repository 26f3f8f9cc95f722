package chat

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// runFiber runs the fiber of a reply.
func (k *conversation) runFiber(ctx context.Context, f *agent.Fiber[json.RawMessage]) error {
	row, ok, err := k.requestOfFiber(ctx, f.ID)
	if err != nil || !ok {
		return err
	}
	var truncated error // of the model's answer in the last call of the handler
	for row.running() {
		first := k.isFirst(&row)
		if row, truncated, err = k.run(ctx, row, f, first, truncated); err != nil {
			if ctx.Err() == nil { // the fiber runs again immediately
				k.object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.Any("err", err))
				err = errors.Join(err, dohost.Sleep(ctx, time.Second))
			}
			return err
		}
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil // see endCancelled
	}
	return k.callOnResponse(ctx, row, f.Attempt > 0)
}

// requestOfFiber returns the request that a fiber answers.
func (k *conversation) requestOfFiber(ctx context.Context, fiber string) (row replyRow, ok bool, err error) {
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "fiber", Equal: dohost.KeyOf(fiber), Limit: 1})
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0].Value, true, nil
}

// run calls the handler once, and returns the new state of the request, which is still running if the handler must be
// called again. truncated is the error of the last call, and nextTruncated that of this one, if the connection to the model has
// ended during an answer.
func (k *conversation) run(
	ctx context.Context, row replyRow, f *agent.Fiber[json.RawMessage], first bool, truncated error,
) (now replyRow, nextTruncated, err error) {
	l, err := k.load(ctx, row)
	if err != nil {
		return row, nil, err
	}
	k.live = l
	if !first {
		if err := k.resume(ctx, l, f, truncated); err != nil || l.ended {
			return l.row, nil, err
		}
	}
	if err := k.clients.notifyReplyBegins(ctx, l); err != nil {
		return l.row, nil, err
	}
	l.forward = newForwarder(l)
	defer l.forward.stop()
	if err := l.forward.start(ctx); err != nil {
		return l.row, nil, err
	}
	if first && row.Continues {
		if results, _ := l.abandonedCalls(false); len(results) > 0 {
			if err := l.addAll(ctx, results); err != nil {
				return l.row, nil, err
			}
		}
	}
	failed, stalled := k.callHandler(ctx, l, f)
	switch {
	case l.ended:
	case errors.Is(context.Cause(ctx), context.Canceled): // the fiber, not the incarnation
		err = k.endWhenSpace(context.WithoutCancel(ctx), l, StatusAborted, publicFailure(errCancelled.Error()))
	case ctx.Err() != nil:
		err = context.Cause(ctx) // the incarnation has ended: the request stays open
	case failed == nil:
		err = k.endWhenSpace(ctx, l, StatusCompleted, failure{})
	case stalled:
		l.ended = true
		k.object().Report(ctx, "chat:stalled", slog.String("request", row.ID))
	case k.options().Recovery.resumesTruncated(failed):
		times := l.row.Failures + 1
		k.object().Report(ctx, "chat:truncated", slog.String("request", row.ID), slog.Any("err", failed), slog.Int("times", times))
		err = dohost.Sleep(ctx, time.Duration(times)*time.Second) // a stop may end the reply
		l.ended = true
		return l.row, failed, err
	default:
		k.object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.Any("err", failed))
		err = k.endWhenSpace(ctx, l, StatusFailed, failure{failed.Error(), k.errorText(failed)})
	}
	return l.row, nil, err
}

// callHandler calls the handler, and reports whether it was stopped because it sent no chunk for too long.
func (k *conversation) callHandler(
	ctx context.Context, l *liveReply, f *agent.Fiber[json.RawMessage],
) (failed error, stalled bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.cancel = cancel
	if stall := k.options().Stall; stall > 0 {
		l.stallTimer = time.AfterFunc(stall, func() { cancel(errStalled) })
		defer l.stallTimer.Stop()
	}
	k.lastCall = l.row.Owner
	ctx = context.WithValue(l.position().Context(ctx), meterKey{}, l.meter())
	failed = k.class.reply(k.owner, ctx, &Reply{ID: l.row.ID, Attempt: l.row.Attempt, k: k, l: l, fiber: f})
	return failed, errors.Is(context.Cause(ctx), errStalled)
}

// resumesTruncated reports whether the handler failed because the connection to its model ended during an answer, so
// that the reply may resume.
func (r Recovery) resumesTruncated(failed error) bool {
	e, ok := errors.AsType[*ModelError](failed)
	return ok && e != nil && e.Truncated && !r.Off
}

// load rebuilds the state of a reply from its log.
func (k *conversation) load(ctx context.Context, row replyRow) (*liveReply, error) {
	m, err := k.messageBefore(ctx, row)
	if err != nil {
		return nil, err
	}
	calls, err := k.calls.callsOf(ctx, row.Message)
	if err != nil {
		return nil, err
	}
	l := &liveReply{k: k, replyState: newReplyState(row, m, calls)}
	err = k.eachChunk(ctx, &row, func(r chunkRow) error {
		var c Chunk
		if err := json.Unmarshal(r.JSON, &c); err != nil {
			return err
		}
		l.stream.Replay(c, l.approved)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.stream.BeginRun(l.approved)
	return l, nil
}

// messageBefore returns the message of a reply without the chunks of the reply.
func (k *conversation) messageBefore(ctx context.Context, row replyRow) (Message, error) {
	m := Message{ID: row.Message, Role: RoleAssistant}
	if !row.Continues {
		return m, nil
	}
	old, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return m, err
	}
	return old.Message()
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

// resume decides whether a reply resumes after an interruption, or after its model's answer was cut off, and charges the
// attempt durably.
func (k *conversation) resume(ctx context.Context, l *liveReply, f *agent.Fiber[json.RawMessage], truncated error) error {
	rules := k.options().Recovery
	_, waits := l.abandonedCalls(false)
	waits = waits && (rules.Off || !l.canRunCalls()) // a client must act: the chunks so far are the reply
	resumes, why := !waits && !rules.Off, ""
	if resumes {
		call, now := k.nextCall(), time.Now()
		err := l.retryNoSpace(ctx, func() error {
			next, reason := l.row.interrupted(rules, k.replyPolicy(), call, l.stream.Len(), truncated != nil, now)
			if resumes, why = reason == "", reason; !resumes {
				return nil
			}
			if err := k.putReply(ctx, next); err != nil {
				return err
			}
			l.row = next
			return nil
		})
		if l.ended {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := k.store().Sync(ctx); err != nil {
		return err
	}
	attempt := l.row.Failures + l.row.Stalls
	k.object().Report(ctx, "chat:interrupted", slog.String("request", l.row.ID), slog.Int("attempt", attempt),
		slog.Uint64("chunks", l.stream.Len()), slog.String("why", why))
	var action RecoveryAction
	if resumes && k.class.recovery != nil {
		var err error
		action, err = k.class.recovery(k.owner, ctx, &InterruptedReply{
			ID: l.row.ID, Attempt: attempt, Partial: l.partial(), Created: time.UnixMilli(l.row.Created), fiber: f,
		})
		if err != nil {
			k.object().Report(ctx, "chat:failed", slog.String("request", l.row.ID), slog.String("hook", "OnRecovery"), slog.Any("err", err))
			action = RecoveryResume
		}
		if ctx.Err() != nil || l.ended {
			return context.Cause(ctx)
		}
	}
	if err := l.rebuildLog(ctx, f, action.discards(), resumes && !action.stops()); l.ended {
		return nil
	} else if err != nil {
		return err
	}
	switch {
	case waits:
		return k.endWhenSpace(ctx, l, StatusCompleted, failure{})
	case !resumes:
		k.object().Report(ctx, "chat:given up", slog.String("request", l.row.ID), slog.String("why", why))
		failed := publicFailure(rules.FailureMessage)
		if truncated != nil {
			failed.text = truncated.Error()
		}
		return k.endWhenSpace(ctx, l, StatusFailed, failed)
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
			m, err := l.k.messageBefore(ctx, l.row)
			if err != nil {
				return err
			}
			to, add = l.rebuilt(m)
		}
		to.calls = maps.Clone(to.calls)
		for _, c := range add {
			if _, call, ok := to.afterChunk(c, time.Now().UnixMilli()); ok {
				to.setCall(call)
			}
		}
		var rows []chunkRow
		from := to.stream.Len()
		to.row.Logged = from + uint64(len(add)) // these chunks are not the handler's progress
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			if drop {
				if err := f.SetCheckpoint(ctx, nil); err != nil { // the checkpoint may refer to dropped chunks
					return err
				}
			}
			if err := l.k.sweeper.deleteLog(ctx, l.row.Number, l.row.From, to.row.From); err != nil {
				return err
			}
			for i, c := range add {
				row, err := l.log(ctx, from+uint64(i), c)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			m := to.partial()
			if err := l.k.calls.replaceCalls(ctx, l.calls, to.calls, &m); err != nil {
				return err
			}
			return l.k.putReply(ctx, to.row)
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
