package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
)

// A stored chunk has a kind, also in its JSON. The text of a generation is that of the kind text.
func TestChunkIsStoredWithItsKind(t *testing.T) {
	kinds := map[string]string{
		"start": "other", "start-step": "other", "finish-step": "other", "message-metadata": "other", "data-weather": "other", "file": "other",
		"text-start": "other", "text-delta": "text", "text-end": "other",
		"reasoning-start": "thinking", "reasoning-delta": "thinking", "reasoning-end": "thinking",
		"tool-input-start": "tool-call-start", "tool-input-delta": "tool-call-args", "tool-input-available": "tool-call-end",
		"tool-input-error": "tool-call-end", "tool-output-available": "other", "tool-output-error": "other",
	}
	sink := chat.StoredChunks("kinds", nil)
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		w, err := sink.Continue(ctx, c.Storage(), "g")
		if err != nil {
			t.Fatal(err)
		}
		text, err := chat.StreamTo(ctx, w, func(context.Context) iter.Seq2[chat.Chunk, error] {
			return func(yield func(chat.Chunk, error) bool) {
				for kind := range kinds {
					chunk, err := chat.NewChunk(kind, map[string]any{"delta": kind})
					if !yield(chunk, err) {
						return
					}
				}
			}
		})
		if err != nil || text != "text-delta" || w.Text() != text {
			t.Errorf("the text is %q, %v", text, err)
		}
		rows, err := sink.Read(ctx, c.Storage(), "g")
		if err != nil || len(rows) != len(kinds)+1 {
			t.Fatalf("%d chunks, %v", len(rows), err)
		}
		kinds["finish"] = "other"
		for _, row := range rows {
			var chunk struct{ Type string }
			raw, err := json.Marshal(row.Value)
			if err == nil {
				err = json.Unmarshal(row.Value.Chunk, &chunk)
			}
			if want := kinds[chunk.Type]; string(row.Value.Kind) != want || !strings.Contains(string(raw), fmt.Sprintf(`"kind":%q`, want)) || err != nil {
				t.Errorf("the chunk %s has the kind %q, want %q, %v", raw, row.Value.Kind, want, err)
			}
		}
	})
}
