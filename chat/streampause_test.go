package chat_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// lookups are the operations of the tool of streamPaused.
var lookups = ledger.Kind[string, string]{
	Name: "lookup", Same: ledger.Whole[string], Policy: ledger.PolicyIdempotent, Unknown: func(ledger.ID, string) string { return "unknown" },
}

// streamPaused streams a text and a call of a tool, and after the result another text with the result. The tool is an operation of the ledger,
// in a task of the object, and takes ten seconds. ran counts its runs.
func streamPaused(ctx context.Context, c *workerAgent, chunks *chat.ChunkSink[chat.StoredChunk], ran *int) (string, error) {
	asked, results := make(chan string, 1), make(chan string, 1)
	err := c.Object().Go(ctx, "tool", func(ctx context.Context) error {
		input, ok, err := dohost.Recv(ctx, asked)
		if err != nil || !ok {
			return err
		}
		result, err := ledger.Do(ctx, c.Object(), &lookups, input, func(ctx context.Context, _ ledger.ID) (string, error) {
			*ran++
			return "done", dohost.Sleep(ctx, 10*time.Second)
		})
		if err == nil {
			results <- result
		}
		return err
	})
	if err != nil {
		return "", err
	}
	w, err := chunks.Replay(c.Storage(), "g")
	if err != nil {
		return "", err
	}
	return chat.StreamTo(ctx, w, func(ctx context.Context) iter.Seq2[chat.Chunk, error] {
		return func(yield func(chat.Chunk, error) bool) {
			if !yield(chat.TextDelta("t1", "I look: "), nil) || !yield(chat.ToolInput("call", "lookup", `{"of":"x"}`), nil) {
				return
			}
			asked <- "x"
			select {
			case result := <-results:
				yield(chat.TextDelta("t2", "it says "+result), nil)
			case <-ctx.Done():
				yield(chat.Chunk{}, context.Cause(ctx))
			}
		}
	})
}

// TestToolPausesStreamTo has a source of the program that waits for a tool of ten seconds. Until the result there are the chunks before it, and
// the last is the call; other events of the object run. Then the stream continues with the next index. If the process ends during the tool,
// a second run replays the stored chunks, waits for the same operation, and continues after them.
func TestToolPausesStreamTo(t *testing.T) {
	for name, interrupted := range map[string]bool{"in one incarnation": false, "after a kill": true} {
		t.Run(name, func(t *testing.T) { pauseStream(t, interrupted) })
	}
}

func pauseStream(t *testing.T, interrupted bool) {
	chunks := chat.StoredChunks("chunks", nil)
	class := agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(&lookups)}})
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		text, ran := "", 0
		stream := func() *dohosttest.Client {
			return h.Client(func(ctx context.Context) error {
				return workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) (err error) {
					text, err = streamPaused(ctx, c, chunks, &ran)
					return err
				})
			})
		}
		stored := func(want ...string) {
			t.Helper()
			var got []string
			err := workerAgents.Get(h, "7").Do(t.Context(), func(ctx context.Context, c *workerAgent) error {
				rows, err := chunks.Read(ctx, c.Storage(), "g")
				for i, row := range rows {
					var chunk struct{ Type, Delta string }
					if err := json.Unmarshal(row.Value.Chunk, &chunk); err != nil || row.Value.Index != i {
						t.Errorf("chunk %d has the index %d, %v", i, row.Value.Index, err)
					}
					got = append(got, chunk.Type+" "+chunk.Delta)
				}
				return err
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("the chunks %q, want %q, %v", got, want, err)
			}
		}
		client := stream()
		for range 3 { // within ten seconds
			h.Advance(3 * time.Second)
			stored("text-delta I look: ", "tool-input-available ")
		}
		runs := 1
		if interrupted {
			h.Kill()
			if err := client.Wait(); err == nil {
				t.Error("the stream has survived its process")
			}
			client, runs = stream(), 2
			h.Advance(9 * time.Second)
			stored("text-delta I look: ", "tool-input-available ")
		}
		h.Advance(5 * time.Second)
		stored("text-delta I look: ", "tool-input-available ", "text-delta it says done", "finish ")
		if err := client.Wait(); err != nil || text != "I look: it says done" || ran != runs {
			t.Errorf("%q after %d runs of the tool, %v", text, ran, err)
		}
	})
}
