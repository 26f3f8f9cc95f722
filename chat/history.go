package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/summary"
)

const (
	// defaultCutoff is the default of SummarizeOptions.Cutoff.
	defaultCutoff = summary.DefaultThreshold
	// minSummarized is the number of the newest messages that Summarize leaves, and the least that it summarises.
	minSummarized = 20
)

// History shortens the prompts of long conversations: a model summarises the oldest messages, and [Reply.Context] returns the
// summaries in their place. The messages stay in the conversation.
//
// The batch that ends a reply starts a fiber that makes one summary, if too many messages are in no summary. Replies
// never wait for summaries. At most one summary is made per ended reply. See docs/chat.md. An agent of package inbox has other rules:
// see docs/inbox.md.
type History struct {
	// Model writes the summaries; it may be cheaper than the model of the replies. Its limit for the length of an answer must
	// allow for a page of text. It gets no tools. Required.
	Model Model
	// Threshold is the largest number of messages without a summary: when a reply ends and there are more, the fiber begins. Zero
	// means 100.
	Threshold int
	// Window is the number of the newest messages that get no summary. It must be less than Threshold. Zero means half of
	// Threshold.
	Window int
	// Instructions are the system prompt of Model, also for a summary that replaces older summaries, which its prompt contains as
	// lines with the role "summary". Empty means a text that asks for facts, decisions and open questions.
	Instructions string
}

// withDefaults returns a copy with the defaults, or an error for contradicting fields. most is Options.MaxMessages.
func (h *History) withDefaults(most int) (*History, error) {
	if h == nil {
		return nil, nil
	}
	d, err := *h, error(nil)
	d.Threshold, d.Window, err = summary.Limits(h.Threshold, h.Window)
	switch {
	case d.Model == nil:
		return nil, errors.New("chat: History.Model is nil")
	case err != nil:
		return nil, fmt.Errorf("chat: %w", err)
	case most > 0 && most < 2*d.Threshold:
		return nil, fmt.Errorf("chat: Options.MaxMessages is %d: want at least twice History.Threshold, or else messages are deleted before their summary", most)
	}
	return &d, nil
}

// Summary is a summary of consecutive messages of a conversation.
type Summary struct {
	// Content is the text of the model. It is empty if all messages are system messages, which are not summarised.
	Content string
	// First and Last are the ids of the first and the last of the messages.
	First, Last string
	// Messages is the number of the messages, including system messages.
	Messages int
	// Created is the time when the summary was stored.
	Created time.Time
}

// ErrMessagesChanged is the error of [Summarize] if its messages changed while the model answered: a client edited or deleted
// some, or requested a reply between them.
var ErrMessagesChanged = errors.New("chat: the messages have changed while the model summarised them")

// SummarizeOptions tunes Summarize. A nil *SummarizeOptions, and the zero SummarizeOptions, mean the defaults.
type SummarizeOptions struct {
	// Model writes the summary. Nil means the model of [Options].History.
	Model Model
	// Cutoff bounds the length: a summary covers at most Cutoff-20 messages. It must be at least 40. Zero means 100.
	Cutoff int
	// Instructions are the system prompt of the model. Empty means the Instructions of Options.History or, if Model is set,
	// the default.
	Instructions string
}

// Summarize makes a summary of the oldest messages without one, and stores it. It leaves the newest 20 messages of the
// conversation, and takes at most Cutoff-20. It returns nil if there are fewer than 20 such messages. It takes no message that a
// reply is about to answer or continue, no message that has a call without a result, and none after these. A long prompt (more
// than 256 KiB) ends the range earlier, even before 20 messages: the next call of Summarize continues there.
//
// Summarize gives up the turn while the model answers, and waits while the same incarnation makes another summary. So it must not
// be called in a [dohost.Transaction] or a [dohost.Exclusive] section. The summary is in the batch of the caller's next writes.
// After a crash before that, the next Summarize asks the model again.
//
// Summarize calls the model at most once, or twice if there are 8 summaries: before it makes another, one summary replaces the oldest
// four. If the disk is full after an answer, Summarize keeps the answer and waits for space.
//
// Errors: those of the model, and one after 10 minutes without an answer; [ErrMessagesChanged], after which the caller may try
// again; an [*OutputError] for an answer that is empty, was cut off, or has more than 32 KiB; [dohost.ErrMisuse] without a model, or
// for an invalid Cutoff; that of [agent.CheckWrite] in an event of a read-only client.
func Summarize(ctx context.Context, a Ref, o *SummarizeOptions) (*Summary, error) {
	if err := agent.CheckWrite(ctx); err != nil {
		return nil, err
	}
	k, h := a.conv(), History{}
	if o == nil {
		o = &SummarizeOptions{}
	}
	switch def := k.options().History; {
	case o.Model != nil:
		h.Model = o.Model
	case def != nil:
		h = *def
	default:
		return nil, fmt.Errorf("chat: Summarize without a model: %w", dohost.ErrMisuse)
	}
	if o.Instructions != "" {
		h.Instructions = o.Instructions
	}
	cutoff := o.Cutoff
	if cutoff == 0 {
		cutoff = defaultCutoff
	}
	if cutoff < 2*minSummarized {
		return nil, fmt.Errorf("chat: the cutoff of Summarize is %d: want at least %d: %w", cutoff, 2*minSummarized, dohost.ErrMisuse)
	}
	row, err := k.summaries.summarize(ctx, &h, func(messages int) (most, least int) {
		return min(messages-minSummarized, cutoff-minSummarized), minSummarized
	})
	if err != nil || row == nil {
		return nil, err
	}
	return row.summary(), nil
}

// Summaries returns the summaries of a conversation, the oldest first, at most 8. Each begins after the last message of the
// previous one; the first begins at the start of the conversation.
func Summaries(ctx context.Context, a Ref) (list []*Summary, err error) {
	for row, err := range summaries.All(ctx, a.conv().store(), nil) {
		if err != nil {
			return nil, err
		}
		list = append(list, row.Value.summary())
	}
	return list, nil
}

// Context returns the context of the reply, the oldest message first: the summaries before the reply as user messages, which
// begin with "[Summary] ", and the messages after the last summary: the newest limit of them, or all if limit is 0. So without a
// limit each message before the reply is either in one summary or in the result. System messages in the range of a summary are in
// the result in any case, in their order. All other messages count towards the limit, including other system messages and the
// messages that the reply answers. Without summaries, Context returns the result of [Reply.Messages].
//
// The result depends only on the stored messages and summaries.
func (r *Reply) Context(ctx context.Context, limit int) ([]Message, error) {
	first := r.l.row.Place // of the reply and the messages that it answers
	for _, id := range r.l.row.Users {
		m, ok, err := messages.Get(ctx, r.k.store(), id)
		if err != nil {
			return nil, err
		}
		if ok {
			first = min(first, m.Place)
		}
	}
	return r.k.summaries.contextBefore(ctx, first, r.l.row.Place, limit)
}

// Worker returns a worker with the model and the instructions, for a package that keeps its own conversations, such as package inbox. Its
// input is the prompt: a line of JSON for each message, with its role and its text, or for an earlier summary, with the role "summary". It
// asks the model once. An answer that is empty, was cut off, or has more than 32 KiB is an [*OutputError].
func (h *History) Worker(name string) *Worker[string, string] {
	return &Worker[string, string]{
		Name: name, Instructions: cmp.Or(h.Instructions, summary.Instructions), Model: boundedModel{h.Model}, MaxSteps: 1,
	}
}
