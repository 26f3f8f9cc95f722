package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// relay is a model that calls agent tools. The text "b: text" makes it call the tool b with the text, and " & " separates two
// calls. It answers any other text after a second. then, if set, is the text of a second step.
type relay struct {
	name string
	then string
	wait time.Duration // zero means a second
	log  *asked
}

// asked are the last messages of the prompts of a test, which EveryPoint forgets.
type asked struct{ answerModel }

func (m *relay) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	text := p.Messages[len(p.Messages)-1].PlainText()
	var results []string
	for _, part := range p.Partial.Parts {
		if part.Text("toolCallId") != "" {
			var out struct{ Response string }
			_ = json.Unmarshal(part.Member("output"), &out)
			results = append(results, out.Response+part.Text("errorText"))
		}
	}
	if m.log != nil && len(results) == 0 {
		m.log.mu.Lock()
		m.log.asked = append(m.log.asked, m.name+" got "+text)
		m.log.mu.Unlock()
	}
	calls := strings.Split(text, " & ")
	first := 0
	if m.then != "" && strings.Contains(text, ":") && len(results) >= len(calls) && len(results) < len(calls)+1 {
		first, calls = len(calls), append(calls, m.then)
	}
	return func(yield func(chat.Chunk, error) bool) {
		switch {
		case !strings.Contains(text, ":"):
			select {
			case <-time.After(max(m.wait, time.Second)):
				yield(chat.TextDelta("t", m.name+" says "+text), nil)
			case <-ctx.Done():
				yield(chat.Chunk{}, context.Cause(ctx))
			}
			return
		case len(results) >= len(calls):
			yield(chat.TextDelta("t", fmt.Sprintf("%s heard (%s)", m.name, strings.Join(results, ", "))), nil)
			return
		}
		for i, c := range calls[first:] {
			tool, message, _ := strings.Cut(c, ": ")
			in, _ := json.Marshal(map[string]string{"message": message})
			if !yield(chat.ToolInput(fmt.Sprint("call-", first+i), tool, string(in)), nil) {
				return
			}
		}
	}
}

// team returns the inboxes of agents that may all ask each other, and their names.
func team(set func(a *inbox.Agent, tools []inbox.AgentTool), names ...string) (entries []agent.Entry[desk]) {
	var tools []inbox.AgentTool
	for _, name := range names {
		tools = append(tools, (&inbox.Agent{Name: name, Description: "asks " + name}).Tool(&messages))
	}
	for _, name := range names {
		a := &inbox.Agent{Name: name, Model: &relay{name: name}, Agents: append([]inbox.AgentTool(nil), tools...)}
		if set != nil {
			set(a, a.Agents)
		}
		entries = append(entries, inbox.On(inbox.ForMessages[desk](&messages, a)))
	}
	return entries
}

// requests returns the requests of agents in an object, each with its path and its state.
func requests(t *testing.T, ctx context.Context, h *dohosttest.Host, object string) (list []inbox.Message) {
	t.Helper()
	err := desks.Get(h, object).Do(ctx, func(ctx context.Context, d *desk) error {
		rows, err := messages.List(ctx, d.Storage(), &dohost.Query[inbox.Message]{Where: func(m inbox.Message) bool { return len(m.Path) > 0 }})
		for _, row := range rows {
			list = append(list, row.Value)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return list
}

// replyTo returns the text of the response to a request of ada.
func replyTo(t *testing.T, ctx context.Context, h *dohosttest.Host, to, request string) (text string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		m, _, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: to, Request: request})
		text = m.Content
		return err
	})
	return text
}

// TestAgentTool has agents that ask each other. The asked agents answer in the names of the whole chain.
func TestAgentTool(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		requests   int
	}{
		"one":             {"b: hello", "a heard (b says hello)", 1},
		"two calls":       {"b: x & c: y", "a heard (b says x, c says y)", 2},
		"one agent twice": {"b: x & b: x", "a heard (b says x, b says x)", 2},
		"in the middle":   {"b: c: hi", "a heard (b heard (c says hi))", 2},
		"five":            {"b: c: d: e: f: hi", "a heard (b heard (c heard (d heard (e heard (f says hi)))))", 5},
		"six": {"b: c: d: e: f: g: hi", "a heard (b heard (c heard (d heard (e heard (f heard (no agent was asked: 6 agents would ask " +
			"each other, the limit is 5: a of desk/a → b of desk/a → c of desk/a → d of desk/a → e of desk/a → f of desk/a))))))", 5},
		"a cycle": {"b: a: hi", "a heard (b heard (the agent a of desk/a was not asked: it waits for this answer: " +
			"a of desk/a → b of desk/a → a of desk/a))", 1},
		"itself": {"a: hi", "a heard (the agent a of desk/a was not asked: it waits for this answer: a of desk/a → a of desk/a)", 0},
	} {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				send(t, ctx, h, inbox.Message{ID: "1", From: "ada", To: "a", Content: c.text, Request: "r1"})
				h.Advance(10 * time.Second) // much less than the time limit of a call
				if got := replyTo(t, ctx, h, "a", "r1"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
				all := requests(t, ctx, h, "a")
				for _, m := range all {
					from := m.Path[len(m.Path)-1]
					if m.Role != chat.RoleUser || from != (inbox.Address{Object: "desk/a", Agent: m.From}) || m.Request == "" || m.Processed.IsZero() {
						t.Errorf("the request %+v", m)
					}
				}
				if n := waiting(t, ctx, h); len(all) != c.requests || n != 0 {
					t.Errorf("%d requests, want %d; %d messages wait", len(all), c.requests, n)
				}
				wantNoRecords(t, ctx, h)
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					for op, err := range ledger.All(ctx, d.Object()) {
						if err != nil || !strings.HasSuffix(op.Kind, "/model step") {
							t.Errorf("the ledger has %+v, %v", op, err)
						}
					}
					return nil
				})
			}, team(nil, "a", "b", "c", "d", "e", "f", "g")...)
		})
	}
}

// TestAgentToolDescription compares the tools that the model gets.
func TestAgentToolDescription(t *testing.T) {
	var specs []chat.ToolSpec
	m := &relay{name: "a"}
	a := &inbox.Agent{Name: "a", Model: specModel{m, &specs}, Tools: []chat.Tool{{ToolSpec: chat.ToolSpec{Name: "own"}, Run: func(context.Context, json.RawMessage) (any, error) { return nil, nil }}}}
	a.Agents = []inbox.AgentTool{(&inbox.Agent{Name: "b", Description: "Knows all."}).Tool(&messages)}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", From: "ada", To: "a", Content: "hi"})
		h.Advance(5 * time.Second)
		if len(specs) != 2 || specs[0].Name != "own" || specs[1].Name != "b" || specs[1].Description != "Knows all." ||
			!strings.Contains(string(specs[1].Parameters), `"required":["message"]`) {
			t.Errorf("%+v", specs)
		}
	}, inbox.On(inbox.ForMessages[desk](&messages, a)))
	if n := len(a.Kinds()); n != 2 { // of the tool "own" and of the answers
		t.Errorf("%d kinds", n)
	}
}

// specModel records the tools of the last prompt.
type specModel struct {
	chat.Model
	specs *[]chat.ToolSpec
}

func (m specModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	*m.specs = p.Tools
	return m.Model.Stream(ctx, p)
}
