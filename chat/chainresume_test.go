package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// slowModel is a stepsModel that thinks for half a second.
type slowModel struct{ *stepsModel }

// Stream implements [chat.Model].
func (m slowModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		select {
		case <-time.After(500 * time.Millisecond):
			m.stepsModel.Stream(ctx, p)(yield)
		case <-ctx.Done():
			yield(chat.Chunk{}, context.Cause(ctx))
		}
	}
}

// A chain of four calls, one in each step, is interrupted after two: while the model answers, several times, since a recovery may be
// interrupted, too. The two results are used as they are stored, and the other two calls run once.
func TestChainResumesAfterTwoOfFour(t *testing.T) {
	for name, ends := range map[string]int{"one end": 1, "three ends": 3} {
		t.Run(name, func(t *testing.T) {
			runs := map[string]int{}
			m := slowModel{&stepsModel{steps: [][]string{{"a"}, {"b"}, {"c"}, {"d"}}}}
			tool := func(name string) chat.Tool {
				return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
					runs[name]++
					return name, dohost.Sleep(ctx, time.Second)
				}}
			}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{tool("a"), tool("b"), tool("c"), tool("d")}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(3250 * time.Millisecond)
				for range ends {
					h.Evict(testID, dohost.EndFence)
					h.Advance(100 * time.Millisecond)
				}
				if want := map[string]int{"a": 1, "b": 1}; !maps.Equal(runs, want) {
					t.Fatalf("before the end of the third answer: %v, want %v", runs, want)
				}
				h.Advance(time.Minute)
				answer, states := answerOf(t, ctx, h)
				if want := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}; !maps.Equal(runs, want) || answer.PlainText() != "done " {
					t.Errorf("%v, want %v; %q", runs, want, answer.PlainText())
				}
				for _, name := range []string{"a", "b", "c", "d"} {
					if got := resultOf(answer, name); got != `output-available "`+name+`"` || states[name] != "completed" {
						t.Errorf("%s: %s, %s", name, got, states[name])
					}
				}
			})
		})
	}
}
