package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// storedMessages reads and changes the stored messages of a conversation.
type storedMessages struct {
	*shared
	conv      *conversation
	calls     *toolCalls
	asked     *askedRequests
	sent      *sentRequests
	summaries *summarizer
	sweeper   *sweeper
}

// messagesJSON returns the conversation as JSON, between two texts. It may be large; rows already contain the JSON of
// the wire, so nothing is parsed.
func (k *storedMessages) messagesJSON(ctx context.Context, before, after string) ([]byte, error) {
	all := append([]byte(before), '[')
	sep := ""
	for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{}) {
		if err != nil {
			return nil, err
		}
		all = append(append(all, sep...), row.Value.JSON...)
		sep = ","
	}
	return append(append(all, ']'), after...), nil
}

// window is how many bytes of messages are read before they are written to a client; the last message may exceed it.
const window = 256 << 10

// writeTranscript writes the conversation in windows, and waits for the client after each. So it needs the memory of
// one window, however long the conversation is. The conversation may change while it waits: each window has the
// messages that are stored when it is read.
func (k *storedMessages) writeTranscript(ctx context.Context, w http.ResponseWriter) error {
	out := http.NewResponseController(w)
	sep := "["
	for after := dohost.Cursor(""); ; {
		all, done := []byte(nil), true
		for row, err := range messages.All(ctx, k.store(), &dohost.Query[messageRow]{After: after}) {
			if err != nil {
				return err
			}
			all = append(append(all, sep...), row.Value.JSON...)
			sep, after = ",", row.Cursor
			if len(all) >= window {
				done = false
				break
			}
		}
		if done && sep == "[" {
			all = append(all, '[')
		}
		if done {
			all = append(all, ']')
		}
		if _, err := w.Write(all); err != nil || done {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// checkSize returns an error if the messages exceed MaxBytes and are larger than before.
//
// Errors: a [*dohost.LimitError].
func (k *storedMessages) checkSize(ctx context.Context, before uint64) error {
	x, err := extent(ctx, k.store())
	if most := k.options().MaxBytes; err == nil && most > 0 && x.Bytes > max(before, uint64(most)) {
		err = &dohost.LimitError{Subject: "conversation", Size: int(x.Bytes), Limit: most}
	}
	return err
}

// stored returns the messages that a query selects.
func (k *storedMessages) stored(ctx context.Context, q *dohost.Query[messageRow]) ([]Message, error) {
	var all []Message
	for row, err := range messages.All(ctx, k.store(), q) {
		if err != nil {
			return nil, err
		}
		m, err := row.Value.Message()
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// newest returns the last of the messages that a query selects, in order.
func (k *storedMessages) newest(ctx context.Context, q dohost.Query[messageRow]) ([]Message, error) {
	q.Reverse = true
	all, err := k.stored(ctx, &q)
	slices.Reverse(all)
	return all, err
}

// put stores a message, unless it is stored unchanged. r is the reply that ends with it; the zero replyRow means none.
func (k *storedMessages) put(ctx context.Context, m Message, r *replyRow) error {
	old, _, err := messages.Get(ctx, k.store(), m.ID)
	if err != nil {
		return err
	}
	old.Work = cmp.Or(old.Work, r.Work)
	_, err = k.putReplacing(ctx, old, m, r.Place, r.ID)
	return err
}

// putReplacing stores a message in place of old, if that has a place, and reports whether that changes anything. A
// place of 0 means the present place, or the end. by is the request whose reply ends with the message: see syncCalls.
func (k *storedMessages) putReplacing(
	ctx context.Context, old messageRow, m Message, place uint64, by string,
) (changed bool, err error) {
	if err := uimessage.Check(&m); err != nil {
		return false, err
	}
	m = uimessage.Sanitize(m)
	if k.class.sanitize != nil {
		id := m.ID
		m = k.class.sanitize(k.owner, m)
		if err := uimessage.Check(&m); err != nil {
			return false, fmt.Errorf("chat: Sanitize of message %q: %w", id, err)
		}
		if m.ID != id {
			return false, fmt.Errorf("chat: Sanitize changed the id of message %q to %q", id, m.ID)
		}
	}
	row := messageRow{ID: m.ID, Role: m.Role, Place: place, Work: cmp.Or(old.Work, randomText()), Asked: old.Asked}
	if row.JSON, err = fitRow(m); err != nil {
		return false, err
	}
	if rawjson.Nesting(row.JSON) > maxMessageNesting {
		return false, fmt.Errorf("chat: message %q: %w", m.ID, errNesting)
	}
	if place == 0 {
		row.Place = old.Place
	}
	if row.Place == 0 {
		if row.Place, err = messages.End(ctx, k.store()); err != nil {
			return false, err
		}
	}
	if old.Place == row.Place && string(old.JSON) == string(row.JSON) {
		return false, nil
	}
	k.summaries.messageChanged(row.Place)
	if old.Place != 0 {
		k.summaries.messageChanged(old.Place)
	}
	return true, dohost.Transaction(ctx, func(ctx context.Context) error {
		written, err := messages.Put(ctx, k.store(), old, row)
		switch {
		case err != nil || !hasCalls(&row) && !hasCalls(&old):
			return err
		case !written:
			m.Parts = nil
		}
		return k.calls.syncCalls(ctx, &m, by)
	})
}

// maxMessage bounds the JSON of a stored message, in bytes: a row takes nearly 2 MiB.
const maxMessage = 1_800_000

// fitRow returns the JSON of a message, shortened if it does not fit into a row: see [uimessage.Shrink].
//
// Errors: a [*dohost.LimitError] if the message is still too large; one for a message that is nested too deeply.
func fitRow(m Message) (json.RawMessage, error) {
	raw, err := uimessage.Shrink(m, maxMessage)
	if err == nil && len(raw) > maxMessage {
		return nil, &dohost.LimitError{Subject: "message", Size: len(raw), Limit: maxMessage}
	}
	return raw, err
}

// deleteMessages deletes messages.
func (k *storedMessages) deleteMessages(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		m, ok, err := messages.Get(ctx, k.store(), id)
		if err != nil {
			return err
		}
		if ok {
			k.summaries.messageChanged(m.Place)
		}
	}
	calls, err := messages.Delete(ctx, k.store(), ids...)
	return k.messagesDeleted(ctx, calls, err)
}

// messagesDeleted continues a deletion, in its batch: it delivers an error to the return addresses of the messages, and cancels the tasks of
// their calls.
func (k *storedMessages) messagesDeleted(ctx context.Context, calls deletedCalls, err error) error {
	if err == nil {
		err = k.asked.failDeletedAddresses(ctx)
	}
	for _, r := range calls.tasks {
		if err == nil {
			err = k.sent.cancelAsk(ctx, &r)
		}
	}
	if err != nil || calls.budget > 0 {
		return err
	}
	return k.sweeper.sweepLater(ctx)
}

// trim deletes the oldest messages beyond MaxMessages.
func (k *storedMessages) trim(ctx context.Context) error {
	being, ok, err := k.conv.running(ctx)
	if err != nil || ok && being.Continues { // the reply needs its message and the rows of its calls, and trims at its end
		return err
	}
	return k.trimNow(ctx)
}

// trimNow is trim, also while a reply continues a message.
func (k *storedMessages) trimNow(ctx context.Context) error {
	most := k.options().MaxMessages
	if most == 0 {
		return nil
	}
	return k.trimTo(ctx, uint64(most))
}

func (k *storedMessages) trimTo(ctx context.Context, keep uint64) error {
	if keep == 0 {
		k.summaries.messageChanged(0)
	}
	calls, err := messages.Trim(ctx, k.store(), keep)
	return k.messagesDeleted(ctx, calls, err)
}

// placeAfter returns the place of a reply to some messages: after the last of them, and after other replies to it.
func (k *storedMessages) placeAfter(ctx context.Context, users []string) (uint64, error) {
	if len(users) == 0 {
		return messages.End(ctx, k.store())
	}
	of, ok, err := messages.Get(ctx, k.store(), users[len(users)-1])
	if err != nil {
		return 0, err
	}
	if !ok {
		return messages.End(ctx, k.store())
	}
	before, _, err := messages.Last(ctx, k.store(), dohost.Query[messageRow]{
		Start: dohost.KeyOf(of.Place), End: dohost.KeyOf(nextPlace(of.Place)),
	})
	return before.Place + 1, err
}
