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

// replyKind is the fiber kind of replies. Its checkpoint belongs to the class.
const replyKind agent.FiberKind[json.RawMessage] = "chat.reply"

// nextCallback begins a reply that was delayed by [PolicyDebounce].
const nextCallback agent.Callback[struct{}] = "chat.next"

// cancelledCallback ends the reply of a cancelled fiber, given the fiber's id.
const cancelledCallback agent.Callback[string] = "chat.cancelled"

// Bind makes a class of chat agents, like [agent.Bind], with the same kinds of entries. Bind copies h.
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
		agent.OnSchedule(taskCallback, func(o *O, ctx context.Context, e pool.TaskEnd) error { return of(o).sent.taskEnded(ctx, &e) }),
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
