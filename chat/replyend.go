package chat

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/work"
)

// failure is the reason why a reply ended: text is for the program and for operators, public is for clients.
type failure struct{ text, public string }

// publicFailure returns a reason that clients may read.
func publicFailure(text string) failure { return failure{text, text} }

// truncated returns the failure with texts of at most maxFailure bytes each.
func (f failure) truncated() failure {
	clip := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxFailure)], "") }
	return failure{clip(f.text), clip(f.public)}
}

// errorText returns the text of an error for clients.
func (s *shared) errorText(err error) string { return s.object().ErrorText("chat", err) }

// endWhenSpace ends a reply, as soon as there is disk space for that.
func (k *conversation) endWhenSpace(ctx context.Context, l *liveReply, s Status, why failure) error {
	err := l.retryNoSpace(ctx, func() error { return k.end(ctx, l, s, why) })
	if errors.Is(err, ErrReplyOver) {
		return nil
	}
	return err
}

// errUnstorable is the error of a message that is too large even after shortening.
var errUnstorable = errors.New("chat: the message is too large to be stored")

// end ends a reply, in one batch, and notifies its clients.
func (k *conversation) end(ctx context.Context, l *liveReply, s Status, why failure) error {
	why = why.truncated()
	if s == StatusAborted {
		if err := l.stopAsks(ctx); err != nil {
			return err
		}
	}
	results, waits := l.abandonedCalls(false)
	if s == StatusCompleted && waits { // the other calls may run when the reply continues
		results = slices.DeleteFunc(results, func(c Chunk) bool { return !l.begun(c.Text("toolCallId")) })
	}
	if err := l.addAll(ctx, results); err != nil { // their executor has ended
		return err
	}
	if err := l.addAll(ctx, l.stream.Finish(s == StatusCompleted)); err != nil {
		return err
	}
	if s == StatusAborted {
		if err := k.skipContinuations(ctx, l.row.Message); err != nil {
			return err
		}
	}
	m := l.partial()
	row := l.row
	to, err := l.addressAtEnd(ctx)
	if err != nil {
		return err
	}
	row.Asked = to.withoutRest()
	err = k.endWith(ctx, &row, to, &m, s, why)
	if errors.Is(err, errUnstorable) {
		err = k.endWith(ctx, &row, to, nil, StatusFailed, publicFailure(errUnstorable.Error()))
	}
	if err != nil {
		return err
	}
	l.row, l.ended = row, true
	if l.cancel != nil {
		l.cancel(ErrReplyOver)
	}
	if k.live == l {
		k.live = nil
	}
	err = k.sendEnd(ctx, &row)
	k.requestEnded(row.ID)
	return err
}

func (k *conversation) endWith(
	ctx context.Context, row *replyRow, to *returnAddress, m *Message, s Status, why failure,
) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if m != nil && len(m.Parts) > 0 {
			err := k.messages.put(ctx, *m, row)
			if _, large := errors.AsType[*dohost.LimitError](err); large {
				err = errors.Join(errUnstorable, err)
			}
			if err != nil {
				return err
			}
		} else if err := k.syncStored(ctx, row); err != nil {
			return err
		}
		if err := k.messages.trimNow(ctx); err != nil {
			return err
		}
		if err := k.sweeper.deleteLog(ctx, row.Number, row.From, math.MaxUint64); err != nil {
			return err
		}
		if s == StatusFailed {
			if err := notes.Put(ctx, k.store(), noteRow{Name: terminalNote, Reply: row.ID, Text: why.public}); err != nil {
				return err
			}
		}
		now := time.Now()
		if _, err := k.step(row, row.ending(s), now); err != nil {
			return err
		}
		row.Error, row.Public = why.text, why.public
		if err := errors.Join(k.putReply(ctx, *row), k.asked.answerAsked(ctx, row, to, m)); err != nil {
			return err
		}
		if err := k.expireEnded(ctx, now); err != nil {
			return err
		}
		if err := k.summaries.summarizeLater(ctx); err != nil {
			return err
		}
		return k.beginNext(ctx)
	})
}

// syncStored makes the rows of calls agree with the message before a reply that ends without a message.
func (k *conversation) syncStored(ctx context.Context, row *replyRow) error {
	m, err := k.messageBefore(ctx, *row)
	if err != nil {
		return err
	}
	return k.calls.syncCalls(ctx, &m, "")
}

// sendEnd sends clients the transcript, the end-of-reply frame, and to some of them the transcript again: see audience.
func (k *conversation) sendEnd(ctx context.Context, row *replyRow) error {
	first := k.clients.audience.ending(row.ID, row.Continues, k.clients.openConns(k.clients.clearing))
	if err := k.clients.broadcastTranscript(ctx, first); err != nil {
		return err
	}
	again := k.clients.audience.ended(row.Continues, k.clients.openConns(k.clients.clearing))
	if err := errors.Join(k.clients.broadcast(ctx, row.endFrame(), k.clients.openConns()), k.clients.notifyWaiting(ctx)); err != nil {
		return err
	}
	return k.clients.broadcastTranscript(ctx, again)
}

func (r *replyRow) endFrame() responseFrame {
	f := responseFrame{
		Type: frameResponse, ID: r.ID, Done: true, Continuation: r.Continues, Outcome: r.status(), MessageIDs: r.Users,
	}
	if r.Outcome == work.Failed {
		f.Error, f.Body = true, r.Public
	}
	return f
}

// callOnResponse calls OnResponse for a request that has ended. After an interruption of the reply's fiber (again) an
// earlier call may have ended its incarnation, so the call is charged durably before it begins, and work.MaxCalls bounds
// such calls. Otherwise the call costs no commit.
func (k *conversation) callOnResponse(ctx context.Context, row replyRow, again bool) error {
	switch {
	case row.State != work.Notifying:
		return nil
	case k.class.response == nil: // the class had one when the reply ended
		return k.endNotifying(ctx, row.ID)
	case again && row.Calls >= work.MaxCalls:
		k.object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.String("hook", "OnResponse"),
			slog.String("err", "interrupted too often"), slog.Int("calls", row.Calls))
		return k.endNotifying(ctx, row.ID)
	}
	r, err := k.response(ctx, &row)
	if err != nil {
		return err
	}
	if again {
		if _, err := k.step(&row, work.Event{Kind: work.HookCalled}, time.Now()); err != nil {
			return err
		}
		if err := errors.Join(k.putReply(ctx, row), k.store().Sync(ctx)); err != nil {
			return err
		}
	}
	if err := k.class.response(k.owner, ctx, r); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k.object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.String("hook", "OnResponse"), slog.Any("err", err))
	}
	return k.endNotifying(ctx, row.ID)
}

// endNotifying records that OnResponse is not called for a request any more, as soon as there is disk space for that.
func (k *conversation) endNotifying(ctx context.Context, id string) error {
	return retryNoSpace(ctx, func() error {
		row, ok, err := replies.Get(ctx, k.store(), id)
		if err != nil || !ok || row.Value.State != work.Notifying {
			return err
		}
		if _, err := k.step(&row.Value, work.Event{Kind: work.HookReturned}, time.Now()); err != nil {
			return err
		}
		return k.putReply(ctx, row.Value)
	})
}

// noSpace reports whether an operation may succeed when there is more space.
func noSpace(err error) bool {
	return errors.Is(err, dohost.ErrNoSpace) || errors.Is(err, dohost.ErrOverloaded)
}

// answerWait bounds the wait of an answer to a call, or of its result, for space. After it the sender gets the error, and may repeat the
// answer: otherwise it would not know whether a later time has the answer.
const answerWait = 20 * time.Second

// retryNoSpace calls do, and repeats it every second while there is no space for it.
func retryNoSpace(ctx context.Context, do func() error) error {
	return retryNoSpaceWithin(ctx, math.MaxInt64, do)
}

// retryNoSpaceWithin is retryNoSpace with a bound, after which it returns the error of do.
func retryNoSpaceWithin(ctx context.Context, most time.Duration, do func() error) error {
	for start := time.Now(); ; {
		err := do()
		if !noSpace(err) || time.Since(start) >= most {
			return err
		}
		if err := dohost.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}
