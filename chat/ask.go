package chat

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// AskOptions tunes Ask and Continue. A nil *AskOptions, and the zero AskOptions, mean the defaults.
type AskOptions struct {
	// ID names the request. A second request with the id of a known request is ignored. A request with an ID from the
	// program is known until ten minutes after [Wait] first returned its result, or until seven days after its end. Empty
	// means a new id, which is known until ten minutes after the end.
	ID string
	// Body is the result of [Reply.Body]. Nil means the body of the last request.
	Body any
}

// Ask stores messages like [SetMessages], and queues a request to answer them. It returns the id of the accepted
// request; see [Wait].
//
// Errors: a [*dohost.LimitError]; one for an invalid message; one for a Body that is not JSON; the error of
// [agent.CheckWrite] in an event of a read-only client; [dohost.ErrMisuse] in OnCall of [Handlers].
func Ask(ctx context.Context, a Ref, list []Message, o *AskOptions) (id string, err error) {
	if err := a.conv().calls.checkChange(ctx); err != nil {
		return "", err
	}
	for _, m := range list {
		if err := uimessage.Check(&m); err != nil {
			return "", err
		}
	}
	return a.conv().askFromProgram(ctx, replyRow{Users: usersAtEnd(list)}, list, o)
}

// Continue requests that the assistant continue its last message, without a new message. The request is skipped if,
// when its turn comes, the last message is not the assistant's or has calls that wait for a client.
//
// Errors: the errors of [Ask].
func Continue(ctx context.Context, a Ref, o *AskOptions) (id string, err error) {
	if err := a.conv().calls.checkChange(ctx); err != nil {
		return "", err
	}
	return a.conv().askFromProgram(ctx, replyRow{Continues: true, Answers: true}, nil, o)
}

func (k *conversation) askFromProgram(ctx context.Context, row replyRow, list []Message, o *AskOptions) (string, error) {
	if o == nil {
		o = &AskOptions{}
	}
	note, err := k.readNote(ctx, requestNote)
	if err != nil {
		return "", err
	}
	row.ID, row.Created, row.Collects = o.ID, time.Now().UnixMilli(), o.ID != ""
	row.Body, row.Tools = note.Body, note.Tools
	if row.ID == "" {
		row.ID = "req_" + ulid.Make().String()
	}
	if o.Body != nil {
		if row.Body, err = rawjson.Encode(o.Body); err != nil {
			return "", fmt.Errorf("chat: body of request %q: %w", row.ID, err)
		}
	}
	if _, known, err := replies.Get(ctx, k.store(), row.ID); err != nil || known {
		return row.ID, err
	}
	if err := k.accept(ctx, row, func(ctx context.Context) error { return k.messages.putAll(ctx, list) }); err != nil {
		return "", err
	}
	if len(list) == 0 {
		return row.ID, nil
	}
	return row.ID, k.clients.broadcastTranscript(ctx, k.clients.openConns())
}

// Wait releases the turn until a request has ended, and returns its result. ok is false if there is no such request, or
// it is no longer known: see ID of [AskOptions]. In the batch of the caller's next writes, Wait records that the program
// has the result.
//
// Errors: ctx's cause, and the errors of [dohost.Recv].
func Wait(ctx context.Context, a Ref, request string) (r Response, ok bool, err error) {
	k := a.conv()
	for request != "" {
		row, ok, err := replies.Get(ctx, k.store(), request)
		if err != nil || !ok {
			return r, false, err
		}
		if !row.Value.Open() {
			return k.collect(ctx, &row.Value)
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

// collect returns the result of a request that has ended, and records that the program has it.
func (k *conversation) collect(ctx context.Context, row *replyRow) (r Response, ok bool, err error) {
	if r, err = k.response(ctx, row); err != nil || !row.Collects || row.Collected > 0 {
		return r, err == nil, err
	}
	row.Collected = time.Now().UnixMilli()
	err = k.putReply(ctx, *row)
	return r, err == nil, err
}

// requestEnded removes a request that has ended from memory, and wakes the callers that wait for it.
func (k *conversation) requestEnded(request string) {
	k.clients.audience.requestOver(request)
	if ch, ok := k.waiters[request]; ok {
		close(ch)
		delete(k.waiters, request)
	}
}

// response returns the result of a request.
func (k *conversation) response(ctx context.Context, row *replyRow) (r Response, err error) {
	r = Response{ID: row.ID, Status: row.status(), Error: row.Error, Continues: row.Continues}
	if row.Message == "" {
		return r, nil
	}
	old, ok, err := messages.Get(ctx, k.store(), row.Message)
	if err == nil && ok {
		r.Message, err = old.Message()
	}
	return r, err
}

// putAll stores messages of the program.
func (k *storedMessages) putAll(ctx context.Context, list []Message) error {
	for _, m := range list {
		if err := k.put(ctx, m, &replyRow{}); err != nil {
			return err
		}
	}
	return k.trim(ctx)
}
