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
	"github.com/dohost/dohost/agent"
)

// failure is the reason why a reply ended: text is for the program and for operators, public for clients.
type failure struct{ text, public string }

// failureOf returns a reason that clients may read.
func failureOf(text string) failure { return failure{text, text} }

// clipped returns the failure with texts of at most maxFailure bytes each.
func (f failure) clipped() failure {
	clip := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxFailure)], "") }
	return failure{clip(f.text), clip(f.public)}
}

// errorText returns the text of an error for clients.
func (k *conversation) errorText(err error) string { return k.base.Object().ErrorText("chat", err) }

// endWhenever ends a reply, as soon as there is disk space for that.
func (k *conversation) endWhenever(ctx context.Context, l *live, s Status, why failure) error {
	err := l.whenRoom(ctx, func() error { return k.end(ctx, l, s, why) })
	if errors.Is(err, ErrReplyOver) {
		return nil
	}
	return err
}

// errUnstorable is the error of a message that is too large even when shortened.
var errUnstorable = errors.New("chat: the message is too large to be stored")

// end ends a reply, in one batch, and notifies its clients.
func (k *conversation) end(ctx context.Context, l *live, s Status, why failure) error {
	why = why.clipped()
	if settles, waits := l.repairs(false); s != StatusCompleted || !waits {
		if err := l.addAll(ctx, settles); err != nil { // their executor has ended
			return err
		}
	}
	if err := l.addAll(ctx, l.st.finish(s == StatusCompleted)); err != nil {
		return err
	}
	m := l.acc.message()
	row := l.row
	err := k.endWith(ctx, &row, &m, l.madeCalls(), s, why)
	if errors.Is(err, errUnstorable) {
		err = k.endWith(ctx, &row, nil, nil, StatusFailed, failureOf(errUnstorable.Error()))
	}
	if err != nil {
		return err
	}
	l.row, l.over = row, true
	if l.cancel != nil {
		l.cancel(ErrReplyOver)
	}
	if k.live == l {
		k.live = nil
	}
	err = k.showEnd(ctx, &row)
	k.ended(row.ID)
	return err
}

func (k *conversation) endWith(
	ctx context.Context, row *replyRow, m *Message, made map[string]bool, s Status, why failure,
) error {
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		if m != nil && len(m.Parts) > 0 {
			err := k.put(ctx, *m, row.Place, made)
			if _, large := errors.AsType[*dohost.LimitError](err); large {
				err = errors.Join(errUnstorable, err)
			}
			if err != nil {
				return err
			}
		}
		if err := k.trim(ctx); err != nil {
			return err
		}
		if err := k.deleteLog(ctx, row.Number, row.From, math.MaxUint64); err != nil {
			return err
		}
		if s == StatusFailed {
			if err := notes.Put(ctx, k.store(), noteRow{Name: terminalNote, Reply: row.ID, Text: why.public}); err != nil {
				return err
			}
		}
		now := time.Now()
		row.Status, row.Error, row.Public, row.Ended = s, why.text, why.public, now.UnixMilli()
		if err := replies.Put(ctx, k.store(), *row); err != nil {
			return err
		}
		if err := k.forgetEnded(ctx, now); err != nil {
			return err
		}
		return k.beginNext(ctx)
	})
}

// showEnd sends clients the transcript, then the end-of-reply frame. The requester has received all chunks, and needs
// no transcript unless the reply continued an older message with parts unknown to it. Connections that resumed the
// reply get the transcript again after the end frame, and all connections if it continued an older message: at the end
// frame, hooks of 0.21 restore their copy of the message from before the disconnect, or the chunks without the older
// parts.
func (k *conversation) showEnd(ctx context.Context, row *replyRow) error {
	err := k.showTranscript(ctx, func(c *agent.Conn) bool {
		return c.Is(k.asker[row.ID]) && !row.Continues && !k.isCatching(c)
	})
	if err != nil {
		return err
	}
	caught := k.caught
	k.catching, k.caught = nil, nil
	if err := errors.Join(k.tellAll(ctx, row.endFrame(), nil), k.answerWaiting(ctx)); err != nil || len(caught) == 0 && !row.Continues {
		return err
	}
	return k.showTranscript(ctx, func(c *agent.Conn) bool { return !row.Continues && !slices.ContainsFunc(caught, c.Is) })
}

func (r *replyRow) endFrame() responseFrame {
	f := responseFrame{
		Type: frameResponse, ID: r.ID, Done: true, Continuation: r.Continues, Outcome: r.Status, MessageIDs: r.Users,
	}
	if r.Status == StatusFailed {
		f.Error, f.Body = true, r.Public
	}
	return f
}

// tell calls OnResponse for a request that has ended.
func (k *conversation) tell(ctx context.Context, row replyRow) error {
	if row.Told {
		return nil
	}
	if k.class.response != nil {
		r, err := k.response(ctx, &row)
		if err != nil {
			return err
		}
		if err := k.class.response(k.owner, ctx, r); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k.base.Object().Report(ctx, "chat:failed", slog.String("request", row.ID), slog.String("hook", "OnResponse"), slog.Any("err", err))
		}
	}
	_, err := replies.Update(ctx, k.store(), row.ID, func(r *replyRow) error {
		r.Told = true
		return nil
	})
	if errors.Is(err, dohost.ErrNotFound) {
		return nil
	}
	return err
}
