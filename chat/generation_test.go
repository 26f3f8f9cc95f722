package chat_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// parents returns the parents of generations that are not empty, each with its generation, and an error for one of a later chunk.
func parents(ctx context.Context, c *workerAgent, sink *chat.ChunkSink[chat.StoredChunk]) (list []string, err error) {
	rows, err := sink.Rows.List(ctx, c.Storage(), nil)
	for _, row := range rows {
		if x := row.Value; x.Parent != "" {
			list = append(list, x.Generation+" of "+x.Parent)
			if x.Index > 0 {
				err = errors.Join(err, fmt.Errorf("chunk %d of %s has a parent", x.Index, x.Generation))
			}
		}
	}
	return list, err
}

// writerKey is the context key of the writer of a run.
type writerKey struct{}

// storing returns a tool that runs a worker, whose chunks it stores as a generation if that has an id. mark reports whether the tools of the
// worker are in the generation.
func storing(c *workerAgent, sink *chat.ChunkSink[chat.StoredChunk], w *chat.Worker[map[string]string, string], generation string, mark bool) chat.Tool {
	if generation != "" {
		w.OnChunk = func(ctx context.Context, chunk chat.Chunk) error {
			return ctx.Value(writerKey{}).(*chat.ChunkWriter[chat.StoredChunk]).Write(ctx, chunk)
		}
	}
	run := func(ctx context.Context, in map[string]string) (string, error) {
		to, err := sink.Replay(c.Storage(), cmp.Or(generation, "unused"))
		if err != nil {
			return "", err
		}
		if mark {
			ctx = chat.InGeneration(ctx, func() string { return generation })
		}
		return w.Run(context.WithValue(ctx, writerKey{}, to), c, in)
	}
	return chat.NewTool(w.Name, "", run, &chat.ToolOptions[map[string]string, string]{Policy: ledger.PolicyIdempotent, Timeout: -1})
}

// A worker that runs in a tool stores its chunks as a generation that names the one of the calling worker. Between two of them, a worker
// without stored chunks changes nothing.
func TestGenerationNamesItsParent(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable %t", durable), func(t *testing.T) {
			sink := chat.StoredChunks("chunks", nil)
			inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
				worker := func(name string, m chat.Model, tools ...chat.Tool) *chat.Worker[map[string]string, string] {
					return &chat.Worker[map[string]string, string]{Name: name, Model: m, Tools: tools, Durable: durable}
				}
				leaf := storing(c, sink, worker("leaf", inSteps("deep")), "g-leaf", false)
				silent := storing(c, sink, worker("silent", inSteps("hush", []string{"leaf:1"}), leaf), "", false)
				twig := storing(c, sink, worker("twig", inSteps("thin", []string{"silent:1"}), silent), "g-twig", true)
				root := storing(c, sink, worker("root", inSteps("done", []string{"twig:1"}), twig), "g-root", true)
				if _, err := root.Run(ctx, []byte(`{}`)); err != nil {
					t.Fatal(err)
				}
				list, err := parents(ctx, c, sink)
				if want := []string{"g-leaf of g-twig", "g-twig of g-root"}; !slices.Equal(list, want) || err != nil {
					t.Errorf("the parents are %q, want %q, %v", list, want, err)
				}
			})
		})
	}
}

// A source of StreamTo is in the generation of the stream. A replay and a continuation elsewhere keep the stored parent, and another chunk is
// a conflict.
func TestGenerationKeepsItsParent(t *testing.T) {
	sink := chat.StoredChunks("chunks", nil)
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		var inner context.Context
		outer, err := sink.Continue(ctx, c.Storage(), "outer")
		if err != nil {
			t.Fatal(err)
		}
		_, err = chat.StreamTo(ctx, outer, func(ctx context.Context) iter.Seq2[chat.Chunk, error] {
			inner = ctx
			return words(nil, "a")(ctx)
		})
		if err != nil {
			t.Fatal(err)
		}
		values := withValues{ctx, inner}
		write := func(ctx context.Context, generation string, chunks ...chat.Chunk) error {
			w, err := sink.Replay(c.Storage(), generation)
			for _, chunk := range chunks {
				err = errors.Join(err, w.Write(ctx, chunk))
			}
			return err
		}
		a, b := chat.TextDelta("t", "a"), chat.TextDelta("t", "b")
		finish, _ := chat.NewChunk("finish", nil)
		elsewhere := chat.InGeneration(ctx, func() string { return "third" })
		err = errors.Join(write(values, "g", a, b), write(values, "ended", finish), write(ctx, "top", a),
			write(elsewhere, "g", a, b), write(ctx, "g", a, b), write(ctx, "ended", finish))
		if err != nil {
			t.Error(err)
		}
		if err := write(ctx, "g", b); !errors.Is(err, chat.ErrChunkConflict) {
			t.Errorf("another chunk: %v", err)
		}
		if _, err := sink.Continue(ctx, c.Storage(), "ended"); !errors.Is(err, chat.ErrGenerationFinished) {
			t.Errorf("a generation that has ended: %v", err)
		}
		list, err := parents(ctx, c, sink)
		if got := strings.Join(list, ", "); got != "ended of outer, g of outer" || err != nil {
			t.Errorf("the parents are %q, %v", got, err)
		}
	})
}

// withValues is a context that holds the turn, with the values of another one.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}
