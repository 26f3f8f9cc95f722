package inbox

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// An agent tool reaches an asked agent with Messages in another object, of this host or of another one, by two procedures. Invariants:
//
//   - A poll has the id of the message, which all repetitions have. The asked object inserts the message unless it has one with that id, or the
//     caller knows that an earlier poll inserted it. The check and the insertion are one batch, so the message is inserted once, even if an answer
//     is lost or an owner of either object ends.
//   - The response is in the collection of the asked object until the program deletes it. The caller reads it in pieces, since a call from
//     another host has a result of at most 1 MiB, which the asked object stores for 5 min. It does not change after it is stored.
//
// No call waits for an outcome: see awaitedRow. An object that cannot be called is called again by a repetition of the cycle. Its time limit does not
// begin again: see askedRow.

// maxPiece bounds the part of a response in the result of a call, in bytes.
const maxPiece = 512 << 10

// outcome is the state of a request.
type outcome struct {
	Created  time.Time `json:"created"` // the time of the stored message
	NoAgent  bool      `json:"noAgent,omitempty"`
	NoReply  bool      `json:"noReply,omitempty"`
	Expired  bool      `json:"expired,omitempty"`
	Waits    bool      `json:"waits,omitempty"` // there is no outcome yet
	Response Message   `json:"response"`        // between objects it has no content: see piece
}

// insertOrPoll inserts a message, unless it is stored or an earlier poll has inserted it (asked), and returns its outcome. Without an outcome, it records
// that w waits for it.
func insertOrPoll(ctx context.Context, of Ref, messages *dohost.Collection[Message], m Message, asked bool, w waiter) (o outcome, err error) {
	row, ok, err := messages.Get(ctx, of.Storage(), m.ID)
	stored := row.Value
	switch {
	case err == nil && !ok && asked: // the program has deleted it
		stored = m
	case err == nil && !ok:
		stored, err = Send(ctx, of.Storage(), messages, m)
	}
	if err != nil {
		return o, err
	}
	o.Created = stored.Created
	if o.Response, ok, err = Reply(ctx, of.Storage(), messages, stored); err != nil || ok {
		return o, err
	}
	stored, waits, unknown, err := isWaiting(ctx, of, messages, stored)
	switch {
	case err != nil:
		return o, err
	case stored.Expired, waits && !unknown && isOver(stored.Deadline):
		o.Expired = true
	case !waits, unknown: // also after the deadline: a repetition has the error of the first run
		o.NoReply = true
	default:
		o.Waits = true
		return o, await(ctx, of, messages, stored, w)
	}
	return o, nil
}

// pollRequest is the argument of insertOrPoll in another object.
type pollRequest struct {
	Collection string  `json:"collection"`
	Message    Message `json:"message"` // without its content,
	Content    []byte  `json:"content"` // which may not be UTF-8
	Asked      bool    `json:"asked,omitempty"`
	Waiter     waiter  `json:"waiter"`
}

// pollAnswer is the result of insertOrPoll in another object.
type pollAnswer struct {
	outcome
	piece
}

// piece is a piece of the content of a response.
type piece struct {
	Bytes []byte `json:"bytes,omitempty"`
	Size  int    `json:"size"` // of the content
}

// pieceOf returns the piece of a content at an offset.
func pieceOf(content string, from int) piece {
	n := len(content)
	from = min(max(from, 0), n)
	return piece{[]byte(content[from:min(from+maxPiece, n)]), n}
}

var pollProcedure = dohost.NewProcedure("inbox.look", func(ctx context.Context, object any, in pollRequest) (r pollAnswer, err error) {
	of, messages, ok := inboxOf(object, in.Collection)
	if !ok {
		r.NoAgent = true
		return r, nil
	}
	in.Message.Content = string(in.Content)
	r.outcome, err = insertOrPoll(ctx, of, messages, in.Message, in.Asked, in.Waiter)
	r.piece = pieceOf(r.Response.Content, 0)
	r.Response.Content = ""
	return r, err
})

// readRequest is the request for a piece of a response.
type readRequest struct {
	Collection string `json:"collection"`
	Request    string `json:"request"`
	To         string `json:"to"`
	From       string `json:"from"`
	At         int    `json:"at"` // the first byte
}

var readProcedure = dohost.NewProcedure("inbox.read", func(ctx context.Context, object any, in readRequest) (piece, error) {
	of, messages, ok := inboxOf(object, in.Collection)
	if !ok {
		return piece{}, nil
	}
	r, _, err := Reply(ctx, of.Storage(), messages, Message{Request: in.Request, To: in.To, From: in.From})
	return pieceOf(r.Content, in.At), err
})

// inboxOf returns an object as an agent with an inbox over a collection of messages.
func inboxOf(object any, collection string) (of Ref, messages *dohost.Collection[Message], ok bool) {
	if of, ok = object.(Ref); ok {
		messages, ok = of.Rows().Collection(collection).(*dohost.Collection[Message])
	}
	return of, messages, ok && hasInbox(of, collection)
}

// pollIn is insertOrPoll in another object.
func (t *AgentTool) pollIn(ctx context.Context, by *requester, object dohost.ID, m Message, asked bool) (outcome, error) {
	in := pollRequest{t.Messages.Name, m, []byte(m.Content), asked, by.waiter()}
	in.Message.Content = ""
	r, err := pollProcedure.Call(ctx, by.ref.Object(), object, in, nil)
	if err != nil {
		return outcome{}, err
	}
	content := r.Bytes
	for len(content) < r.Size {
		at := readRequest{t.Messages.Name, r.Response.InReplyTo, r.Response.From, r.Response.To, len(content)} // the request may have been changed
		next, err := readProcedure.Call(ctx, by.ref.Object(), object, at, nil)
		if err != nil {
			return outcome{}, err
		}
		if len(next.Bytes) == 0 {
			return outcome{}, errNoAgent // the program has deleted the response, or the inbox
		}
		content = append(content, next.Bytes...)
	}
	r.Response.Content = string(content)
	return r.outcome, nil
}

// askedRow is a request without an outcome so far, in the object of the caller. It remembers
// the time of the request, and whether the message was inserted: a message that is not there any more was deleted, and is not inserted again.
type askedRow struct {
	Place    string // of the cycle
	Request  string
	Created  time.Time
	Inserted bool
	// The first message of the cycle, with its collection. The row is deleted when the message leaves the inbox.
	Collection, Message string
}

var askedRows = dohost.Collection[askedRow]{
	Name: "dohost.inbox.asked",
	Key:  func(r askedRow) string { return askedKey(r.Place, r.Request) },
	Indexes: []dohost.Index[askedRow]{{Name: byMessage, Of: func(r askedRow) dohost.Key {
		return dohost.Key(awaitedKey(r.Collection, r.Message))
	}}},
}

// byMessage has the requests of cycles by the first messages of these.
const byMessage = "message"

func askedKey(place, request string) string {
	return string(dohost.KeyOf(place) + dohost.KeyOf(request))
}

// forgetAsked deletes the requests of the cycle of a message.
func forgetAsked(ctx context.Context, s *dohost.Storage, collection, message string) error {
	rows, err := askedRows.List(ctx, s, &dohost.Query[askedRow]{Index: byMessage, Equal: dohost.Key(awaitedKey(collection, message))})
	for _, row := range rows {
		if err == nil {
			_, err = askedRows.Delete(ctx, s, row.Key)
		}
	}
	return err
}
