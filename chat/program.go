package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// mayChange returns agent.ErrReadonly in an event of a client that may only read, over a connection or over HTTP: the
// functions that change a conversation refuse such a client, whatever method of the class has called them.
func mayChange(ctx context.Context) error {
	if by := agent.Current(ctx); by != nil && by.Readonly() {
		return agent.ErrReadonly
	}
	if a, ok := dohost.AccessFrom(ctx); ok && a.Rights != dohost.ReadWrite {
		return agent.ErrReadonly
	}
	return nil
}

// AskOptions tunes Ask and Continue. A nil *AskOptions, and the zero AskOptions, mean the defaults.
type AskOptions struct {
	// ID names the request: while it is known, which is until ten minutes after its end, another of that
	// id is not accepted. Empty means one of its own.
	ID string
	// Body is what [Reply.Body] returns. Nil means that of the last request.
	Body any
}

// Ask stores messages as [SetMessages] does, and has them answered after the requests that wait. It
// returns the request's id when that is accepted; see [Wait].
//
// Errors: a [*dohost.LimitError]; one for a message without an id or a role, and for a Body that is not
// JSON; [agent.ErrReadonly] in an event of a client that may only read.
func Ask(ctx context.Context, a Ref, list []Message, o *AskOptions) (id string, err error) {
	if err := mayChange(ctx); err != nil {
		return "", err
	}
	for _, m := range list {
		if err := m.check(); err != nil {
			return "", err
		}
	}
	return a.talk().program(ctx, replyRow{Users: usersAtEnd(list)}, list, o)
}

// Continue has the assistant go on in its last message, without anybody having said anything. It does
// nothing, and the request is skipped, if the last message is not the assistant's by then.
//
// Errors: those of [Ask].
func Continue(ctx context.Context, a Ref, o *AskOptions) (id string, err error) {
	if err := mayChange(ctx); err != nil {
		return "", err
	}
	return a.talk().program(ctx, replyRow{Continues: true, Answers: true}, nil, o)
}

func (k *conversation) program(ctx context.Context, row replyRow, list []Message, o *AskOptions) (string, error) {
	if o == nil {
		o = &AskOptions{}
	}
	note, err := k.note(ctx, requestNote)
	if err != nil {
		return "", err
	}
	row.ID, row.Status, row.Created = o.ID, Queued, time.Now().UnixMilli()
	row.Body, row.Tools = note.Body, note.Tools
	if row.ID == "" {
		row.ID = "req_" + ulid.Make().String()
	}
	if o.Body != nil {
		if row.Body, err = encode(o.Body); err != nil {
			return "", fmt.Errorf("chat: body of request %q: %w", row.ID, err)
		}
	}
	if _, known, err := replies.Get(ctx, k.store(), row.ID); err != nil || known {
		return row.ID, err
	}
	if err := k.accept(ctx, row, func(ctx context.Context) error { return k.putAll(ctx, list) }); err != nil {
		return "", err
	}
	if len(list) == 0 {
		return row.ID, nil
	}
	return row.ID, k.showTranscript(ctx, nil)
}

// Wait returns how a request has ended, when it has, with the turn given up meanwhile. ok is false if there
// is none, or its end is forgotten.
//
// Errors: ctx's cause, and those of [dohost.Recv].
func Wait(ctx context.Context, a Ref, request string) (r Response, ok bool, err error) {
	k := a.talk()
	for request != "" {
		row, ok, err := replies.Get(ctx, k.store(), request)
		if err != nil || !ok {
			return r, false, err
		}
		if row.Value.Status.final() {
			r, err = k.response(ctx, &row.Value)
			return r, err == nil, err
		}
		if k.waiters == nil {
			k.waiters = map[string]chan struct{}{}
		}
		ch, ok := k.waiters[request]
		if !ok {
			ch = make(chan struct{})
			k.waiters[request] = ch
		}
		if _, _, err := dohost.Recv(ctx, ch); err != nil {
			return r, true, err
		}
	}
	return r, false, nil
}

// ended wakes who waits for a request, to look whether it has ended.
func (k *conversation) ended(request string) {
	delete(k.asker, request)
	if ch, ok := k.waiters[request]; ok {
		close(ch)
		delete(k.waiters, request)
	}
}

// response is how a request has ended.
func (k *conversation) response(ctx context.Context, row *replyRow) (r Response, err error) {
	r = Response{ID: row.ID, Status: row.Status, Error: row.Error, Continues: row.Continues}
	if row.Message == "" {
		return r, nil
	}
	old, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err == nil && ok {
		r.Message, err = old.message()
	}
	return r, err
}

// Messages returns the conversation: the newest limit messages, the oldest first, or all if limit is 0. A
// reply that is being made is not among them.
func Messages(ctx context.Context, a Ref, limit int) ([]Message, error) {
	if limit < 0 {
		return nil, errors.New("chat: a negative limit")
	}
	return a.talk().newest(ctx, dohost.Query[messageRow]{Limit: limit})
}

// SetMessages stores messages, replaces stored messages with the same ids, and sends clients the conversation. A tool
// call that is stored or changed in this way does not run on the server: [Answer] runs only the calls that its model
// has made. Check messages of a client before you pass them to SetMessages.
//
// Errors: a [*dohost.LimitError] for a message that does not fit into a row; [agent.ErrReadonly] in an event of a client
// that may only read.
func SetMessages(ctx context.Context, a Ref, list []Message) error {
	if err := mayChange(ctx); err != nil {
		return err
	}
	k := a.talk()
	if err := dohost.Transaction(ctx, func(ctx context.Context) error { return k.putAll(ctx, list) }); err != nil {
		return err
	}
	return k.showTranscript(ctx, nil)
}

// putAll stores messages of the program.
func (k *conversation) putAll(ctx context.Context, list []Message) error {
	for _, m := range list {
		if err := k.put(ctx, m, 0, nil); err != nil {
			return err
		}
	}
	return k.trim(ctx)
}
