package chat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// TestWorkerOnChunk stores the types of all chunks in the object of a worker, and ends a run with an error.
func TestWorkerOnChunk(t *testing.T) {
	type key struct{}
	failed := errors.New("no space")
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable %t", durable), func(t *testing.T) {
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				var keys []string
				w := &chat.Worker[string, string]{
					Name: "w", Durable: durable, Model: inSteps("done", []string{"a:1"}),
					Tools: []chat.Tool{keyTool("a", ledger.PolicyIdempotent, &keys, nil)},
					OnChunk: func(ctx context.Context, chunk chat.Chunk) error {
						if ctx.Value(key{}) != "mine" {
							return failed
						}
						types, _, err := dohost.Get[[]string](ctx, c.Storage(), "types")
						return errors.Join(err, dohost.Put(ctx, c.Storage(), "types", append(types, chunk.Type())))
					},
				}
				if _, err := w.Run(ctx, c, "go"); !errors.Is(err, failed) {
					t.Errorf("a run whose OnChunk fails: %v", err)
				}
				if _, err := w.Run(context.WithValue(ctx, key{}, "mine"), c, "go"); err != nil {
					t.Error(err)
				}
				types, _, err := dohost.Get[[]string](ctx, c.Storage(), "types")
				if want := []string{"tool-input-available", "text-delta"}; !slices.Equal(types, want) || err != nil {
					t.Errorf("%q, %v; want %q", types, err, want)
				}
			})
		})
	}
}
