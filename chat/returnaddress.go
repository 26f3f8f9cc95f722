package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/internal/work"
)

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

// answerAsked starts the delivery of the answer to a request of another agent that ends, in the batch of the end. m is its
// message, or nil, and to the return address. While calls of the message wait, or a continuation is queued, the row of the message keeps the address.
func (k *askedRequests) answerAsked(ctx context.Context, row *replyRow, to *returnAddress, m *Message) error {
	if to == nil {
		return nil
	}
	if row.Outcome == work.Completed && m != nil {
		later, err := k.continuesLater(ctx, m)
		if err != nil {
			return err
		}
		if later {
			return k.keepAddress(ctx, &waitingRow{m.ID, *to})
		}
	}
	c := Completion{}
	switch self := k.object().ID(); row.status() {
	case StatusCompleted:
		text := ""
		if m != nil {
			text = m.PlainText()
		}
		return k.deliverText(ctx, to, text)
	case StatusFailed:
		c.Error = fmt.Sprintf("The agent %v failed: %s", self, row.Public)
	case StatusSkipped:
		c.Error = fmt.Sprintf("The agent %v skipped the request.", self)
	default:
		c.Error = fmt.Sprintf(stoppedReplyText, self)
	}
	return k.startDelivery(ctx, to, c)
}

// stoppedReplyText is the format of the error for an agent whose request was stopped.
const stoppedReplyText = "The reply of the agent %v was stopped."

// keepAddress stores the return address of a message, unless the message was deleted at the end of its reply: see trim.
func (k *askedRequests) keepAddress(ctx context.Context, w *waitingRow) error {
	if _, stored, err := messages.Get(ctx, k.store(), w.Message); err != nil || !stored {
		return errors.Join(err, k.failAddress(ctx, w, deletedText))
	}
	return waitingRows.Put(ctx, k.store(), *w)
}

// continuesLater reports whether calls of a message wait, or a continuation of it is queued.
func (k *askedRequests) continuesLater(ctx context.Context, m *Message) (bool, error) {
	if slices.ContainsFunc(m.Parts, uimessage.IsPending) {
		return true, nil
	}
	n, err := replies.Count(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool {
		return r.Continues && r.Message == m.ID && r.State == work.Waiting
	}})
	return n > 0, err
}

// takeAddress gives a reply that continues a message the return address of the message.
func (k *askedRequests) takeAddress(ctx context.Context, row *replyRow) error {
	w, ok, err := waitingRows.Get(ctx, k.store(), row.Message)
	if err != nil || !ok {
		return err
	}
	row.Asked = &w.Value.Address
	if r, ok, err := messages.Get(ctx, k.store(), row.Message); err == nil && ok {
		m, err := r.Message()
		if err != nil {
			return err
		}
		row.Asked.addResults(&m)
	}
	_, err = waitingRows.Delete(ctx, k.store(), w.Key)
	return err
}

// notContinued decides about the return address of a message after one of its continuations has ended before it began.
func (k *askedRequests) notContinued(ctx context.Context, message string) error {
	w, ok, err := waitingRows.Get(ctx, k.store(), message)
	if err != nil || !ok {
		return err
	}
	r, stored, err := messages.Get(ctx, k.store(), message)
	if err != nil || !stored {
		return errors.Join(err, k.failAddress(ctx, &w.Value, deletedText))
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
		return k.failAddress(ctx, &w.Value, "its reply was not continued")
	}
	if _, err := waitingRows.Delete(ctx, k.store(), message); err != nil {
		return err
	}
	return k.deliverText(ctx, &w.Value.Address, m.PlainText())
}

// failAddress delivers an error to the return address of a message.
func (k *askedRequests) failAddress(ctx context.Context, w *waitingRow, why string) error {
	if _, err := waitingRows.Delete(ctx, k.store(), w.Message); err != nil {
		return err
	}
	text := fmt.Sprintf("The agent %v did not answer: %s.", k.object().ID(), why)
	return k.startDelivery(ctx, &w.Address, Completion{Error: text})
}

// deletedText is the reason in the error for the return address of a deleted message.
const deletedText = "its message was deleted"

// failDeletedAddresses delivers an error to the return address of each deleted message, in the batch of the deletion: another message with
// the id of a deleted message must not become the answer.
func (k *askedRequests) failDeletedAddresses(ctx context.Context) error {
	all, err := waitingRows.List(ctx, k.store(), nil)
	for _, w := range all {
		if err != nil {
			break
		}
		var stored bool
		if _, stored, err = messages.Get(ctx, k.store(), w.Value.Message); err == nil && !stored {
			err = k.failAddress(ctx, &w.Value, deletedText)
		}
	}
	return err
}

// withoutRequests returns the ids of messages that a client removes, without the messages of requests of other agents that have no
// answer yet.
func (k *askedRequests) withoutRequests(ctx context.Context, rows map[string]messageRow, ids []string) ([]string, error) {
	if !slices.ContainsFunc(ids, func(id string) bool { return rows[id].Asked }) {
		return ids, nil
	}
	open := map[string]bool{}
	being, err := replies.List(ctx, k.store(), &dohost.Query[replyRow]{Index: "open", Where: func(r replyRow) bool { return r.Asked != nil }})
	for _, r := range being {
		open[r.Value.Asked.Request] = true
	}
	waiting, failed := waitingRows.List(ctx, k.store(), nil)
	for _, w := range waiting {
		if !slices.Contains(ids, w.Value.Message) { // its deletion ends the request
			open[w.Value.Address.Request] = true
		}
	}
	return slices.DeleteFunc(ids, func(id string) bool { return open[id] }), errors.Join(err, failed)
}

// keepAnswer returns a client's message, with the stored texts if the message has a return address: it becomes the answer to another
// agent.
func (k *askedRequests) keepAnswer(ctx context.Context, row messageRow, m Message) (Message, error) {
	if row.Role != RoleAssistant {
		return m, nil
	}
	if _, waits, err := waitingRows.Get(ctx, k.store(), row.ID); err != nil || !waits {
		return m, err
	}
	stored, err := row.Message()
	return uimessage.CallsOf(&stored, &m), err
}

// clearAddresses delivers an error for each message that waits, before a conversation is deleted.
func (k *askedRequests) clearAddresses(ctx context.Context) error {
	all, err := waitingRows.List(ctx, k.store(), nil)
	for _, w := range all {
		if err == nil {
			err = k.failAddress(ctx, &w.Value, "its conversation was deleted")
		}
	}
	return err
}
