package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/agenttool"
)

// Message is the row of an inbox with all functions: see [ForMessages]. Programs and agents send a message to an agent by
// inserting it into the collection of [Messages], with [Send] or directly.
//
// Every writer of the collection is trusted: a row may have any sender, role and time, and may look like a response. So code that
// inserts a message for a client sets To, From and Role itself, leaves Path empty, and bounds the size of Content.
type Message struct {
	// ID is the key of the row.
	ID string `json:"id"`
	// Role is user or system for a message to an agent, and assistant for a response.
	Role    chat.Role `json:"role"`
	Content string    `json:"content"`
	// To is the name of the agent that answers, and From the name of the sender. A response is from the agent, to the sender of the
	// messages that it answers, or to "" if these have several senders.
	To   string `json:"to,omitempty"`
	From string `json:"from,omitempty"`
	// Created is the time of the message. Agents order the messages that wait by it.
	Created time.Time `json:"created"`
	// Processed is the time of the response; zero if the message waits. A response has its own time.
	Processed time.Time `json:"processed,omitzero"`
	// Request is an id that the sender chooses, for a response of its own. InReplyTo of that response is the same id. A second
	// message with that id from the same sender gets no second response.
	Request   string `json:"request,omitempty"`
	InReplyTo string `json:"inReplyTo,omitempty"`
	// Deadline is the time after which no code waits for the response to a request; zero if there is none. The agent asks its model for a request
	// until then, and responds before it or not at all: see Expired. It has no effect in a message without Request.
	Deadline time.Time `json:"deadline,omitzero" msgpack:",omitempty"`
	// Expired is set, with Processed, if the agent has found the deadline of the request to be over. The request has no response, and is not
	// in the conversation of the agent.
	Expired bool `json:"expired,omitempty" msgpack:",omitempty"`
	// Path lists the agents that wait for each other, from the first to the sender, in a request of an agent tool: see [AgentTool].
	// Other messages have none.
	Path []Address `json:"path,omitempty" msgpack:",omitempty"`
	// Generation of a response names its chunks: see Agent.Chunks.
	Generation string `json:"generation,omitempty"`
}

// The indexes of the collection of messages.
const (
	// pendingIndex has the messages that wait, by agent and time.
	pendingIndex = "pending"
	// conversationIndex has the other messages of an agent, ordered by the time of the response. The response follows the
	// messages of its cycle. The requests of an agent, and the responses to them, are not in its own conversation. Expired requests are in
	// none: a model would answer them in a later cycle.
	conversationIndex = "conversation"
	// systemIndex has the messages of the conversation that the system has in the prompt of the agent, in the same order.
	systemIndex = "system"
	// replyIndex has responses by the request id, the agent and the sender of the request.
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
				return nameKey(m.To) + dohost.KeyOf(m.Created)
			}},
			{Name: conversationIndex, Each: conversationKeys},
			{Name: systemIndex, Each: systemKeys},
			{Name: replyIndex, Of: func(m Message) dohost.Key {
				if m.InReplyTo == "" {
					return ""
				}
				return replyKey(m.InReplyTo, m.From, m.To)
			}},
		},
	}
}

// missingIndex returns the name of an index that a collection lacks to be one of Messages; empty if it has all of them.
func missingIndex(messages *dohost.Collection[Message]) string {
	for _, name := range []string{replyIndex, pendingIndex, conversationIndex, systemIndex} {
		if !slices.ContainsFunc(messages.Indexes, func(x dohost.Index[Message]) bool { return x.Name == name }) {
			return name
		}
	}
	return ""
}

// nameKey returns the key of a name or a request id. A long one has the key of its hash: no index refuses a message at its
// response that it has accepted before.
func nameKey(name string) dohost.Key {
	if len(name) <= 64 {
		return dohost.KeyOf(name)
	}
	sum := sha256.Sum256([]byte(name))
	return dohost.KeyOf("sha256:" + hex.EncodeToString(sum[:]))
}

func replyKey(request, agent, sender string) dohost.Key {
	return nameKey(request) + nameKey(agent) + nameKey(sender)
}

// waits reports whether an agent has to answer the message. A row with the role assistant or with InReplyTo is never work.
func (m *Message) waits() bool {
	return m.To != "" && m.Processed.IsZero() && m.InReplyTo == "" && m.Role != chat.RoleAssistant
}

func conversationKeys(m Message) (keys []dohost.Key) {
	if m.waits() || m.Expired {
		return nil
	}
	when := m.Processed
	if when.IsZero() {
		when = m.Created
	}
	rest := dohost.KeyOf(when) + dohost.KeyOf(m.Role == chat.RoleAssistant) + dohost.KeyOf(m.Created)
	if m.To != "" && m.InReplyTo == "" {
		keys = append(keys, nameKey(m.To)+rest)
	}
	if m.From != "" && m.Request == "" {
		keys = append(keys, nameKey(m.From)+rest)
	}
	return keys
}

// systemKeys returns the keys in the conversations where roleFor returns the role of the system.
func systemKeys(m Message) []dohost.Key {
	if m.Role != chat.RoleSystem {
		return nil
	}
	if m.From != m.To {
		m.From = "" // for the sender it is a message of the assistant
	}
	return conversationKeys(m)
}

// maxContent bounds the content of a message of Send and of a response, in bytes.
const maxContent = 1 << 20

// Send inserts a message to an agent, and returns it. It sets the fields ID, Role and Created if they are zero: to a random id, to
// the role of a user, and to the present time. The agent answers in a later event, once the caller's event has ended or gives up
// the turn. A message to a name that no agent has waits: see [Unknown]. A Deadline that is over is no error: the request expires.
//
// Errors: [dohost.ErrMisuse] for a message without To, with a Role other than user and system, with a field of a response
// (Processed, InReplyTo, Generation, Expired), with a Deadline but no Request, with more than 5 addresses in Path, or with a year of Created
// or Deadline outside 1 to 9999; a [*dohost.LimitError] for more than 1 MiB of Content; [dohost.ErrConflict] for an ID that is stored; the errors of
// the collection.
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
	if err := m.check(); err != nil {
		return Message{}, err
	}
	return m, messages.Insert(ctx, s, m)
}

func (m *Message) check() error {
	why := ""
	year, deadline := m.Created.UTC().Year(), m.Deadline.UTC().Year()
	switch {
	case m.To == "":
		why = "has no To"
	case m.Role != chat.RoleUser && m.Role != chat.RoleSystem:
		why = fmt.Sprintf("has the role %.20q: want user or system", m.Role)
	case !m.Processed.IsZero(), m.InReplyTo != "", m.Generation != "", m.Expired:
		why = "has a field of a response: Processed, InReplyTo, Generation or Expired"
	case m.Request == "" && !m.Deadline.IsZero():
		why = "has a Deadline, and no Request"
	case len(m.Path) > agenttool.MaxDepth:
		why = fmt.Sprintf("has %d addresses in its Path: want at most %d", len(m.Path), agenttool.MaxDepth)
	case year < 1 || year > 9999:
		why = fmt.Sprintf("is of the year %d: want 1 to 9999", year)
	case deadline < 1 || deadline > 9999:
		why = fmt.Sprintf("has a Deadline in the year %d: want 1 to 9999", deadline)
	case len(m.Content) > maxContent:
		return &dohost.LimitError{Subject: "the content of a message", Size: len(m.Content), Limit: maxContent}
	default:
		return nil
	}
	return fmt.Errorf("inbox: the message %.64q %s: %w", m.ID, why, dohost.ErrMisuse)
}

// Reply returns the response to a request: asked has its Request, To and From. ok is false if the agent has not answered.
//
// Errors: the errors of the collection.
func Reply(ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], asked Message) (m Message, ok bool, err error) {
	rows, err := messages.List(ctx, s, &dohost.Query[Message]{
		Index: replyIndex, Equal: replyKey(asked.Request, asked.To, asked.From), Limit: 1,
	})
	if err != nil || len(rows) == 0 {
		return Message{}, false, err
	}
	return rows[0].Value, true, nil
}

// ErrNoReply is the error of [WaitReply] for a request that no agent is going to answer: its message was parked, deleted, or marked as processed
// without a response; the class has no agent of that name, and no [Elsewhere] that knows it; or the object has no inbox over the collection.
var ErrNoReply = errors.New("inbox: no agent is going to answer the request")

// WaitReply is [Reply] that waits for the response, and gives up the turn until then. a is the object that has the collection, and asked the
// inserted message, with its ID. After an error the caller may wait again, also in another incarnation: the request is stored, and the
// agent answers it once. A cycle may wait for another agent, but agents must not wait for each other: only ctx ends that. An [AgentTool]
// refuses a request that would wait for itself.
//
// Errors: [ErrNoReply]; [ErrExpired] after the Deadline of the request, also if the agent has not marked it yet; [dohost.ErrMisuse] for a
// message without Request, and in a cycle of the agent that is to answer; the context's cause, so ctx limits the time; the errors of
// [agent.Rows.Wait] and of the collection.
func WaitReply(ctx context.Context, a Ref, messages *dohost.Collection[Message], asked Message) (Message, error) {
	if asked.Request == "" {
		return Message{}, fmt.Errorf("inbox: a wait for the response to the message %.64q, which has no Request: %w", asked.ID, dohost.ErrMisuse)
	}
	if prefix, inCycle := ctx.Value(cycleKey{}).(dohost.Key); inCycle && prefix == nameKey(asked.To) {
		return Message{}, fmt.Errorf("inbox: a cycle of the agent %.64q waits for its own response: %w", asked.To, dohost.ErrMisuse)
	}
	for {
		m, ok, err := Reply(ctx, a.Storage(), messages, asked)
		if err != nil || ok {
			return m, err
		}
		if a.Rows().Collection(messages.Name) == nil {
			return Message{}, fmt.Errorf("%w: %.64q to %.64q: the object has no inbox over %q", ErrNoReply, asked.Request, asked.To, messages.Name)
		}
		stored, waits, unknown, err := isWaiting(ctx, a, messages, asked)
		switch {
		case err != nil:
			return Message{}, err
		case stored.Expired, waits && isOver(stored.Deadline):
			return Message{}, fmt.Errorf("%w: %.64q to %.64q", ErrExpired, asked.Request, asked.To)
		case !waits, unknown:
			return Message{}, fmt.Errorf("%w: %.64q to %.64q", ErrNoReply, asked.Request, asked.To)
		}
		if err := waitRows(ctx, a, stored.Deadline); err != nil {
			return Message{}, err
		}
	}
}

// cycleKey is the context key of the prefix of the rows whose cycle runs.
type cycleKey struct{}

// isWaiting returns a message as it is stored, and reports whether it waits there and is not parked, and whether it waits for a name that no agent
// has. A message without an id is taken for one that waits.
func isWaiting(
	ctx context.Context, a Ref, messages *dohost.Collection[Message], asked Message,
) (stored Message, waits, unknown bool, err error) {
	if asked.ID == "" {
		return asked, true, false, nil
	}
	row, ok, err := messages.Get(ctx, a.Storage(), asked.ID)
	if !ok || err != nil {
		return Message{}, false, false, err
	}
	stored = row.Value
	if !stored.waits() { // other code has marked it, without a response
		return stored, false, false, nil
	}
	parked, err := a.Rows().Parked(ctx, messages.Name, asked.ID)
	if err != nil || parked {
		return stored, false, false, err
	}
	return stored, true, isUnknown(a, messages.Name, stored.To), nil
}
