package cluster

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// guide is a chat agent that asks another one, whose name is the text of the message after "ask ".
type guide struct{ *chat.Agent[struct{}] }

const guides dohost.Namespace[guide] = "guide"

func (g *guide) reply(ctx context.Context, r *chat.Reply) error {
	list, err := r.Messages(ctx, 1)
	if err != nil {
		return err
	}
	name, asks := strings.CutPrefix(list[0].PlainText(), "ask ")
	o := &chat.AgentToolOptions{Timeout: time.Hour, To: func(context.Context, json.RawMessage) (string, error) { return name, nil }}
	return chat.Answer(ctx, r, guideModel{asks}, &chat.AnswerOptions{Tools: []chat.Tool{chat.AgentTool(guides, "ask", "Asks a guide.", o)}})
}

// guideModel makes one call, or answers.
type guideModel struct{ asks bool }

// Stream implements [chat.Model].
func (m guideModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				yield(chat.TextDelta("t", "heard "+string(part.Member("output"))+part.Text("errorText")), nil)
				return
			}
		}
		if m.asks {
			yield(chat.ToolInput("call", "ask", `{"message":"the way"}`), nil)
			return
		}
		yield(chat.TextDelta("t", "left"), nil)
	}
}

// TestAgentAsksAgentOfAnotherNode has chat agents on two nodes. The answer to the request is lost, and before the caller repeats it, a third node
// has taken over the cell of the asked agent.
func TestAgentAsksAgentOfAnotherNode(t *testing.T) {
	var logs [cellsOfCalls]logtest.Log
	a, b, c := startCalling(t, "a"), startCalling(t, "b"), startCalling(t, "c")
	runs := atomic.Int64{}
	class := chat.Bind(guides, func(_ context.Context, a *chat.Agent[struct{}]) (*guide, error) { return &guide{a}, nil }, &chat.Handlers[guide, struct{}]{
		Reply: (*guide).reply,
		OnAsked: func(*guide, context.Context, chat.Asked) error {
			runs.Add(1)
			return nil
		},
		Agent: agent.Handlers[guide, struct{}]{Options: agent.Options{KeepAlive: 200 * time.Millisecond}},
	})
	asking := a.openClasses(t, &logs[0], 0, class)
	b.openClasses(t, &logs[1], 1, class)
	knows(map[string]string{"a": a.URL, "b": b.URL}, []string{"a", "b", ""}, a, b)
	taken, opened := atomic.Bool{}, make(chan struct{})
	cut := cutAfter(func() {
		if taken.CompareAndSwap(false, true) {
			defer close(opened)
			c.openClasses(t, &logs[1], 1, class)
			knows(map[string]string{"a": a.URL, "c": c.URL}, []string{"a", "c", ""}, a, c)
		}
	})
	b.around.Store(&cut)
	named := func(cell int) string {
		for i := 0; ; i++ {
			if name := strings.Repeat("x", i+1); CellOf(dohost.ID{Class: string(guides), Name: name}, cellsOfCalls) == cell {
				return name
			}
		}
	}
	text := ""
	err := guides.Get(asking, named(0)).Do(t.Context(), func(ctx context.Context, g *guide) error {
		_, err := chat.Ask(ctx, g, []chat.Message{chat.Text("u", chat.RoleUser, "ask "+named(1))}, &chat.AskOptions{ID: "one"})
		for err == nil && !strings.Contains(text, "heard") {
			if err = dohost.Sleep(ctx, 20*time.Millisecond); err != nil {
				break
			}
			var list []chat.Message
			if list, err = chat.Messages(ctx, g, 0); err == nil && len(list) > 1 {
				text = list[1].PlainText()
			}
		}
		return err
	})
	if taken.Load() {
		<-opened // the answer of b may be faster
	}
	if err != nil || text != `heard {"response":"left"}` || !taken.Load() || runs.Load() != 1 {
		t.Errorf("%q, %v; taken over: %t, %d requests accepted", text, err, taken.Load(), runs.Load())
	}
}
