package inbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/summary"
)

// An agent with a History has summaries instead of the oldest messages of its conversation. Invariants:
//
//   - The conversation index has the order of a conversation. The place of a message is the cursor of its entry, a function of
//     the stored row. So neither a clock nor the order of events takes part when a reader derives the context.
//   - The summaries of a conversation are numbered. Each covers the places after the To of the summary before it, up to its own To. The To of
//     the last one is summaryState.Covered; it is empty without summaries. The messages after Covered are the window. So each message
//     that has a place is in exactly one summary or in the window, and the context is a function of the stored rows.
//   - The messages at the places of a summary are those that the model has summarised. Each write of a row with a place in the
//     covered range, before or after the write, deletes the summary of that place and those after it, in the same batch (see
//     rowWritten): an update, a deletion, and an insertion, such as an import, or a response whose clock was set back. So the
//     context has no text of a deleted message, and no message is inserted into a range without being seen.
//   - A summary is stored only if Covered is still where its range begins, and the messages of the range, read again in
//     the same batch, make the same prompt.
//   - A message may be in the conversations of two agents. Each has summaries of its own. All agents of the class see all writes, also
//     those without a History: the summaries that an agent has made while it had one stay correct.
//
// A write to the covered range costs the deletion of at most summary.MaxRows rows, and any other write one read.

// history is the conversation of an agent.
type history struct {
	messages *dohost.Collection[Message]
	agent    string
}

// key begins the keys of the rows of the conversation.
func (h *history) key() dohost.Key { return dohost.KeyOf(h.messages.Name) + nameKey(h.agent) }

// summaryRow is a summary of consecutive messages.
type summaryRow struct {
	Of          string // the key of the conversation
	Number      uint64 // from 1; that of the last one for a summary of summaries
	To          dohost.Cursor
	First, Last string // ids of the first and the last message
	Messages    int    // number
	Content     string // empty if all messages are of the system: the context has those themselves
	Created     int64
}

var summaries = dohost.Collection[summaryRow]{
	Name: "dohost.inbox.summaries",
	Key:  func(r summaryRow) string { return r.Of + string(dohost.KeyOf(r.Number)) },
}

func (r *summaryRow) summary() *chat.Summary {
	return &chat.Summary{Content: r.Content, First: r.First, Last: r.Last, Messages: r.Messages, Created: time.UnixMilli(r.Created)}
}

// summaryState is the state of the summaries of a conversation. It is small, since each write of a message reads it.
type summaryState struct {
	Of       string        // the key of the conversation
	Covered  dohost.Cursor `msgpack:",omitempty"` // the place of the last message that has a summary
	Fiber    string        `msgpack:",omitempty"` // the id of the last fiber
	Failures uint64        `msgpack:",omitempty"` // of the present summary: see summary.Charge
	Until    int64         `msgpack:",omitempty"` // the end of a pause in Unix milliseconds
	Awaited  int64         `msgpack:",omitempty"` // the time of the first cycle that was postponed for the present summary, in Unix milliseconds
}

var summaryStates = dohost.Collection[summaryState]{
	Name: "dohost.inbox.summarystates",
	Key:  func(x summaryState) string { return x.Of },
}

// state returns the state of the summaries.
func (h *history) state(ctx context.Context, s *dohost.Storage) (summaryState, error) {
	row, _, err := summaryStates.Get(ctx, s, string(h.key()))
	row.Value.Of = string(h.key())
	return row.Value, err
}

// rows returns the summaries, the oldest first.
func (h *history) rows(ctx context.Context, s *dohost.Storage) (list []summaryRow, err error) {
	rows, err := summaries.List(ctx, s, &dohost.Query[summaryRow]{Prefix: h.key()})
	for _, row := range rows {
		list = append(list, row.Value)
	}
	return list, err
}

// rowWritten keeps the summaries correct: it deletes the summaries of a place that the written row has or had, and the summaries after it.
func (h *history) rowWritten(ctx context.Context, of agent.Handle, w *dohost.RowWrite) error {
	if w.Collection != h.messages.Name {
		return nil
	}
	var first dohost.Cursor
	for _, places := range []func(string) iter.Seq2[dohost.Key, dohost.Cursor]{w.FormerPlaces, w.Places} {
		for key, place := range places(conversationIndex) {
			if strings.HasPrefix(string(key), string(nameKey(h.agent))) && (first == "" || place < first) {
				first = place
			}
		}
	}
	if first == "" {
		return nil
	}
	x, err := h.state(ctx, of.Storage())
	if err != nil || first > x.Covered {
		return err
	}
	return h.uncover(ctx, of.Storage(), x, first)
}

// uncover deletes the summaries of a place and of the places after it.
func (h *history) uncover(ctx context.Context, s *dohost.Storage, x summaryState, place dohost.Cursor) error {
	x.Covered = ""
	list, err := h.rows(ctx, s)
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.To < place {
			x.Covered = r.To
			continue
		}
		if _, err := summaries.Delete(ctx, s, summaries.Key(r)); err != nil {
			return err
		}
	}
	return summaryStates.Put(ctx, s, x)
}

// context returns the context of a cycle, without the messages of the cycle: the summaries, and the messages without one. The messages of the
// system in the range of a summary are before it.
func (h *history) context(ctx context.Context, s *dohost.Storage) (list []chat.Message, err error) {
	rows, err := h.rows(ctx, s)
	if err != nil {
		return nil, err
	}
	var after dohost.Cursor
	for _, r := range rows {
		system := &dohost.Query[Message]{Index: systemIndex, Prefix: nameKey(h.agent), After: after}
		for row, err := range h.messages.All(ctx, s, system) {
			if err != nil {
				return nil, err
			}
			if row.Cursor > r.To {
				break
			}
			list = append(list, row.Value.inPrompt(h.agent))
		}
		if r.Content != "" {
			list = append(list, chat.Text(fmt.Sprintf("summary_%d", r.Number), chat.RoleUser, summary.Mark+r.Content))
		}
		after = r.To
	}
	window := &dohost.Query[Message]{Index: conversationIndex, Prefix: nameKey(h.agent), After: after}
	for row, err := range h.messages.All(ctx, s, window) {
		if err != nil {
			return nil, err
		}
		list = append(list, row.Value.inPrompt(h.agent))
	}
	return list, nil
}

// Summaries returns the summaries of the conversation of the agent with a name, the oldest first, at most 8: see Agent.History. Each begins after the last
// message of the one before, and the first at the start of the conversation.
//
// Errors: the errors of the collection.
func Summaries(ctx context.Context, s *dohost.Storage, messages *dohost.Collection[Message], name string) (list []*chat.Summary, err error) {
	h := &history{messages, name}
	rows, err := h.rows(ctx, s)
	for i := range rows {
		list = append(list, rows[i].summary())
	}
	return list, err
}

// Summarize makes one summary of the oldest messages without one, also if there are not too many: of at most History.Threshold messages, and of
// none that Agent.History excludes as the newest. It returns nil if there are no others. If there are 8 summaries already, it first asks the
// model for one summary in place of the oldest ones. of is the object that has the collection.
//
// It gives up the turn while the model answers, and it does not wait for the automatic summaries: of two summaries of the same messages, the
// second is discarded. The summary is in the batch of the caller's next writes.
//
// Errors: the errors of the model, and one after 10 minutes without an answer; [chat.ErrMessagesChanged], after which the caller may try
// again; a [*chat.OutputError] for an answer that is empty, was cut off, or has more than 32 KiB; a [*chat.BudgetError];
// [dohost.ErrMisuse] for an Agent without a History; the error of [agent.CheckWrite] in an event of a read-only client.
func (a *Agent) Summarize(ctx context.Context, of Ref, messages *dohost.Collection[Message]) (*chat.Summary, error) {
	if err := agent.CheckWrite(ctx); err != nil {
		return nil, err
	}
	if err := a.check(messages); err != nil || a.History == nil {
		return nil, errors.Join(fmt.Errorf("inbox: Summarize of an agent without a valid History: %w", dohost.ErrMisuse), err)
	}
	row, err := a.summarize(ctx, of, &history{messages, a.Name}, true)
	if err != nil || row == nil {
		return nil, err
	}
	return row.summary(), nil
}
