package inbox_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// desk is an agent with inboxes.
type desk struct{ *agent.Agent[struct{}] }

const desks dohost.Namespace[desk] = "desk"

var messages = inbox.Messages("messages", nil)

// answerModel is a model that answers after a second with the texts of the messages since its last answer. It records the prompts
// outside of the agents.
type answerModel struct {
	fail func(asked int) error // may be nil

	mu    sync.Mutex
	asked []string // the texts of the messages of each prompt
}

func (m *answerModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	var texts, since []string
	for _, msg := range p.Messages {
		text := string(msg.Role[0]) + ":" + msg.PlainText()
		texts, since = append(texts, text), append(since, msg.PlainText())
		if msg.Role == chat.RoleAssistant {
			since = nil
		}
	}
	m.mu.Lock()
	m.asked = append(m.asked, strings.Join(texts, " "))
	asked := len(m.asked)
	m.mu.Unlock()
	return func(yield func(chat.Chunk, error) bool) {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			yield(chat.Chunk{}, context.Cause(ctx))
			return
		}
		if m.fail != nil {
			if err := m.fail(asked); err != nil {
				yield(chat.Chunk{}, err)
				return
			}
		}
		for i, text := range since {
			if i > 0 {
				text = "+" + text
			}
			if !yield(chat.TextDelta("t", text), nil) {
				return
			}
		}
	}
}

// took returns the prompts so far, and forgets them.
func (m *answerModel) took() (asked []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked, m.asked = m.asked, nil
	return asked
}

func deskClass(entries ...agent.Entry[desk]) dohost.Class {
	return agent.Bind(desks, func(_ context.Context, a *agent.Agent[struct{}]) (*desk, error) { return &desk{a}, nil }, nil, entries...)
}

// runDesk runs a host with the class of desks with inboxes.
func runDesk(t *testing.T, run func(t *testing.T, ctx context.Context, h *dohosttest.Host), entries ...agent.Entry[desk]) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{deskClass(entries...)}},
		func(t *testing.T, h *dohosttest.Host) { run(t, t.Context(), h) })
}

// inDesk runs fn with the turn of the desk.
func inDesk(t *testing.T, ctx context.Context, h *dohosttest.Host, fn func(ctx context.Context, d *desk) error) {
	t.Helper()
	if err := desks.Get(h, "a").Do(ctx, fn); err != nil {
		t.Error(err)
	}
}

// send sends messages to the agent "clerk" in one event.
func send(t *testing.T, ctx context.Context, h *dohosttest.Host, list ...inbox.Message) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		for _, m := range list {
			if m.To == "" {
				m.To = "clerk"
			}
			if _, err := inbox.Send(ctx, d.Storage(), &messages, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// fromAda returns messages of a user.
func fromAda(texts ...string) (list []inbox.Message) {
	for _, text := range texts {
		list = append(list, inbox.Message{ID: text, From: "ada", Content: text})
	}
	return list
}

// responses returns the responses in the order of their times, each with its addressee and request.
func responses(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{
			Index: "conversation", Prefix: dohost.KeyOf("clerk"), Where: func(m inbox.Message) bool { return m.Role == chat.RoleAssistant },
		})
		for _, row := range rows {
			m := row.Value
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s to %s %s", m.Content, m.To, m.InReplyTo)))
		}
		return err
	})
	return list
}

// waiting returns the number of messages that wait.
func waiting(t *testing.T, ctx context.Context, h *dohosttest.Host) (n int) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) (err error) {
		n, err = messages.Count(ctx, d.Storage(), &dohost.Query[inbox.Message]{Index: "pending"})
		return err
	})
	return n
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
