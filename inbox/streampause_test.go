package inbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// lookingModel streams a text and a call of a tool, and after the result another text with the result.
type lookingModel struct{ tool string }

func (m lookingModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				yield(chat.TextDelta("t2", "it says "+string(part.Member("output"))), nil)
				return
			}
		}
		_ = yield(chat.TextDelta("t1", "I look: "), nil) && yield(chat.ToolInput("call", m.tool, `{"message":"x"}`), nil)
	}
}

// TestToolPausesStream has a tool that takes ten seconds, in the middle of a generation whose chunks are stored: a tool of the ledger, and another
// agent. Until the result there are the chunks before it, and the last is the call. Then the stream continues in the same generation, with the next index.
func TestToolPausesStream(t *testing.T) {
	slow := chat.Tool{ToolSpec: chat.ToolSpec{Name: "slow"}, Policy: ledger.PolicyIdempotent, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		return "done", dohost.Sleep(ctx, 10*time.Second)
	}}
	for tool, result := range map[string]string{"slow": `"done"`, "b": `{"response":"b says x"}`} {
		t.Run(tool, func(t *testing.T) {
			chunks := chat.StoredChunks("chunks", nil)
			b := &inbox.Agent{Name: "b", Model: &relay{name: "b", wait: 10 * time.Second}}
			a := &inbox.Agent{
				Name: "a", Model: lookingModel{tool}, Tools: []chat.Tool{slow}, Agents: []inbox.AgentTool{b.Tool(&messages)}, Chunks: chunks,
			}
			stored := func(ctx context.Context, h *dohosttest.Host) (list []string) {
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
					rows, err := chunks.Rows.List(ctx, d.Storage(), nil)
					for i, row := range rows {
						if row.Value.Index != i || row.Value.Generation != rows[0].Value.Generation {
							t.Errorf("chunk %d has the index %d of %q", i, row.Value.Index, row.Value.Generation)
						}
						var c struct{ Type, Delta string }
						if err := json.Unmarshal(row.Value.Chunk, &c); err != nil {
							return err
						}
						list = append(list, c.Type+" "+c.Delta)
					}
					return err
				})
				return list
			}
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				askA(t, ctx, h, "look")
				for range 3 { // within ten seconds
					h.Advance(3 * time.Second)
					equal(t, "chunks before the result", stored(ctx, h), "text-delta I look: ", "tool-input-available ")
				}
				h.Advance(5 * time.Second)
				equal(t, "chunks after it", stored(ctx, h), "text-delta I look: ", "tool-input-available ", "text-delta it says "+result, "finish ")
				if got := replyTo(t, ctx, h, "a", "r1"); got != fmt.Sprintf("it says %s", result) {
					t.Errorf("the response %q", got)
				}
			}, inbox.On(inbox.ForMessages[desk](&messages, a)), inbox.On(inbox.ForMessages[desk](&messages, b)))
		})
	}
}
