package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// An agent tool reaches an asked agent with Messages in another object, of this host or of another one, by two procedures. Invariants:
//
//   - The insertion has the id of the message, which all repetitions have. The asked object inserts the message unless it has one with that id.
//     Both are one batch, so the message is there once, wherever an answer is lost or an owner of either object ends.
//   - A wait changes no message. It ends after pollTime, since the attempt of a call to another host ends soon after that, and the caller waits
//     again. So an interruption of the asked object costs one wait, and the response is read from the rows of the object.
//   - The response is in the collection of the asked object until the program deletes it. The caller reads it in pieces, since a call from
//     another host has a result of at most 1 MiB, which the asked object stores for 5 min. It does not change after it is stored.
//
// The order: the insertion is durable before its answer leaves. The first wait begins after that answer. The caller pauses between two waits: a
// node has places for a number of calls to one object, and calls without a place get one of those that pause.

const (
	// pollTime bounds a wait for a response. It is less than the time of an attempt of a call to another host, 20 s.
	pollTime = 15 * time.Second
	// pollPause is the time between two waits.
	pollPause = time.Second
	// maxPiece bounds the part of a response in the result of a wait, in bytes.
	maxPiece = 512 << 10
)

// insertion is a message that the collection of an object gets.
type insertion struct {
	Collection string  `json:"collection"`
	Message    Message `json:"message"` // without its content,
	Content    []byte  `json:"content"` // which may not be UTF-8
}

// inserted is the result of an insertion.
type inserted struct {
	NoAgent bool    `json:"noAgent,omitempty"`
	Stored  Message `json:"stored"` // without its content
}

var insertProcedure = dohost.NewProcedure("inbox.insert", func(ctx context.Context, object any, in insertion) (r inserted, err error) {
	of, messages, ok := inboxOf(object, in.Collection)
	if !ok {
		return inserted{NoAgent: true}, nil
	}
	in.Message.Content = string(in.Content)
	r.Stored, err = sendOnce(ctx, of, messages, in.Message)
	r.Stored.Content = ""
	return r, err
})

// poll is a wait for the response to a message.
type poll struct {
	Collection string  `json:"collection"`
	Asked      Message `json:"asked"` // its ID, To, From, Request and Deadline
	From       int     `json:"from"`  // the first byte of the piece of the content
}

// polled is the result of a poll.
type polled struct {
	NoAgent  bool    `json:"noAgent,omitempty"`
	NoReply  bool    `json:"noReply,omitempty"`
	Expired  bool    `json:"expired,omitempty"`
	Waits    bool    `json:"waits,omitempty"`
	Response Message `json:"response"` // without its content
	Piece    []byte  `json:"piece"`    // of the content
	Size     int     `json:"size"`     // of the content
}

// errPollTime is the end of a poll without a response.
var errPollTime = errors.New("inbox: the agent has not answered yet")

var waitProcedure = dohost.NewProcedure("inbox.wait", func(ctx context.Context, object any, p poll) (polled, error) {
	of, messages, ok := inboxOf(object, p.Collection)
	if !ok {
		return polled{NoAgent: true}, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pollTime, errPollTime)
	defer cancel()
	m, err := WaitReply(ctx, of, messages, p.Asked)
	switch {
	case errors.Is(err, ErrExpired):
		return polled{Expired: true}, nil
	case errors.Is(err, ErrNoReply):
		return polled{NoReply: true}, nil
	case err != nil && context.Cause(ctx) == errPollTime:
		return polled{Waits: true}, nil
	case err != nil:
		return polled{}, err
	}
	r := polled{Response: m, Size: len(m.Content)}
	from := min(max(p.From, 0), r.Size)
	r.Piece, r.Response.Content = []byte(m.Content[from:min(from+maxPiece, r.Size)]), ""
	return r, nil
})

// inboxOf returns an object as an agent with an inbox over a collection of messages.
func inboxOf(object any, collection string) (of Ref, messages *dohost.Collection[Message], ok bool) {
	if of, ok = object.(Ref); ok {
		messages, ok = of.Rows().Collection(collection).(*dohost.Collection[Message])
	}
	return of, messages, ok
}

// insertIn inserts a request into the collection of an object, unless it is there, and returns the stored one.
func (t *AgentTool) insertIn(ctx context.Context, by Ref, object dohost.ID, m Message) (Message, error) {
	if object == by.Object().ID() {
		return sendOnce(ctx, by, t.Messages, m)
	}
	in := insertion{t.Messages.Name, m, []byte(m.Content)}
	in.Message.Content = ""
	var r inserted
	err := inObject(ctx, by, object, func(ctx context.Context) (err error) {
		r, err = insertProcedure.Call(ctx, by.Object(), object, in, nil)
		return err
	})
	if err == nil && r.NoAgent {
		err = errNoAgent
	}
	return r.Stored, err
}

// waitIn waits for the response to a request in an object.
func (t *AgentTool) waitIn(ctx context.Context, by Ref, object dohost.ID, asked Message) (Message, error) {
	if object == by.Object().ID() {
		return WaitReply(ctx, by, t.Messages, asked)
	}
	p := poll{Collection: t.Messages.Name, Asked: Message{ID: asked.ID, To: asked.To, From: asked.From, Request: asked.Request, Deadline: asked.Deadline}}
	var content []byte
	for {
		var r polled
		p.From = len(content)
		err := inObject(ctx, by, object, func(ctx context.Context) (err error) {
			r, err = waitProcedure.Call(ctx, by.Object(), object, p, nil)
			return err
		})
		switch {
		case err != nil:
			return Message{}, err
		case r.NoAgent:
			return Message{}, errNoAgent
		case r.Expired:
			return Message{}, ErrExpired
		case r.NoReply:
			return Message{}, ErrNoReply
		case r.Waits:
			if err := dohost.Sleep(ctx, pollPause); err != nil {
				return Message{}, err
			}
			continue
		}
		if content = append(content, r.Piece...); len(content) >= r.Size || len(r.Piece) == 0 {
			r.Response.Content = string(content)
			return r.Response, nil
		}
	}
}

// inObject calls fn, which calls an object. It retries until ctx ends, and reports the first error that is not transient.
func inObject(ctx context.Context, by Ref, object dohost.ID, fn func(context.Context) error) error {
	reported := false
	policy := dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: func(err error, attempt int) bool {
		switch {
		case isTransient(err, attempt):
			return true
		case !mayRunLater(err):
			return false
		case !reported:
			reported = true
			reportFailure(ctx, by, object, err)
		}
		return true
	}}
	return by.Rows().WaitElsewhere(ctx, func(ctx context.Context) error { return dohost.Retry(ctx, &policy, fn) })
}
