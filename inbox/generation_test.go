package inbox_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// gazingModel calls the tool "look" once, and then answers.
type gazingModel struct{}

func (gazingModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		if len(p.Partial.Parts) == 0 {
			yield(chat.ToolInput("call", "look", `{}`), nil)
			return
		}
		yield(chat.TextDelta("t", "seen"), nil)
	}
}

// deskKey is the context key of the desk whose cycle runs.
type deskKey struct{}

// The chunks of a worker in a tool name the generation of the agent that has the call. In a repeated cycle, whose answer with the call is
// recorded, that is the generation of the first attempt, and the response names that of the second one.
func TestWorkerChunksNameTheGenerationOfTheAgent(t *testing.T) {
	for name, interrupted := range map[string]bool{"one attempt": false, "two attempts": true} {
		t.Run(name, func(t *testing.T) {
			chunks := chat.StoredChunks("chunks", nil)
			type writerKey struct{}
			w := &chat.Worker[string, string]{
				Name: "looker", Model: terseModel{time.Second},
				OnChunk: func(ctx context.Context, c chat.Chunk) error {
					return ctx.Value(writerKey{}).(*chat.ChunkWriter[chat.StoredChunk]).Write(ctx, c)
				},
			}
			look := chat.NewTool("look", "", func(ctx context.Context, _ struct{}) (string, error) {
				d := ctx.Value(deskKey{}).(*desk)
				to, err := chunks.Replay(d.Storage(), "of the worker")
				if err != nil {
					return "", err
				}
				return w.Run(context.WithValue(ctx, writerKey{}, to), d, "look")
			}, &chat.ToolOptions[struct{}, string]{Policy: ledger.PolicyIdempotent})
			in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: gazingModel{}, Tools: []chat.Tool{look}, Chunks: chunks})
			generate := in.Generate
			in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
				return generate(d, context.WithValue(ctx, deskKey{}, d), c)
			}
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				send(t, ctx, h, inbox.Message{ID: "1", From: "ada", Request: "r"})
				h.Advance(500 * time.Millisecond)
				if interrupted {
					h.EvictAll()
				}
				h.Advance(time.Minute)
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					m, ok, err := inbox.Reply(ctx, d.Storage(), &messages, inbox.Message{From: "ada", To: "clerk", Request: "r"})
					if !ok || err != nil {
						t.Fatalf("a response: %t, %v", ok, err)
					}
					rows, err := chunks.Rows.List(ctx, d.Storage(), nil)
					var called, answered, parents []string
					for _, row := range rows {
						switch x := row.Value; {
						case x.Parent != "":
							parents = append(parents, x.Parent)
						case x.Kind == chat.ChunkToolCallEnd:
							called = append(called, x.Generation)
						case x.Kind == chat.ChunkText:
							answered = append(answered, x.Generation)
						}
					}
					if len(parents) != 1 || !slices.Equal(parents, called) || !slices.Equal(answered, []string{m.Generation}) || interrupted != (m.Generation != parents[0]) {
						t.Errorf("the parents are %q, the calls are in %q, the texts in %q, the response in %q", parents, called, answered, m.Generation)
					}
					return err
				})
			}, inbox.On(in))
		})
	}
}
