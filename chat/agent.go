package chat

import (
	"context"
	"iter"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Agent is embedded by the struct of a chat agent: an agent with a state S, and a conversation. Its methods need a
// context that has the object's turn, unless documented otherwise.
type Agent[S any] struct {
	*agent.Agent[S]
	conversation
}

// Ref is a chat agent: an [*Agent], or a struct that embeds one.
type Ref interface {
	agent.Ref
	conv() *conversation
}

func (k *conversation) conv() *conversation { return k }

// conversation is the in-memory state of one incarnation of a chat agent.
type conversation struct {
	*shared
	// Owned by the goroutine that has the turn.
	live       *liveReply
	callPrefix string // the prefix of the names that nextCall returns; empty before the first name
	callNumber int    // the number of names that nextCall has returned
	lastCall   string // the last call of a handler that has begun
	// waiters are closed when their request has ended.
	waiters map[string]chan struct{}

	clients   clientList
	calls     toolCalls
	messages  storedMessages
	asked     askedRequests
	sent      sentRequests
	summaries summarizer
	sweeper   sweeper
}

// init prepares a conversation: it gives each value the others that it uses.
func (k *conversation) init(s *shared) {
	k.shared = s
	k.clients = clientList{shared: s, conv: k, messages: &k.messages}
	k.messages = storedMessages{shared: s, conv: k, calls: &k.calls, asked: &k.asked, sent: &k.sent, summaries: &k.summaries, sweeper: &k.sweeper}
	k.calls = toolCalls{shared: s, conv: k, clients: &k.clients, messages: &k.messages, sent: &k.sent}
	k.asked = askedRequests{shared: s, conv: k, calls: &k.calls, clients: &k.clients, messages: &k.messages, sent: &k.sent}
	k.sent = sentRequests{shared: s, calls: &k.calls, clients: &k.clients}
	k.summaries = summarizer{shared: s, messages: &k.messages}
	k.sweeper = sweeper{shared: s, conv: k, calls: &k.calls}
}

// shared is the part of a conversation that all its values use. It is set before any of the object's code runs.
type shared struct {
	base  base
	class *class
	owner any // the user's struct
}

// base is the underlying agent.
type base interface {
	agent.Ref
	Fibers() agent.Fibers
	Name() string
	Object() *dohost.State
	Storage() *dohost.Storage
	Connections(tag string) iter.Seq[*agent.Conn]
	BroadcastTo(ctx context.Context, f dohost.Frame, to []*agent.Conn) error
}

// class is the part that all chat agents of a class share. Hooks receive the agent's struct as self.
type class struct {
	options  Options
	reply    func(self any, ctx context.Context, r *Reply) error
	recovery func(self any, ctx context.Context, c *InterruptedReply) (RecoveryAction, error)
	response func(self any, ctx context.Context, r Response) error
	sanitize func(self any, m Message) Message
	asked    func(self any, ctx context.Context, a Asked) error
	called   func(self any, ctx context.Context, c Call) error
}

func (s *shared) object() *dohost.State { return s.base.Object() }

func (s *shared) store() *dohost.Storage { return s.base.Storage() }

func (s *shared) options() *Options { return &s.class.options }

// readNote returns a singleton of the conversation; the zero noteRow if it is not stored.
func (s *shared) readNote(ctx context.Context, name string) (noteRow, error) {
	row, _, err := notes.Get(ctx, s.store(), name)
	return row.Value, err
}
