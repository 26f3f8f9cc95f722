package inbox

import (
	"cmp"
	"context"

	"github.com/dohost/dohost/chat"
)

// inGeneration returns the context of an attempt: workers in the tools of the agent name the generation of the attempt as the parent of their
// chunks. Until the attempt has one, that is the generation of the attempt before, which has the chunks of the recorded answers.
func (a *Agent) inGeneration(ctx context.Context, w *chunkWriter) (context.Context, error) {
	if a.Chunks == nil {
		return ctx, nil
	}
	before, _, err := generations.Get(ctx, w.store, w.place)
	return chat.InGeneration(ctx, func() string { return cmp.Or(w.generation, before.Value.Generation) }), err
}
