package inbox

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// Message is the row of an inbox with all functions: see [ForMessages]. People, programs and agents send a message to an agent by
// inserting it into the collection of [Messages], with [Send] or directly.
type Message struct {
	// ID is the key of the row.
	ID string `json:"id"`
	// Role is user or system for a message to an agent, and assistant for a response.
	Role    chat.Role `json:"role"`
	Content string    `json:"content"`
	// To is the name of the agent that answers, and From that of the sender. A response is from the agent, to the sender of the
	// messages that it answers, or to "" if these have several senders.
	To   string `json:"to,omitempty"`
	From string `json:"from,omitempty"`
	// Created is the time of the message. Agents order the messages that wait by it.
	Created time.Time `json:"created"`
	// Processed is the time of the response; zero if the message waits. A response has its own time.
	Processed time.Time `json:"processed,omitzero"`
	// Request is an id that the sender chooses, for a response of its own: see Inbox.Request. InReplyTo of that response is the
	// same id. A second message with that id gets no second response.
	Request   string `json:"request,omitempty"`
	InReplyTo string `json:"inReplyTo,omitempty"`
	// Generation of a response names the chunks of its last answer: see Agent.Chunks.
	Generation string `json:"generation,omitempty"`
}

// The indexes of the collection of messages.
const (
	// pendingIndex has the messages that wait, by agent and time.
	pendingIndex = "pending"
	// conversationIndex has the other messages of an agent, ordered by the time of the response. The response
	// follows the messages of its cycle.
	conversationIndex = "conversation"
	// replyIndex has responses by the request id and the agent.
	replyIndex = "reply"
)

// Messages returns a collection of messages with the indexes that [ForMessages] requires. Assign it to a variable. feed may be nil.
// Agents with different names may share a collection: each answers the messages to its name.
func Messages(name string, feed *dohost.Feed) dohost.Collection[Message] {
	return dohost.Collection[Message]{
		Name: name, Feed: feed,
		Key: func(m Message) string { return m.ID },
		Indexes: []dohost.Index[Message]{
			{Name: pendingIndex, Of: func(m Message) dohost.Key {
				if !m.waits() {
					return ""
				}
				return dohost.KeyOf(m.To) + dohost.KeyOf(m.Created)
			}},
			{Name: conversationIndex, Each: conversationKeys},
			{Name: replyIndex, Of: func(m Message) dohost.Key {
				if m.InReplyTo == "" {
					return ""
				}
				return dohost.KeyOf(m.InReplyTo) + dohost.KeyOf(m.From)
			}},
		},
	}
}

// waits reports whether an agent has to answer the message. A response is never work for its receiver.
func (m *Message) waits() bool {
	return m.To != "" && m.Processed.IsZero() && m.InReplyTo == "" && m.Role != chat.RoleAssistant
}

func conversationKeys(m Message) (keys []dohost.Key) {
	if m.waits() {
		return nil
	}
	when := m.Processed
	if when.IsZero() {
		when = m.Created
	}
	rest := dohost.KeyOf(when) + dohost.KeyOf(m.Role == chat.RoleAssistant) + dohost.KeyOf(m.Created)
	for _, party := range []string{m.To, m.From} {
		if party != "" {
			keys = append(keys, dohost.KeyOf(party)+rest)
		}
	}
	return keys
}

// Send inserts a message, and returns it. It sets the fields ID, Role and Created if they are zero: to a random id, to the role of
// a user, and to the present time. The agent answers it in a later event, once the caller's event has ended or gives up the turn.
//
// Errors: [dohost.ErrConflict] for an ID that is stored, and those of the collection.
func Send(ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], m Message) (Message, error) {
	if m.ID == "" {
		m.ID = "msg_" + ulid.Make().String()
	}
	if m.Role == "" {
		m.Role = chat.RoleUser
	}
	if m.Created.IsZero() {
		m.Created = time.Now()
	}
	return m, messages.Insert(ctx, s, m)
}

// Reply returns the response to a request id. An agent of that name has stored it, or ok is false.
//
// Errors: those of the collection.
func Reply(ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], request, agent string) (m Message, ok bool, err error) {
	rows, err := messages.List(ctx, s, &dohost.Query[Message]{
		Index: replyIndex, Equal: dohost.KeyOf(request) + dohost.KeyOf(agent), Limit: 1,
	})
	if err != nil || len(rows) == 0 {
		return Message{}, false, err
	}
	return rows[0].Value, true, nil
}
