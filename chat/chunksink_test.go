package chat_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// line is a row of a collection of chunks that is not StoredChunk. Its index "order" has the place of a chunk.
type line struct {
	ID         string
	Generation string
	Index      int
	Text       string
}

var lines = dohost.Collection[line]{
	Name: "lines",
	Key:  func(l line) string { return l.ID },
	Indexes: []dohost.Index[line]{{Name: "order", Of: func(l line) dohost.Key {
		return dohost.KeyOf(l.Generation) + dohost.KeyOf(l.Index)
	}}},
}

// lineSink stores texts and the end, and drops all other chunks.
var lineSink = &chat.ChunkSink[line]{Rows: &lines, Index: "order", Row: func(generation string, index int, c chat.Chunk) (line, bool) {
	l := line{ID: fmt.Sprintf("%s-%d", generation, index), Generation: generation, Index: index, Text: c.Text("delta")}
	return l, c.Type() == "text-delta" || c.Type() == "finish"
}}

// words yields a text-delta for each word, with a reasoning before the first one, and then err if it is not nil.
func words(err error, list ...string) func(context.Context) iter.Seq2[chat.Chunk, error] {
	return source(func(yield func(chat.Chunk, error) bool) {
		if !yield(chat.ReasoningDelta("r", "hm", nil), nil) {
			return
		}
		for _, word := range list {
			if !yield(chat.TextDelta("t", word), nil) {
				return
			}
		}
		if err != nil {
			yield(chat.Chunk{}, err)
		}
	})
}

// source returns a source that needs no context.
func source(chunks iter.Seq2[chat.Chunk, error]) func(context.Context) iter.Seq2[chat.Chunk, error] {
	return func(context.Context) iter.Seq2[chat.Chunk, error] { return chunks }
}

// linesOf returns the texts of a generation. Their indexes must be 0, 1, 2, …
func linesOf(t *testing.T, ctx context.Context, c *workerAgent, generation string) (texts []string) {
	t.Helper()
	rows, err := lineSink.Read(ctx, c.Storage(), generation)
	if err != nil {
		t.Error(err)
	}
	for i, row := range rows {
		if row.Value.Index != i {
			t.Errorf("row %d has the index %d", i, row.Value.Index)
		}
		texts = append(texts, row.Value.Text)
	}
	return texts
}

func TestStreamTo(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for _, generation := range []string{"one", "two"} {
			w, err := lineSink.Continue(ctx, c.Storage(), generation)
			if err != nil {
				t.Fatal(err)
			}
			text, err := chat.StreamTo(ctx, w, words(nil, "a", "b", generation))
			if text != "ab"+generation || err != nil || w.Next() != 4 {
				t.Errorf("%q, %v, %d", text, err, w.Next())
			}
		}
		if got := linesOf(t, ctx, c, "one"); !slices.Equal(got, []string{"a", "b", "one", ""}) {
			t.Errorf("%q", got)
		}
	})
}

// TestStreamToAfterAnError continues a generation after the chunks before an error.
func TestStreamToAfterAnError(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		broken := errors.New("broken")
		w, err := lineSink.Continue(ctx, c.Storage(), "g")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := chat.StreamTo(ctx, w, words(broken, "a", "b")); text != "ab" || !errors.Is(err, broken) {
			t.Errorf("%q, %v", text, err)
		}
		if w, err = lineSink.Continue(ctx, c.Storage(), "g"); err != nil {
			t.Fatal(err)
		}
		if text, err := chat.StreamTo(ctx, w, words(nil, "c")); text != "c" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if got := linesOf(t, ctx, c, "g"); !slices.Equal(got, []string{"a", "b", "c", ""}) {
			t.Errorf("%q", got)
		}
	})
}

// TestStreamToReplay writes a stored generation again: the same, a longer and another one.
func TestStreamToReplay(t *testing.T) {
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		replay := func(list ...string) error {
			w, err := lineSink.Replay(c.Storage(), "g")
			if err != nil {
				t.Fatal(err)
			}
			_, err = chat.StreamTo(ctx, w, words(nil, list...))
			return err
		}
		for range 2 {
			if err := replay("a", "b"); err != nil {
				t.Error(err)
			}
		}
		for _, other := range [][]string{{"a", "c"}, {"a", "b", "c"}, {"a"}} {
			if err := replay(other...); !errors.Is(err, chat.ErrChunkConflict) || !errors.Is(err, dohost.ErrConflict) {
				t.Errorf("%q: %v", other, err)
			}
		}
		if got := linesOf(t, ctx, c, "g"); !slices.Equal(got, []string{"a", "b", ""}) {
			t.Errorf("%q", got)
		}
	})
}

// TestStreamToStoredChunks stores rows with a time, which differs from the stored one after decoding, and rows of StoredChunks.
func TestStreamToStoredChunks(t *testing.T) {
	type timed struct {
		Generation string
		Index      int
		At         time.Time
		Tags       map[string]int
	}
	at := time.Now().In(time.FixedZone("far", 3600))
	times := &chat.ChunkSink[timed]{
		Rows: &dohost.Collection[timed]{Name: "timed", Key: func(r timed) string {
			return string(dohost.KeyOf(r.Generation) + dohost.KeyOf(r.Index))
		}},
		Row: func(g string, i int, _ chat.Chunk) (timed, bool) {
			return timed{g, i, at, map[string]int{"a": 1, "b": 2, "c": 3}}, true
		},
	}
	stored := chat.StoredChunks("chunks", nil)
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		for range 3 {
			w, err := times.Replay(c.Storage(), "g")
			w2, err2 := stored.Replay(c.Storage(), "g")
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			_, err = chat.StreamTo(ctx, w, words(nil, "a", "b"))
			_, err2 = chat.StreamTo(ctx, w2, words(nil, "a", "b"))
			if err != nil || err2 != nil {
				t.Error(err, err2)
			}
		}
		rows, err := stored.Read(ctx, c.Storage(), "g")
		if err != nil || len(rows) != 4 || string(rows[1].Value.Chunk) != `{"delta":"a","id":"t","type":"text-delta"}` {
			t.Errorf("%+v, %v", rows, err)
		}
	})
}

func TestStreamToMistakes(t *testing.T) {
	misplaced := *lineSink
	misplaced.Row = func(string, int, chat.Chunk) (line, bool) { return line{ID: "a", Generation: "other"}, true }
	inWorkerAgent(t, func(t *testing.T, ctx context.Context, c *workerAgent) {
		s := c.Storage()
		for _, to := range []*chat.ChunkSink[line]{nil, {}, {Rows: &lines}, {Rows: &lines, Row: lineSink.Row, Index: "none"}} {
			if _, err := to.Continue(ctx, s, "g"); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("%+v: %v", to, err)
			}
		}
		if _, err := lineSink.Continue(ctx, s, ""); !errors.Is(err, dohost.ErrMisuse) {
			t.Errorf("no generation: %v", err)
		}
		w, err := misplaced.Continue(ctx, s, "g")
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(ctx, chat.TextDelta("t", "a")); !errors.Is(err, dohost.ErrMisuse) || !strings.Contains(err.Error(), `chunk 0 of "g"`) {
			t.Errorf("a row without its place: %v", err)
		}
		if n, err := lines.Count(ctx, s, nil); n != 0 || err != nil {
			t.Errorf("%d rows, %v", n, err)
		}
		if w, err = lineSink.Continue(ctx, s, "g"); err != nil {
			t.Fatal(err)
		}
		var panicked *chat.ModelPanic
		_, err = chat.StreamTo(ctx, w, source(func(func(chat.Chunk, error) bool) { panic("no chunks") }))
		if !errors.As(err, &panicked) {
			t.Errorf("a source that panics: %v", err)
		}
	})
}

const writing agent.FiberKind[string] = "writing"

// chunkReader has the rows that readers saw, outside of the agents.
type chunkReader struct {
	seen []string
	err  error
}

// TestStreamToAtEveryPoint writes ten words in a fiber that continues the generation after each interruption. Readers read the
// rows in between: no row that a reader saw changes or disappears.
func TestStreamToAtEveryPoint(t *testing.T) {
	r := &chunkReader{}
	class := agent.Bind(workerAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*workerAgent, error) { return &workerAgent{a}, nil },
		&agent.Handlers[workerAgent, struct{}]{Options: agent.Options{MaxInterruptions: -1}},
		agent.OnFiber(writing, func(c *workerAgent, ctx context.Context, f *agent.Fiber[string]) error {
			w, err := lineSink.Continue(ctx, c.Storage(), "g")
			switch {
			case errors.Is(err, chat.ErrGenerationFinished):
				return nil
			case err != nil:
				return err
			}
			_, err = chat.StreamTo(ctx, w, func(ctx context.Context) iter.Seq2[chat.Chunk, error] { return countedWords(ctx, w.Next()) })
			return err
		}, &agent.KindOptions{MaxRetries: 1000, KeepCompleted: -1, KeepFailed: -1}))
	s := pointtest.Scenario(dohosttest.Scenario{
		Classes: []dohost.Class{class},
		Reset:   func() { r.seen, r.err = nil, nil },
		Places:  pointtest.Places(),
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
				return workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
					_, err := agent.StartFiber(ctx, c, writing, "", &agent.FiberOptions{Key: "the"})
					return err
				})
			})
			for range 20 {
				h.Advance(time.Second)
				r.read(ctx, h)
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			r.read(ctx, h)
			if len(r.seen) != 11 {
				return fmt.Errorf("%d rows: %q", len(r.seen), r.seen)
			}
			return r.err
		},
	}, 12, 25)
	dohosttest.EveryPoint(t, s)
}

// countedWords yields the words from a number to 9, one each 100 ms.
func countedWords(ctx context.Context, from int) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for i := from; i < 10; i++ {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			if !yield(chat.TextDelta("t", fmt.Sprint(i)), nil) {
				return
			}
		}
	}
}

// read compares the rows with those that it saw before.
func (r *chunkReader) read(ctx context.Context, h *dohosttest.Host) {
	var now []string
	err := workerAgents.Get(h, "7").Do(ctx, func(ctx context.Context, c *workerAgent) error {
		now = nil
		rows, err := lineSink.Read(ctx, c.Storage(), "g")
		for i, row := range rows {
			if row.Value.Index != i || i < 10 && row.Value.Text != fmt.Sprint(i) {
				r.err = fmt.Errorf("row %d is %+v", i, row.Value)
			}
			now = append(now, row.Value.Text)
		}
		return err
	})
	if err != nil {
		return // the end of an incarnation
	}
	if len(now) < len(r.seen) || !slices.Equal(now[:len(r.seen)], r.seen) {
		r.err = fmt.Errorf("a reader saw %q, and then %q", r.seen, now)
	}
	r.seen = now
}
