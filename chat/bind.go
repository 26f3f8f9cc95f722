package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Agent is what a chat agent's struct embeds: an agent with a state S, and a conversation. Its methods
// want a context that holds the object's turn, unless they say otherwise.
type Agent[S any] struct {
	*agent.Agent[S]
	conversation
}

// Ref is a chat agent: an [*Agent], or a struct that embeds one.
type Ref interface {
	agent.Ref
	talk() *conversation
}

func (k *conversation) talk() *conversation { return k }

// conversation is an incarnation of a chat agent, whatever its state.
type conversation struct {
	// Fixed before any of its code runs.
	base  base
	class *class
	owner any // the user's struct

	// Owned by whoever holds the turn.
	live *live
	// catching are connections that are about to be shown what was said so far: they get no chunk until
	// they have asked for that.
	catching []*agent.Conn
	// caught are connections that were shown what was said of the reply that is being made.
	caught []*agent.Conn
	// waiting are connections that want to know of the next reply.
	waiting []*agent.Conn
	// fresh are connections that have not asked yet whether there is something to catch up with.
	fresh  []*agent.Conn
	called string // id of the request for which the handler was called last
	// asker is the connection that has asked for what is being answered, or waits for that, by request: it
	// sees all of that, unless it is cut off.
	asker map[string]*agent.Conn
	// waiters are closed when their request has ended.
	waiters map[string]chan struct{}
}

// base is the agent beneath.
type base interface {
	agent.Ref
	Object() *dohost.State
	Storage() *dohost.Storage
	Connections(tag string) iter.Seq[*agent.Conn]
	BroadcastTo(ctx context.Context, f dohost.Frame, to []*agent.Conn) error
}

// class is what all chat agents of a class share. Hooks are given the agent's struct as self.
type class struct {
	options  Options
	reply    func(self any, ctx context.Context, r *Reply) error
	recovery func(self any, ctx context.Context, c *Cut) (Decision, error)
	response func(self any, ctx context.Context, r Response) error
	sanitize func(self any, m Message) Message
}

// Handlers are what a class of chat agents does itself.
type Handlers[O any] struct {
	// Reply answers. It is called with the turn, which it gives up while it waits for a model, and again
	// by another incarnation if this one ends before it has returned: see [Reply.Partial]. An error
	// ends the reply, with what it has said, and is told to the clients.
	Reply func(*O, context.Context, *Reply) error
	// OnRecovery decides about a reply that was cut off and is about to be gone on with. It may be nil.
	// If it fails the reply is gone on with.
	OnRecovery func(*O, context.Context, *Cut) (Decision, error)
	// OnResponse is told how a request that was begun has ended, once it has, and again if its incarnation
	// ends before it returns. The next one is answered meanwhile. It may be nil.
	OnResponse func(*O, context.Context, Response) error
	// Sanitize makes a message what is stored of it, behind what is done to all: see docs/chat.md. It
	// may be nil.
	Sanitize func(*O, Message) Message
}

// Options tunes the chat agents of a class. A nil *Options, and the zero Options, mean the defaults.
type Options struct {
	// Recovery says how far a reply is gone on with that was cut off.
	Recovery Recovery
	// Stall is for how long a handler may send nothing before it is cut off, and gone on with like one
	// whose incarnation has ended. The time for which it waits for a full disk does not count. Zero means
	// without bound; negative is an error.
	Stall time.Duration
	// Policy says what becomes of a submission that comes while another request is open. Empty means
	// [Queue].
	Policy Policy
	// Debounce is how long [Debounce] waits for another submission. Zero means 750 ms; negative, not
	// at all.
	Debounce time.Duration
	// MaxMessages bounds how many messages are stored: the oldest go. Zero means without bound; negative
	// is an error. It is no bound of what a model is given.
	MaxMessages int
	// MaxBytes bounds the JSON of the stored messages, in bytes: messages of a client beyond it are refused with a
	// [*dohost.LimitError]. Replies, and messages of the program, are stored in any case. Zero means 32 MiB; negative
	// means no bound. A transcript is one frame, and most requests read all of it, so a conversation in use needs a
	// small multiple of this in memory.
	MaxBytes int
	// SystemFromClients lets clients store, change and delete system messages, which become instructions to the
	// model. Otherwise system messages of clients are left out.
	SystemFromClients bool
}

// replyKind is the fiber that a reply is. Its checkpoint is the class's own.
const replyKind agent.FiberKind[json.RawMessage] = "chat.reply"

// nextCallback begins a reply that was to wait for another submission.
const nextCallback agent.Callback[struct{}] = "chat.next"

// cancelledCallback ends the reply that was the work of a fiber, by the fiber's id.
const cancelledCallback agent.Callback[string] = "chat.cancelled"

// Bind makes a class of chat agents, like [agent.Bind]; entries are those of any agent. What is wrong
// with the handlers, options and entries is an error of [dohost.Open].
func Bind[O, S any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], construct func(context.Context, *Agent[S]) (*O, error), h Handlers[O], o *Options,
	entries ...agent.Entry[O]) dohost.Class {
	c, err := newClass(h, o)
	wrapped := func(ctx context.Context, a *agent.Agent[S]) (*O, error) {
		own := &Agent[S]{Agent: a, conversation: conversation{base: a, class: c}}
		self, err := construct(ctx, own)
		if err != nil || self == nil {
			return nil, err
		}
		if P(self).talk() != &own.conversation {
			return nil, errors.New("chat: the constructor does not embed the agent that it was given")
		}
		own.owner = self
		return self, nil
	}
	if construct == nil {
		wrapped = nil
	}
	of := func(o *O) *conversation { return P(o).talk() }
	all := append([]agent.Entry[O]{
		agent.Extend(agent.Extension[O]{
			Protocol: "chat",
			Connect:  func(o *O, ctx context.Context, conn *agent.Conn) error { return of(o).connect(ctx, conn) },
			Message: func(o *O, ctx context.Context, conn *agent.Conn, f dohost.Frame) (bool, error) {
				return of(o).receive(ctx, conn, f)
			},
			Request: func(o *O, w http.ResponseWriter, r *http.Request) bool { return of(o).serve(w, r) },
			Close:   func(o *O, _ context.Context, conn *agent.Conn) { of(o).gone(conn) },
			Cancelled: func(o *O, ctx context.Context, f agent.FiberInfo) error {
				return of(o).fiberCancelled(ctx, f)
			},
			Look: look,
		}),
		agent.OnFiber(replyKind, func(o *O, ctx context.Context, f *agent.Fiber[json.RawMessage]) error {
			return of(o).work(ctx, f)
		}, &agent.KindOptions{
			MaxRetries:    math.MaxInt - 1, // see Recovery
			KeepCompleted: keepEnded, KeepFailed: keepEnded, Quiet: true,
		}),
		agent.OnFiber(sweepKind, func(o *O, ctx context.Context, f *agent.Fiber[struct{}]) error {
			return of(o).sweep(ctx, f)
		}, &agent.KindOptions{MaxRetries: math.MaxInt - 1, KeepCompleted: keepEnded, KeepFailed: keepEnded, Quiet: true}),
		agent.OnSchedule(cancelledCallback, func(o *O, ctx context.Context, fiber string) error {
			return of(o).endCancelled(ctx, fiber)
		}),
		agent.OnSchedule(nextCallback, func(o *O, ctx context.Context, _ struct{}) error { return of(o).beginDue(ctx) }),
	}, entries...)
	if err != nil {
		all = append(all, agent.Mistake[O](err))
	}
	return agent.Bind[O, S, P](ns, wrapped, all...)
}

func newClass[O any](h Handlers[O], o *Options) (*class, error) {
	c := &class{}
	if o != nil {
		c.options = *o
	}
	c.options.Recovery = c.options.Recovery.withDefaults()
	if h.Reply == nil {
		return c, errors.New("chat: Handlers without a Reply")
	}
	switch p := c.options.Policy; {
	case c.options.Stall < 0:
		return c, errors.New("chat: Options.Stall is negative")
	case c.options.MaxMessages < 0:
		return c, errors.New("chat: Options.MaxMessages is negative")
	case !slices.Contains([]Policy{"", Queue, Latest, Merge, Drop, Debounce}, p):
		return c, fmt.Errorf("chat: Options.Policy is %q", p)
	case c.options.Debounce == 0:
		c.options.Debounce = 750 * time.Millisecond
	}
	c.options.Debounce = max(0, c.options.Debounce)
	c.options.MaxBytes = cmp.Or(c.options.MaxBytes, maxConversation)
	c.reply = func(self any, ctx context.Context, r *Reply) error { return h.Reply(self.(*O), ctx, r) }
	if h.OnRecovery != nil {
		c.recovery = func(self any, ctx context.Context, cut *Cut) (Decision, error) {
			return h.OnRecovery(self.(*O), ctx, cut)
		}
	}
	if h.OnResponse != nil {
		c.response = func(self any, ctx context.Context, r Response) error { return h.OnResponse(self.(*O), ctx, r) }
	}
	if h.Sanitize != nil {
		c.sanitize = func(self any, m Message) Message { return h.Sanitize(self.(*O), m) }
	}
	return c, nil
}
