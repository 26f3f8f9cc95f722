package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// deliverKind is the fiber kind of answers for other agents.
const deliverKind agent.FiberKind[delivery] = "chat.deliver"

// delivery is an answer for another agent.
type delivery struct {
	Address    returnAddress
	Completion Completion
}

// deliverRetry bounds the attempts of one call of the method, and deliverRetries the calls: about a day together. A fiber
// that has failed then is kept, and an operator can retry it.
var deliverRetry = dohost.RetryPolicy{MaxAttempts: -1, MaxDelay: time.Minute, MaxElapsed: time.Hour, ShouldRetry: dohost.RetryAnyError}

const deliverRetries = 24

// maxDeciding bounds the concurrent calls of OnAsked for one request. The caller repeats a request of another host after about a minute, while an
// earlier call may still be running.
const maxDeciding = 4

// errDeciding is the error of a further repetition, which the caller repeats later.
var errDeciding = fmt.Errorf("chat: %d calls of OnAsked decide about the request: %w", maxDeciding, dohost.ErrOverloaded)

// refusedError is the error of an agent that does not accept a request.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return "chat: the agent refused the request: " + e.text }

func refused(err error) error { return &refusedError{clipText(err.Error(), maxToolError)} }

// askedRequests accepts and cancels the requests of other agents, keeps their return addresses, and delivers the answers.
type askedRequests struct {
	*shared
	conv     *conversation
	calls    *toolCalls
	clients  *clientList
	messages *storedMessages
	sent     *sentRequests

	// deciding counts the calls of OnAsked in progress, by the request. These requests stay known until then: see acceptAsked. Owned
	// by the goroutine that has the turn.
	deciding map[string]int
}

// acceptAsked stores a request of another agent, unless it is known, or the caller does not wait any more. The caller repeats it
// after any error but a refusedError.
//
// OnAsked may take longer than an ended request stays known, and another acceptAsked may store the request until then. So
// expireEnded keeps the requests that OnAsked decides about.
func (k *askedRequests) acceptAsked(ctx context.Context, q *outgoing) error {
	id := q.Address.Request
	if _, known, err := replies.Get(ctx, k.store(), id); err != nil || known {
		return err
	}
	if k.class.asked != nil {
		if k.deciding[id] >= maxDeciding {
			return errDeciding
		}
		if err := k.callOnAsked(ctx, q.Address.public()); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return refused(err)
		}
		if _, known, err := replies.Get(ctx, k.store(), id); err != nil || known {
			return err
		}
	}
	if q.Address.over() { // the hook may have taken long
		return nil
	}
	n, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open"})
	if err == nil && n >= maxOpenRequests {
		err = fmt.Errorf("chat: %d requests are open, the limit is %d: %w", n, maxOpenRequests, dohost.ErrOverloaded)
	}
	if err != nil {
		return err
	}
	user := Text(id, RoleUser, q.Text)
	row := replyRow{ID: id, Asked: &q.Address, Users: []string{user.ID}, Created: time.Now().UnixMilli(), Collects: true}
	err = k.conv.accept(ctx, row, func(ctx context.Context) error { return k.putAsked(ctx, user) })
	if _, large := errors.AsType[*dohost.LimitError](err); large {
		return refused(err)
	}
	if err != nil {
		return err
	}
	return k.clients.broadcastTranscript(ctx, k.clients.openConns())
}

// callOnAsked calls OnAsked.
func (k *askedRequests) callOnAsked(ctx context.Context, a Asked) error {
	if k.deciding == nil {
		k.deciding = map[string]int{}
	}
	k.deciding[a.Request]++
	defer func() {
		if k.deciding[a.Request]--; k.deciding[a.Request] == 0 {
			delete(k.deciding, a.Request)
		}
	}()
	return k.class.asked(k.owner, ctx, a)
}

// putAsked stores the message of a request of another agent.
func (k *askedRequests) putAsked(ctx context.Context, m Message) error {
	old, _, err := messages.Get(ctx, k.store(), m.ID)
	if err != nil {
		return err
	}
	old.Asked = true
	if _, err := k.messages.putReplacing(ctx, old, m, 0, ""); err != nil {
		return err
	}
	return k.messages.trim(ctx)
}

// deliverText starts the delivery of a text.
func (k *askedRequests) deliverText(ctx context.Context, to *returnAddress, text string) error {
	out, err := responseJSON(text)
	if err != nil {
		return err
	}
	c := Completion{Output: out}
	if len(out) > maxOutput {
		c = Completion{Error: fmt.Sprintf("The answer of the agent %v has %d bytes, the limit is %d.", k.object().ID(), len(out), maxOutput)}
	}
	return k.startDelivery(ctx, to, c)
}

// startDelivery starts a fiber that completes the caller's call.
func (k *askedRequests) startDelivery(ctx context.Context, to *returnAddress, c Completion) error {
	c.Key = to.Key
	_, err := agent.StartFiber(ctx, k.base, deliverKind, delivery{*to, c}, nil)
	return err
}

// deliver is the method of deliverKind.
func (k *askedRequests) deliver(ctx context.Context, f *agent.Fiber[delivery]) error {
	d := f.Checkpoint()
	err := dohost.Retry(ctx, &deliverRetry, func(ctx context.Context) error {
		if d.Address.over() {
			k.object().Report(ctx, "chat:late", slog.String("request", d.Address.Request), slog.String("caller", d.Address.caller().String()))
			return nil
		}
		return callAgent(ctx, k.shared, d.Address.caller(), answerProcedure, sentAnswer{
			d.Address.Key, d.Address.Rest, d.Completion.Output, d.Completion.Error, d.Completion.Unknown,
		})
	})
	if err != nil {
		return err
	}
	row, ok, err := replies.Get(ctx, k.store(), d.Address.Request)
	if err != nil || !ok || row.Value.Open() {
		return err
	}
	_, _, err = k.conv.collect(ctx, &row.Value)
	return err
}
