package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
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

// waitingRow is the return address of a reply that has ended while calls of its message wait. The reply that continues the
// message gets it.
type waitingRow struct {
	Message string
	Address returnAddress
}

var waitingRows = dohost.Collection[waitingRow]{
	Name: "dohost.chat.asked",
	Key:  func(r waitingRow) string { return r.Message },
}

// refusedError is the error of an agent that does not accept a request.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return "chat: the agent refused the request: " + e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// acceptAsked stores a request of another agent, unless it is known, or the caller does not wait any more. The caller repeats it after any error but a
// refusedError.
func (k *conversation) acceptAsked(ctx context.Context, q *outgoing) error {
	id := q.Address.Request
	if _, known, err := replies.Get(ctx, k.store(), id); err != nil || known {
		return err
	}
	if k.class.asked != nil {
		if err := k.class.asked(k.owner, ctx, q.Address.public()); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &refusedError{err}
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
	err = k.accept(ctx, row, func(ctx context.Context) error { return k.putAsked(ctx, user) })
	if _, large := errors.AsType[*dohost.LimitError](err); large {
		return &refusedError{err}
	}
	if err != nil {
		return err
	}
	return k.broadcastTranscript(ctx, k.openConns())
}

// putAsked stores the message of a request of another agent.
func (k *conversation) putAsked(ctx context.Context, m Message) error {
	old, _, err := messages.Get(ctx, k.store(), m.ID)
	if err != nil {
		return err
	}
	old.Asked = true
	if _, err := k.putReplacing(ctx, old, m, 0, ""); err != nil {
		return err
	}
	return k.trim(ctx)
}

// answerAsked starts the delivery of the answer to a request of another agent that ends, in the batch of the end. m is its
// message, or nil. While calls of the message wait, or a continuation is queued, the row of the message keeps the address.
func (k *conversation) answerAsked(ctx context.Context, row *replyRow, m *Message) error {
	if row.Asked == nil {
		return nil
	}
	if row.Outcome == work.Completed && m != nil {
		later, err := k.continuesLater(ctx, m)
		if err != nil {
			return err
		}
		if later {
			return waitingRows.Put(ctx, k.store(), waitingRow{m.ID, *row.Asked})
		}
	}
	c := Completion{}
	switch self := k.base.Object().ID(); row.status() {
	case StatusCompleted:
		text := ""
		if m != nil {
			text = m.PlainText()
		}
		return k.deliverText(ctx, row.Asked, text)
	case StatusFailed:
		c.Error = fmt.Sprintf("The agent %v failed: %s", self, row.Public)
	case StatusSkipped:
		c.Error = fmt.Sprintf("The agent %v skipped the request.", self)
	default:
		c.Error = fmt.Sprintf("The reply of the agent %v was stopped.", self)
	}
	return k.startDelivery(ctx, row.Asked, c)
}

// continuesLater reports whether calls of a message wait, or a continuation of it is queued.
func (k *conversation) continuesLater(ctx context.Context, m *Message) (bool, error) {
	if slices.ContainsFunc(m.Parts, uimessage.IsPending) {
		return true, nil
	}
	n, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
		return r.Continues && r.Message == m.ID && r.State == work.Waiting
	}})
	return n > 0, err
}

// takeAddress gives a reply that continues a message the return address of the message.
func (k *conversation) takeAddress(ctx context.Context, row *replyRow) error {
	w, ok, err := waitingRows.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return err
	}
	row.Asked = &w.Value.Address
	_, err = waitingRows.Delete(ctx, k.store(), w.Key)
	return err
}

// notContinued decides about the return address of a message after one of its continuations has ended before it began.
func (k *conversation) notContinued(ctx context.Context, message string) error {
	w, ok, err := waitingRows.Get(ctx, k.store(), message)
	if err != nil || !ok {
		return err
	}
	r, stored, err := messages.Get(ctx, k.store(), message)
	if err != nil || !stored {
		return errors.Join(err, k.giveUpAddress(ctx, &w.Value, "its message was deleted"))
	}
	m, err := r.Message()
	if err != nil {
		return err
	}
	later, err := k.continuesLater(ctx, &m)
	if err != nil {
		return err
	}
	switch {
	case later:
		return nil
	case uimessage.CallsInLastStep(&m): // the model has not used the results
		return k.giveUpAddress(ctx, &w.Value, "its reply was not continued")
	}
	if _, err := waitingRows.Delete(ctx, k.store(), message); err != nil {
		return err
	}
	return k.deliverText(ctx, &w.Value.Address, m.PlainText())
}

// giveUpAddress delivers an error to the return address of a message.
func (k *conversation) giveUpAddress(ctx context.Context, w *waitingRow, why string) error {
	if _, err := waitingRows.Delete(ctx, k.store(), w.Message); err != nil {
		return err
	}
	text := fmt.Sprintf("The agent %v did not answer: %s.", k.base.Object().ID(), why)
	return k.startDelivery(ctx, &w.Address, Completion{Error: text})
}

// deliverText starts the delivery of a text.
func (k *conversation) deliverText(ctx context.Context, to *returnAddress, text string) error {
	out, err := responseJSON(text)
	if err != nil {
		return err
	}
	c := Completion{Output: out}
	if len(out) > maxOutput {
		c = Completion{Error: fmt.Sprintf("The answer of the agent %v has %d bytes, the limit is %d.", k.base.Object().ID(), len(out), maxOutput)}
	}
	return k.startDelivery(ctx, to, c)
}

// startDelivery starts a fiber that completes the caller's call.
func (k *conversation) startDelivery(ctx context.Context, to *returnAddress, c Completion) error {
	c.Key = to.Key
	_, err := agent.StartFiber(ctx, k.base, deliverKind, delivery{*to, c}, nil)
	return err
}

// deliver is the method of deliverKind.
func (k *conversation) deliver(ctx context.Context, f *agent.Fiber[delivery]) error {
	d := f.Checkpoint()
	err := dohost.Retry(ctx, &deliverRetry, func(ctx context.Context) error {
		if d.Address.over() {
			k.base.Object().Report(ctx, "chat:late", slog.String("request", d.Address.Request), slog.String("caller", d.Address.caller().String()))
			return nil
		}
		err := k.reach(ctx, d.Address.caller(), func(ctx context.Context, caller *conversation) error {
			_, err := caller.complete(ctx, &d.Completion)
			return err
		})
		if errors.Is(err, ErrNoCall) {
			return nil // its message was deleted
		}
		return err
	})
	if err != nil {
		return err
	}
	row, ok, err := replies.Get(ctx, k.store(), d.Address.Request)
	if err != nil || !ok || row.Value.Open() {
		return err
	}
	_, _, err = k.collect(ctx, &row.Value)
	return err
}

// cancelAsked stops a request of another agent. A request that has not arrived is stored as stopped, so that it does nothing
// when it arrives.
func (k *conversation) cancelAsked(ctx context.Context, request string) error {
	row, known, err := replies.Get(ctx, k.store(), request)
	if err != nil {
		return err
	}
	if !known {
		now := time.Now()
		row := replyRow{ID: request, Created: now.UnixMilli(), Collects: true}
		if _, err := k.step(&row, row.ending(StatusAborted), now); err != nil {
			return err
		}
		return k.putReply(ctx, row)
	}
	if row.Value.Open() {
		_, err := k.cancel(ctx, request)
		return err
	}
	open, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
		return r.Asked != nil && r.Asked.Request == request
	}})
	for _, r := range open {
		if err == nil {
			_, err = k.cancel(ctx, r.Key)
		}
	}
	if err != nil {
		return err
	}
	return k.cancelWaiting(ctx, request)
}

// cancelWaiting stops a request whose reply has ended while calls of its message wait. It ends those that wait for other
// agents.
func (k *conversation) cancelWaiting(ctx context.Context, request string) error {
	waiting, err := waitingRows.List(ctx, k.store(), &dohost.Query[waitingRow]{Where: func(w waitingRow) bool {
		return w.Address.Request == request
	}})
	for _, w := range waiting {
		if err != nil {
			break
		}
		if err = k.giveUpAddress(ctx, &w.Value, "the caller has cancelled the request"); err != nil {
			break
		}
		var calls map[string]callRow
		if calls, err = k.callsOf(ctx, w.Value.Message); err != nil {
			break
		}
		err = k.stopAsks(ctx, calls, func(r callRow, f *uimessage.ToolAnswer) error {
			return k.endStored(ctx, r, f, false, false)
		})
	}
	return err
}

// clearAddresses delivers an error for each message that waits, before a conversation is deleted.
func (k *conversation) clearAddresses(ctx context.Context) error {
	all, err := waitingRows.List(ctx, k.store(), nil)
	for _, w := range all {
		if err == nil {
			err = k.giveUpAddress(ctx, &w.Value, "its conversation was deleted")
		}
	}
	return err
}
