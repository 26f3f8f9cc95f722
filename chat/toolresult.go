package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

// answerFrame is a client's answer to a tool call.
type answerFrame struct {
	uimessage.ToolAnswer
	AutoContinue bool            `json:"autoContinue"`
	Tools        json.RawMessage `json:"clientTools"`
}

// toolAnswered applies a client's answer to a call, and requests a continuation of the message if the client asks for
// that.
func (k *conversation) toolAnswered(ctx context.Context, conn *agent.Conn, data []byte) error {
	var f answerFrame
	if err := json.Unmarshal(data, &f); err != nil {
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: tool result or approval: %w", err))
	}
	switch {
	case rawjson.Nesting(f.Output) >= uimessage.MaxNesting:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the result of the tool call %q: %w", f.CallID, errNesting))
	case len(f.Tools) > maxRequest:
		return k.sendRefusal(ctx, conn, &dohost.LimitError{What: "list of tools", Size: len(f.Tools), Limit: maxRequest})
	}
	of, how, err := k.applyAnswer(ctx, &f)
	switch {
	case err != nil:
		return err
	case of == "":
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: no tool call has the id %q", f.CallID))
	case how == uimessage.Refused:
		return k.sendRefusal(ctx, conn, fmt.Errorf("chat: the tool call %q is not waiting for this result or approval", f.CallID))
	case !f.AutoContinue:
		return nil
	}
	note, err := k.readNote(ctx, requestNote)
	if err != nil {
		return err
	}
	if f.Tools != nil {
		note.Tools = f.Tools
	}
	open, err := k.queueContinuation(ctx, conn.ID(), of, note)
	if err == nil && open && conn.Protocol() { // as if the client had asked for the continuation
		k.audience.waits(conn)
	}
	return err
}

// sendRefusal sends a client the reason why its frame was refused, if the frame is not a request.
func (k *conversation) sendRefusal(ctx context.Context, conn *agent.Conn, why error) error {
	return k.send(ctx, conn, map[string]string{"error": why.Error()})
}

// applyAnswer applies an answer to its call, in the running reply or in the message that has the call, and returns the
// id of that message, or "" if there is none.
func (k *conversation) applyAnswer(ctx context.Context, f *answerFrame) (message string, how uimessage.Effect, err error) {
	row, ok, err := k.running(ctx)
	if err != nil {
		return "", uimessage.Refused, err
	}
	if ok {
		l, err := k.loadLive(ctx, row)
		if err != nil {
			return "", uimessage.Refused, err
		}
		if p, ok := l.call(f.CallID); ok {
			how := f.EffectOn(p, l.serverRuns(f.CallID))
			if how == uimessage.Applied {
				err = l.answer(ctx, f)
			}
			return row.Message, how, err
		}
	}
	r, m, ok, err := k.messageOf(ctx, f.CallID)
	if err != nil || !ok {
		return "", uimessage.Refused, err
	}
	p, _ := uimessage.Call(&m, f.CallID)
	record, _ := r.Record(f.CallID)
	if how := f.EffectOn(p, record.Server); how != uimessage.Applied {
		return m.ID, how, nil
	}
	f.Apply(p)
	if _, err := k.putReplacing(ctx, r, m, 0, nil); err != nil {
		return m.ID, uimessage.Applied, err
	}
	return m.ID, uimessage.Applied, k.broadcast(ctx, updatedFrame{frameUpdated, m}, k.openConns())
}

// maxRepeatSearch is how many of the newest messages are searched for a call that already has its result.
const maxRepeatSearch = 100

// messageOf returns the newest message with a waiting call of that id, or one of the newest messages with the call.
func (k *conversation) messageOf(ctx context.Context, call string) (row messageRow, m Message, ok bool, err error) {
	id, err := rawjson.Encode(call)
	if err != nil || call == "" {
		return row, m, false, err
	}
	for _, q := range []dohost.Query[messageRow]{{Index: "calls", Reverse: true}, {Reverse: true, Limit: maxRepeatSearch}} {
		for r, err := range messages.All(ctx, k.store(), &q) {
			if err != nil {
				return row, m, false, err
			}
			_, waits := r.Value.Record(call)
			if q.Index != "" && !waits || q.Index == "" && !bytes.Contains(r.Value.JSON, id) {
				continue
			}
			if m, err = r.Value.Message(); err != nil {
				return row, m, false, err
			}
			if _, ok := uimessage.Call(&m, call); ok {
				return r.Value, m, true, nil
			}
		}
	}
	return row, m, false, nil
}

// answer applies an answer to a call of the reply.
func (l *liveReply) answer(ctx context.Context, f *answerFrame) error {
	if c := f.Chunk(); c.Type() != "" {
		if err := l.sendMerged(ctx, c); err != nil {
			return err
		}
	} else {
		if err := l.applyOnce(ctx, callApproved(f.CallID)); err != nil {
			return err
		}
		l.answered(&f.ToolAnswer)
	}
	return l.k.broadcast(ctx, updatedFrame{frameUpdated, l.partial()}, l.k.openConns())
}

// loadLive returns the running reply, even before its fiber has begun.
func (k *conversation) loadLive(ctx context.Context, row replyRow) (*liveReply, error) {
	if k.live != nil && k.live.row.ID == row.ID && !k.live.ended {
		return k.live, nil
	}
	return k.load(ctx, row)
}

// queueContinuation queues a continuation of a message, unless one is queued, and reports whether one is queued or
// running.
func (k *conversation) queueContinuation(ctx context.Context, conn, message string, note noteRow) (open bool, err error) {
	rows, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		if r.Value.State == work.Waiting && r.Value.Continues && r.Value.Message == message {
			return true, nil
		}
	}
	row := replyRow{
		ID: "cont_" + ulid.Make().String(), Continues: true, Answers: true, Conn: conn, Message: message,
		Body: note.Body, Tools: note.Tools, Created: time.Now().UnixMilli(),
	}
	err = dohost.Transaction(ctx, func(ctx context.Context) (err error) {
		if err := k.insertReply(ctx, row); err != nil {
			return err
		}
		now, _, err := replies.Get(ctx, k.store(), row.ID)
		open = now.Value.Open()
		return err
	})
	return open, err
}
