package chat

import (
	"context"
	"errors"

	"github.com/dohost/dohost"
)

// The generations of workers that run in tools form a tree: the first chunk of a generation names the generation of the model that has called
// the tool. Rules:
//
//   - The tree is in the context: the code that stores the chunks of a run adds its generation (InGeneration), and the tools of the run
//     have that context. A run without stored chunks adds none, so the runs in its tools name the generation around it.
//   - The parent is stored with the chunk of index 0 alone, in the same batch, and does not change: a writer that continues or replays a
//     generation elsewhere keeps the stored one.

// enclosingGeneration is a generation in a context, and those around it.
type enclosingGeneration struct {
	current func() string
	outer   *enclosingGeneration
}

// generationKey is the context key of the innermost enclosingGeneration.
type generationKey struct{}

// InGeneration returns a context for a model's run, such as the ctx of [Worker.Run], if the caller stores the run's chunks as a generation.
// Generations that begin in this context, for example by workers in the tools of the run, have that generation as the Parent of their first
// [StoredChunk]. current returns the id of the generation, or "" until it has one. It is called with the turn of the object that stores the
// chunks. [StreamTo] calls InGeneration for its source, and an agent of package inbox with Chunks for its tools.
func InGeneration(ctx context.Context, current func() string) context.Context {
	outer, _ := ctx.Value(generationKey{}).(*enclosingGeneration)
	return context.WithValue(ctx, generationKey{}, &enclosingGeneration{current, outer})
}

// parentOf returns the innermost generation of a context that is not the given one, or "".
func parentOf(ctx context.Context, generation string) string {
	g, _ := ctx.Value(generationKey{}).(*enclosingGeneration)
	for ; g != nil; g = g.outer {
		if id := g.current(); id != "" && id != generation {
			return id
		}
	}
	return ""
}

// setParent sets the parent of a row that is a [StoredChunk].
func setParent[T any](row *T, parent string) {
	if c, ok := any(row).(*StoredChunk); ok {
		c.Parent = parent
	}
}

// ensure is Ensure of a row, with the parent of the stored one.
func (to *ChunkSink[T]) ensure(ctx context.Context, s *dohost.Storage, row T) error {
	_, err := to.Rows.Ensure(ctx, s, row)
	if _, ok := any(row).(StoredChunk); !ok || !errors.Is(err, dohost.ErrConflict) {
		return err
	}
	stored, _, getErr := to.Rows.Get(ctx, s, to.Rows.Key(row))
	if getErr != nil {
		return getErr
	}
	setParent(&row, any(stored.Value).(StoredChunk).Parent)
	_, err = to.Rows.Ensure(ctx, s, row)
	return err
}
