package inbox_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// scribe has the models of an agent with a History. Each message is one word, and a summary has the words of its messages, so the words of a
// prompt are those of the conversation. As a model it summarises.
type scribe struct {
	delay time.Duration         // of a summary
	pace  time.Duration         // of a response
	fail  func(asked int) error // of the model that summarises; may be nil

	mu      sync.Mutex
	prompts []string   // of the model that summarises
	asked   [][]string // the texts of the prompts of the agent
}

func (s *scribe) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts, s.asked = nil, nil
}

// Stream implements [chat.Model].
func (s *scribe) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		prompt := p.Messages[0].PlainText()
		s.mu.Lock()
		s.prompts = append(s.prompts, prompt)
		n := len(s.prompts)
		s.mu.Unlock()
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return
		}
		if s.fail != nil {
			if err := s.fail(n); err != nil {
				yield(chat.Chunk{}, err)
				return
			}
		}
		var words []string
		for line := range strings.Lines(prompt) {
			var m struct{ Role, Text string }
			if err := json.Unmarshal([]byte(line), &m); err != nil || m.Role == "" {
				panic(fmt.Sprintf("%q: %v", line, err))
			}
			words = append(words, strings.Fields(m.Text)...)
		}
		yield(chat.TextDelta("t", strings.Join(words, " ")), nil)
	}
}

// answering is the model of the agent: it answers with the last word and an exclamation mark.
type answering struct{ *scribe }

// Stream implements [chat.Model].
func (s answering) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		var texts []string
		for _, m := range p.Messages {
			texts = append(texts, m.PlainText())
		}
		s.mu.Lock()
		s.asked = append(s.asked, texts)
		s.mu.Unlock()
		select {
		case <-time.After(s.pace):
		case <-ctx.Done():
			return
		}
		yield(chat.TextDelta("t", texts[len(texts)-1]+"!"), nil)
	}
}

// agent returns an agent with summaries.
func (s *scribe) agent(name string, threshold, window int) *inbox.Agent {
	return &inbox.Agent{Name: name, Model: answering{s}, History: &chat.History{Model: s, Threshold: threshold, Window: window}}
}

type deskInbox = inbox.Inbox[desk, inbox.Message, inbox.Response]

// runHistory runs a host with a desk for an agent named clerk.
func runHistory(t *testing.T, a *inbox.Agent, run func(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox)) {
	t.Helper()
	in := inbox.ForMessages[desk](&messages, a)
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) { run(t, ctx, h, in) }, inbox.On(in))
}

// say sends words to the clerk, one after the other, and waits for the response and for a summary after each.
func say(t *testing.T, ctx context.Context, h *dohosttest.Host, words ...string) {
	t.Helper()
	for _, word := range words {
		send(t, ctx, h, fromAda(word)...)
		h.Advance(time.Second)
	}
}

// store inserts n processed messages to the clerk with the words prefix0 and so on, a second apart.
func store(t *testing.T, ctx context.Context, h *dohosttest.Host, prefix string, n int, first time.Time) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		for i := range n {
			at := first.Add(time.Duration(i) * time.Second)
			m := inbox.Message{ID: fmt.Sprint(prefix, i), Content: fmt.Sprint(prefix, i), From: "ada", To: "clerk", Role: chat.RoleUser, Created: at, Processed: at}
			if i%2 == 1 {
				m.From, m.To, m.Role = m.To, m.From, chat.RoleAssistant
			}
			if err := messages.Insert(ctx, d.Storage(), m); err != nil {
				return err
			}
		}
		return nil
	})
}

// wantSummaries compares the numbers of messages of the summaries of the clerk, with the first and the last one, and checks the conversation.
func wantSummaries(t *testing.T, ctx context.Context, h *dohosttest.Host, in *deskInbox, want ...string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		list, err := inbox.Summaries(ctx, d.Storage(), &messages, "clerk")
		var got []string
		for _, s := range list {
			got = append(got, fmt.Sprintf("%d from %s to %.4s", s.Messages, s.First, s.Last)) // the ids of responses are random
		}
		equal(t, "summaries", got, want...)
		return errors.Join(err, checkContext(ctx, d, in, "clerk"))
	})
}

// checkContext derives the context of an agent from the stored rows, in its own way, and compares it with that of the inbox. Each
// message is in exactly one summary or in the window.
func checkContext(ctx context.Context, d *desk, in *deskInbox, name string) error {
	rows, err := messages.List(ctx, d.Storage(), nil)
	if err != nil {
		return err
	}
	var all []inbox.Message
	when := func(m inbox.Message) time.Time {
		if m.Processed.IsZero() {
			return m.Created
		}
		return m.Processed
	}
	for _, row := range rows {
		m := row.Value
		answers := m.Role == chat.RoleAssistant || m.InReplyTo != ""
		waits := m.To != "" && m.Processed.IsZero() && !answers
		if !waits && !m.Expired && (m.To == name && m.InReplyTo == "" || m.From == name && m.Request == "") {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b inbox.Message) int {
		rank := func(m inbox.Message) int {
			if m.Role == chat.RoleAssistant {
				return 1
			}
			return 0
		}
		return cmp.Or(when(a).Compare(when(b)), cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	list, err := inbox.Summaries(ctx, d.Storage(), &messages, name)
	if err != nil {
		return err
	}
	var want []string
	line := func(m inbox.Message) string {
		switch {
		case m.From == name && m.To != name:
			return "assistant: " + m.Content
		case m.Role == chat.RoleSystem:
			return "system: " + m.Content
		}
		return "user: " + m.Content
	}
	for i, s := range list {
		if s.Messages < 1 || s.Messages > len(all) || all[0].ID != s.First || all[s.Messages-1].ID != s.Last {
			var next []string // the ids are random, and a replay compares errors
			for _, m := range all {
				next = append(next, m.Content)
			}
			return fmt.Errorf("summary %d of %s has %d messages, %q, but the next messages are %q", i, name, s.Messages, s.Content, next)
		}
		var words []string
		for _, m := range all[:s.Messages] {
			if text := line(m); strings.HasPrefix(text, "system") {
				want = append(want, text)
			} else {
				words = append(words, m.Content)
			}
		}
		if s.Content != strings.Join(words, " ") {
			return fmt.Errorf("summary %d of %s is %q, its messages are %q", i, name, s.Content, words)
		}
		if len(words) > 0 {
			want = append(want, "user: [Summary] "+s.Content)
		}
		all = all[s.Messages:]
	}
	for _, m := range all {
		want = append(want, line(m))
	}
	built, err := in.Build(d, ctx, nil)
	var got []string
	for _, m := range built {
		got = append(got, string(m.Role)+": "+m.PlainText())
	}
	if !slices.Equal(got, want) {
		return errors.Join(err, fmt.Errorf("the context of %s is\n%q, want\n%q", name, got, want))
	}
	return err
}

// openFibers returns the fibers of the desk that have not ended, or have failed.
func openFibers(ctx context.Context, d *desk) ([]agent.FiberInfo, error) {
	return d.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberPending, agent.FiberRunning, agent.FiberFailed, agent.FiberInterrupted}})
}
