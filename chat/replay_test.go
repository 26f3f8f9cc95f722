package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// A replay includes the provider's signatures: the client sends them back.
func TestReplayIncludesSignatures(t *testing.T) {
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		signed := json.RawMessage(`{"p":{"signature":"s"}}`)
		for _, c := range []chat.Chunk{
			chat.ReasoningDelta("1", "h", nil), chat.ReasoningDelta("1", "m", nil), chat.ReasoningDelta("1", "", signed),
			chat.ReasoningEnd("1"), chat.TextDelta("2", "one"),
		} {
			if err := r.Send(ctx, c); err != nil {
				return err
			}
		}
		return dohost.Sleep(ctx, time.Minute)
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "think", nil)
		r.waitBegin(t, "one")
		late := newReader(h, testID, "late")
		if err := late.connect(ctx); err != nil {
			t.Fatal(err)
		}
		var shown []string
		late.receiveUntil(t, func(f frame) bool {
			if strings.Contains(f.Body, "reasoning-delta") {
				shown = append(shown, f.Body)
			}
			return f.ReplayComplete
		})
		if all := strings.Join(shown, " "); len(shown) != 2 || !strings.Contains(all, `"hm"`) || !strings.Contains(all, `"signature":"s"`) {
			t.Errorf("it was shown %s", all)
		}
		r.close()
		late.close()
	})
}

// toolRecorder is a model that records the tools of its prompts, and calls the first tool, once.
type toolRecorder []chat.ToolSpec

func (m *toolRecorder) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if *m == nil {
			*m = p.Tools
			yield(chat.ToolInput("call", p.Tools[0].Name, ""), nil)
		}
	}
}

// If the server and a client have tools with one name, the server's tool is used.
func TestServerToolWinsOverClientToolOfSameName(t *testing.T) {
	m, ran := new(toolRecorder), 0
	ask := chat.Tool{
		ToolSpec: chat.ToolSpec{Name: "ask", Description: "ours"},
		Run: func(context.Context, json.RawMessage) (any, error) {
			ran++
			return nil, nil
		},
	}
	class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{ask}})
	}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", map[string]any{"clientTools": []any{
			map[string]any{"name": "ask"}, map[string]any{"name": "look"},
		}})
		r.waitEnd(t, "one")
		if len(*m) != 2 || (*m)[0].Description != "ours" || (*m)[1].Name != "look" || ran != 1 {
			t.Errorf("it ran %d times; %+v", ran, *m)
		}
		r.close()
	})
}
