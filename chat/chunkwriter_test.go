package chat_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// writer returns a writer that continues the generation "g".
func writer(t *testing.T, ctx context.Context, c *workerAgent) *chat.ChunkWriter[line] {
	t.Helper()
	w, err := lineSink.Continue(ctx, c.Storage(), "g")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestChunkWriterAfterRollback writes with a writer of a Transaction that was rolled back, and of one that was not.
func TestChunkWriterAfterRollback(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		w, back := writer(t, ctx, c), errors.New("back")
		for _, text := range []string{"a", "b"} {
			err := dohost.Transaction(ctx, func(ctx context.Context) error { return w.Write(ctx, chat.TextDelta("t", text)) })
			if err != nil {
				t.Error(err)
			}
		}
		err := dohost.Transaction(ctx, func(ctx context.Context) error {
			return errors.Join(w.Write(ctx, chat.TextDelta("t", "lost")), w.Write(ctx, chat.TextDelta("t", "too")), back)
		})
		if !errors.Is(err, back) {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.Write(ctx, chat.TextDelta("t", "c")); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("after a rollback: %v", err)
			}
		}
		if err := writer(t, ctx, c).Write(ctx, chat.TextDelta("t", "c")); err != nil {
			t.Error(err)
		}
		if got := linesOf(t, ctx, c, "g"); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestChunkWriterContinuesNoDeletedGeneration deletes a generation before the first write of a writer that continues it.
func TestChunkWriterContinuesNoDeletedGeneration(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if err := writer(t, ctx, c).Write(ctx, chat.TextDelta("t", "a")); err != nil {
			t.Fatal(err)
		}
		w := writer(t, ctx, c)
		if err := c.Storage().DeleteAll(ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(ctx, chat.TextDelta("t", "b")); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("the index 1 follows none: %v", err)
		}
		if got := linesOf(t, ctx, c, "g"); len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
}

// TestChunkWritersOfOneGeneration writes equal chunks with two writers that continue one generation.
func TestChunkWritersOfOneGeneration(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		a, b := writer(t, ctx, c), writer(t, ctx, c)
		if err := a.Write(ctx, chat.TextDelta("t", "ha")); err != nil {
			t.Error(err)
		}
		if err := b.Write(ctx, chat.TextDelta("t", "ha")); !errors.Is(err, chat.ErrChunkConflict) || b.Text() != "" {
			t.Errorf("%v, text %q", err, b.Text())
		}
	})
}

// TestContinueAfterFinish continues a generation that has ended, one whose rows have no end, and one that ends with an empty chunk.
func TestContinueAfterFinish(t *testing.T) {
	endless := *lineSink
	endless.Row = func(generation string, index int, c chat.Chunk) (line, bool) {
		l, ok := lineSink.Row(generation, index, c)
		return l, ok && c.Type() != "finish"
	}
	stored := chat.StoredChunks("chunks", nil)
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		if _, err := chat.StreamTo(ctx, writer(t, ctx, c), words(nil, "a", "b")); err != nil {
			t.Error(err)
		}
		if _, err := lineSink.Continue(ctx, c.Storage(), "g"); !errors.Is(err, chat.ErrGenerationFinished) || !errors.Is(err, dohost.ErrConflict) {
			t.Errorf("a generation that has ended: %v", err)
		}
		if got := linesOf(t, ctx, c, "g"); !slices.Equal(got, []string{"a", "b", ""}) {
			t.Errorf("%q", got)
		}
		for range 2 {
			w, err := endless.Continue(ctx, c.Storage(), "endless")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := chat.StreamTo(ctx, w, words(nil, "a")); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			w, err := stored.Continue(ctx, c.Storage(), "g")
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(ctx, chat.TextDelta("t", "")); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestStreamToEndsItsSource has a source that waits for its context after its chunk was refused.
func TestStreamToEndsItsSource(t *testing.T) {
	misplaced := *lineSink
	misplaced.Row = func(string, int, chat.Chunk) (line, bool) { return line{ID: "a", Generation: "other"}, true }
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		w, err := misplaced.Continue(ctx, c.Storage(), "g")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		_, err = chat.StreamTo(ctx, w, func(ctx context.Context) iter.Seq2[chat.Chunk, error] {
			return func(yield func(chat.Chunk, error) bool) {
				defer close(ended)
				if yield(chat.TextDelta("t", "a"), nil) {
					<-ctx.Done()
				}
			}
		})
		if !errors.Is(err, dohost.ErrMisuse) {
			t.Error(err)
		}
		err = dohost.Await(ctx, func(ctx context.Context) error {
			select {
			case <-ended:
			case <-time.After(time.Hour):
				t.Error("an hour after StreamTo has returned, its source still runs")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestChunkIndexOfTheLast reads the index of the last chunk, which a continued generation follows.
func TestChunkIndexOfTheLast(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		want := func(generation string, index int) {
			t.Helper()
			if got, err := lineSink.Last(ctx, c.Storage(), generation); got != index || err != nil {
				t.Errorf("%q: %d, %v, want %d", generation, got, err, index)
			}
		}
		want("g", -1)
		for i := range 3 { // each has a writer of its own, as after an interruption
			if err := writer(t, ctx, c).Write(ctx, chat.TextDelta("t", "a")); err != nil {
				t.Error(err)
			}
			want("g", i)
		}
		want("gg", -1)
		if got, err := lineSink.Last(ctx, c.Storage(), ""); got != -1 || !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("without a generation: %d, %v", got, err)
		}
	})
}
