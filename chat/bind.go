package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/summary"
	"github.com/dohost/dohost/pool"
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

// Handlers are the functions and the properties of a class of chat agents of type O with a state S. All fields but Reply
// are optional.
type Handlers[O, S any] struct {
	// Reply answers a request. It is called with the turn, and releases the turn while it waits for a model. If the
	// incarnation ends before Reply has returned, a later incarnation calls it again: see [Reply.Partial]. An error ends
	// the reply, keeps the chunks sent so far, and is reported to the clients. Nil is an error of [dohost.Open].
	Reply func(*O, context.Context, *Reply) error
	// OnRecovery decides whether and how an interrupted reply resumes. If it fails, the reply resumes.
	OnRecovery func(*O, context.Context, *InterruptedReply) (RecoveryAction, error)
	// OnResponse is called after a reply has ended; a request that ended before its reply began gets no call. If the
	// incarnation ends before OnResponse returns, a later incarnation calls it again, at most 5 times. The next request is
	// answered concurrently.
	OnResponse func(*O, context.Context, Response) error
	// OnAsked decides about a request of another agent (see [AgentTool]) before it is stored. An error refuses the request, and
	// the model of the other agent receives its text. The agent may call OnAsked more than once for a request: after an
	// interruption, and concurrently, at most four times, if it takes longer than a minute and the request is of another host. The host does not call
	// Authorize for such requests.
	OnAsked func(*O, context.Context, Asked) error
	// OnCall is called when the state of a tool call changes, also to its first one: with CallRunning when a run begins, with
	// CallCompleted and Output, or with another last state and Error, when the call ends. It is called in the transaction of
	// the change: its writes and the state are one commit, so a counter that it keeps is exact. It must not give up the turn, and must
	// not change the conversation: both fail with [dohost.ErrMisuse]. An error is reported, and rolls back the writes of OnCall alone;
	// on a full disk the change waits. A late result that is kept leads to another call with the state CallUnknown: see Late of
	// [Call]. A call that is deleted with its message gets no last state. The calls of a [Worker] have no states.
	OnCall func(*O, context.Context, Call) error
	// Sanitize transforms a message before it is stored. It runs after the built-in sanitizing: see docs/chat.md.
	Sanitize func(*O, Message) Message
	// Options tunes the conversations.
	Options Options
	// Agent has the handlers of any agent. The agent calls them for requests and frames outside of the conversation, and for fibers
	// other than replies.
	Agent agent.Handlers[O, S]
}

// Options tunes the conversations of a class. The zero Options mean the defaults.
type Options struct {
	// Recovery bounds how often and how long an interrupted reply resumes.
	Recovery Recovery
	// Stall bounds the time without a chunk from the handler. A handler that exceeds it is cancelled, and its reply
	// resumes as after the end of an incarnation. Time spent waiting for a full disk does not count. Zero means no bound;
	// negative is an error.
	Stall time.Duration
	// Policy decides about a submission that arrives while another request is open. Empty means [PolicyQueue].
	Policy Policy
	// Debounce is how long [PolicyDebounce] waits for another submission. Zero means 750 ms; negative means no wait.
	Debounce time.Duration
	// MaxMessages bounds the number of stored messages: the oldest are deleted. Zero means no bound; negative is an
	// error. It does not bound the messages of a model's prompt. With History it must be at least twice History.Threshold;
	// the summaries of deleted messages stay.
	MaxMessages int
	// MaxBytes bounds the JSON of the stored messages, in bytes: messages of a client beyond it are refused with a
	// [*dohost.LimitError]. Replies, and messages of the program, are stored in any case. Zero means 32 MiB; negative
	// means no bound. A transcript is one frame, and most requests read all of it, so a conversation in use needs a
	// small multiple of this in memory.
	MaxBytes int
	// KeepApprovals is how long the audit log keeps an event (see [Approvals]). Zero means 90 days; negative means forever.
	// Each new event deletes up to two old ones.
	KeepApprovals time.Duration
	// Price returns the price of a call of a model, in millionths of a currency. The argument has the names and the tokens that the
	// model has reported, or their estimates. The agent calls it with the turn, several times for a call; it must not wait, and must return
	// equal prices for equal arguments. If it panics, the call costs the amount that the model has reported. Nil means the cost
	// that the model reports, which is zero for the models of this module.
	Price func(u Usage) int64
	// Budget bounds the use of models.
	Budget Budget
	// KeepUsage is how long the agent keeps the row of a call of a model (see [ModelCalls]). Zero means 90 days; negative means as long as
	// it is one of the last 10,000. Each new row deletes up to two old ones.
	KeepUsage time.Duration
	// SystemFromClients lets clients store, change and delete system messages, which become instructions to the
	// model. Otherwise system messages of clients are left out.
	SystemFromClients bool
	// History makes a model summarise the oldest messages of long conversations. Nil means that only [Summarize] does.
	History *History
}

// replyKind is the fiber kind of replies. Its checkpoint belongs to the class.
const replyKind agent.FiberKind[json.RawMessage] = "chat.reply"

// nextCallback begins a reply that was delayed by [PolicyDebounce].
const nextCallback agent.Callback[struct{}] = "chat.next"

// cancelledCallback ends the reply of a cancelled fiber, given the fiber's id.
const cancelledCallback agent.Callback[string] = "chat.cancelled"

// Bind makes a class of chat agents, like [agent.Bind]. Any agent has the same kinds of entries. Bind copies h.
//
// [dohost.Open] returns the errors that [agent.Bind] finds and those that the fields of [Handlers] and [Options]
// document; a nil h is one, since it has no Reply.
func Bind[O, S any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], construct func(context.Context, *Agent[S]) (*O, error), h *Handlers[O, S], entries ...agent.Entry[O]) dohost.Class {
	if h == nil {
		h = &Handlers[O, S]{}
	}
	c, errs := newClass(*h)
	wrapped := func(ctx context.Context, a *agent.Agent[S]) (*O, error) {
		own := &Agent[S]{Agent: a}
		own.init(&shared{base: a, class: c})
		self, err := construct(ctx, own)
		if err != nil || self == nil {
			return nil, err
		}
		if P(self).conv() != &own.conversation {
			return nil, errors.New("chat: the constructor must return an object that embeds the Agent passed to it")
		}
		own.owner = self
		return self, nil
	}
	if construct == nil {
		wrapped = nil
	}
	of := func(o *O) *conversation { return P(o).conv() }
	all := append([]agent.Entry[O]{
		agent.Extend(agent.Extension[O]{
			Protocol:  "chat",
			Connect:   func(o *O, ctx context.Context, conn *agent.Conn) error { return of(o).clients.connect(ctx, conn) },
			Connected: func(o *O, ctx context.Context, conn *agent.Conn) error { return of(o).sent.replayRuns(ctx, conn) },
			Message: func(o *O, ctx context.Context, conn *agent.Conn, f dohost.Frame) (bool, error) {
				return of(o).receive(ctx, conn, f)
			},
			Request: func(o *O, w http.ResponseWriter, r *http.Request) bool { return of(o).serve(w, r) },
			Close:   func(o *O, _ context.Context, conn *agent.Conn) { of(o).clients.audience.gone(conn) },
			Cancelled: func(o *O, ctx context.Context, f agent.FiberInfo) error {
				return of(o).fiberCancelled(ctx, f)
			},
		}),
	}, append(durableEntries[O, P](), entries...)...)
	own := h.Agent
	own.Extensions = append([]dohost.ClassExtension{{
		Kinds: []string{detailRequest, detailSummary, detailMessage, detailCall, detailApproval, detailUsage, detailModelCall}, Inspect: inspect,
		Admin: func(ctx context.Context, _ *dohost.State, object any, r *dohost.AdminRequest) (bool, error) {
			return object.(Ref).conv().onAdmin(ctx, r)
		},
	}}, own.Extensions...)
	return dohost.InvalidClass(agent.Bind[O, S, P](ns, wrapped, &own, all...), errs...)
}

// durableEntries returns the entries of the durable work of a conversation.
func durableEntries[O any, P interface {
	*O
	Ref
}]() []agent.Entry[O] {
	of := func(o *O) *conversation { return P(o).conv() }
	return []agent.Entry[O]{
		agent.OnFiber(replyKind, func(o *O, ctx context.Context, f *agent.Fiber[json.RawMessage]) error {
			return of(o).runFiber(ctx, f)
		}, &agent.KindOptions{
			MaxRetries:    math.MaxInt - 1, // see Recovery
			KeepCompleted: retainEnded, KeepFailed: retainEnded, Quiet: true,
		}),
		agent.OnFiber(sweepKind, func(o *O, ctx context.Context, f *agent.Fiber[struct{}]) error {
			return of(o).sweeper.sweep(ctx, f)
		}, &agent.KindOptions{MaxRetries: math.MaxInt - 1, KeepCompleted: retainEnded, KeepFailed: retainEnded, Quiet: true}),
		agent.OnFiber(summaryKind, func(o *O, ctx context.Context, f *agent.Fiber[struct{}]) error {
			return of(o).summaries.summarizeFiber(ctx, f)
		}, &agent.KindOptions{MaxRetries: summary.Budget, KeepCompleted: retainEnded, Quiet: true}),
		agent.OnFiber(askKind, func(o *O, ctx context.Context, f *agent.Fiber[outgoing]) error {
			return of(o).sent.sendAsk(ctx, f)
		}, &agent.KindOptions{MaxRetries: math.MaxInt - 1, KeepCompleted: retainEnded, KeepFailed: retainEnded, Quiet: true}),
		agent.OnFiber(deliverKind, func(o *O, ctx context.Context, f *agent.Fiber[delivery]) error {
			return of(o).asked.deliver(ctx, f)
		}, &agent.KindOptions{MaxRetries: deliverRetries, KeepCompleted: retainEnded, Quiet: true}),
		agent.OnSchedule(cancelledCallback, func(o *O, ctx context.Context, fiber string) error {
			return of(o).endCancelled(ctx, fiber)
		}),
		agent.OnSchedule(expireCallback, func(o *O, ctx context.Context, of expiredApproval) error {
			return P(o).conv().calls.expireApproval(ctx, of, math.MaxInt64) // nothing repeats it
		}),
		agent.OnSchedule(taskCallback, func(o *O, ctx context.Context, e pool.Ended) error { return of(o).sent.taskEnded(ctx, &e) }),
		agent.OnSchedule(nextCallback, func(o *O, ctx context.Context, _ struct{}) error { return of(o).beginDue(ctx) }),
	}
}

func newClass[O, S any](h Handlers[O, S]) (c *class, errs []error) {
	c = &class{options: h.Options}
	if h.Reply == nil {
		errs = append(errs, errors.New("chat: Handlers.Reply is nil"))
	}
	if c.options.Stall < 0 {
		errs = append(errs, errors.New("chat: Options.Stall is negative"))
	}
	if c.options.MaxMessages < 0 {
		errs = append(errs, errors.New("chat: Options.MaxMessages is negative"))
	}
	if p := c.options.Policy; !slices.Contains([]Policy{"", PolicyQueue, PolicyLatest, PolicyMerge, PolicyDrop, PolicyDebounce}, p) {
		errs = append(errs, fmt.Errorf("chat: Options.Policy is %q: want one of the Policy constants", p))
	}
	if err := c.options.Budget.check("chat: Options."); err != nil {
		errs = append(errs, err)
	}
	history, err := h.Options.History.withDefaults(c.options.MaxMessages)
	if err != nil {
		errs = append(errs, err)
	}
	c.options.History = history
	c.options.Recovery = c.options.Recovery.withDefaults()
	c.options.Debounce = max(0, cmp.Or(c.options.Debounce, 750*time.Millisecond))
	c.options.KeepUsage = cmp.Or(c.options.KeepUsage, keepUsage)
	c.options.KeepApprovals = cmp.Or(c.options.KeepApprovals, keepApprovals)
	c.options.MaxBytes = cmp.Or(c.options.MaxBytes, maxConversation)
	c.reply = func(self any, ctx context.Context, r *Reply) error { return h.Reply(self.(*O), ctx, r) }
	if h.OnRecovery != nil {
		c.recovery = func(self any, ctx context.Context, cut *InterruptedReply) (RecoveryAction, error) {
			return h.OnRecovery(self.(*O), ctx, cut)
		}
	}
	if h.OnResponse != nil {
		c.response = func(self any, ctx context.Context, r Response) error { return h.OnResponse(self.(*O), ctx, r) }
	}
	if h.OnAsked != nil {
		c.asked = func(self any, ctx context.Context, a Asked) error { return h.OnAsked(self.(*O), ctx, a) }
	}
	if h.OnCall != nil {
		c.called = func(self any, ctx context.Context, call Call) error { return h.OnCall(self.(*O), ctx, call) }
	}
	if h.Sanitize != nil {
		c.sanitize = func(self any, m Message) Message { return h.Sanitize(self.(*O), m) }
	}
	return c, errs
}
