package randwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/randtest"
)

// finish is the last chunk of a generation that has ended.
const finish = "finish"

// hidden is the id of texts whose chunks are not stored. In lists of words, those of such a chunk begin with it.
const hidden = "hidden"

const byPlace = "place"

type chunkSink = chat.ChunkSink[chat.StoredChunk]

// sinks are a sink whose keys are the places of the chunks, and one with an index.
var sinks = []*chunkSink{
	withoutHidden(chat.StoredChunks("keys", nil)),
	withoutHidden(&chunkSink{
		Index: byPlace,
		Rows: &dohost.Collection[chat.StoredChunk]{
			Name: "indexed",
			Key:  func(c chat.StoredChunk) string { return fmt.Sprint(c.Index, " of ", c.Generation) },
			Indexes: []dohost.Index[chat.StoredChunk]{{Name: byPlace, Of: func(c chat.StoredChunk) dohost.Key {
				return dohost.KeyOf(c.Generation) + dohost.KeyOf(c.Index)
			}}},
		},
		Row: chat.StoredChunks("keys", nil).Row,
	}),
}

func withoutHidden(s *chunkSink) *chunkSink {
	row := s.Row
	s.Row = func(generation string, index int, c chat.Chunk) (chat.StoredChunk, bool) {
		if c.Text("id") == hidden {
			return chat.StoredChunk{}, false
		}
		return row(generation, index, c)
	}
	return s
}

// generations are the names of the generations. Each is the beginning of the next one.
var generations = []string{"g", "g1", "g10"}

// stream is a generation of a sink.
type stream struct {
	*chunkSink
	generation string
}

func (g stream) String() string { return g.Rows.Name + "/" + g.generation }

// streamAt returns a stream that k selects.
func streamAt(k int) stream { return stream{sinks[k%2], generations[k/2%3]} }

// chunk executes an instruction for a generation.
func (x *execution) chunk(ctx context.Context, m *model, in Instr) error {
	g, s := streamAt(in.K), x.st.Storage()
	before := m.Streams[g.String()]
	if in.Op == Last {
		last, err := g.Last(ctx, s, g.generation)
		if err == nil && last != len(before)-1 {
			x.w.Faultf("%s: Last of %v is %d, want %d", x.name, g, last, len(before)-1)
		}
		return err
	}
	if in.Op == Stream && in.N%3 == 0 {
		w, err := g.Replay(s, g.generation)
		if err != nil {
			return err
		}
		return x.stream(ctx, in, g, w)
	}
	w, err := g.Continue(ctx, s, g.generation)
	if ended := slices.Contains(before, finish); ended || err != nil {
		if errors.Is(err, chat.ErrGenerationFinished) == ended && (err == nil || ended) {
			return nil
		}
		if randtest.Ended(ctx, err) {
			return err
		}
		x.w.Faultf("%s: Continue of %v with %q: %v", x.name, g, before, err)
		return nil
	}
	if w.Next() != len(before) {
		x.w.Faultf("%s: Continue of %v with %q is at %d", x.name, g, before, w.Next())
		return nil
	}
	switch in.Op {
	case Stream:
		return x.stream(ctx, in, g, w)
	case Write:
		return x.write(ctx, m, in, g, w)
	}
	return x.twoWriters(ctx, m, g, w)
}

// words returns the words of a generation from an index on. The one at the position other is another one, if other is not negative. n selects
// the words whose chunks are not stored.
func words(g stream, from, count, other, n int) (list []string) {
	for i := from; i < from+count; i++ {
		if n>>i&1 == 1 {
			list = append(list, fmt.Sprint(hidden, i, " "))
		}
		word := fmt.Sprint(g, ".", i, " ")
		if i == other {
			word = fmt.Sprint("other.", i, " ")
		}
		list = append(list, word)
	}
	return list
}

// chunkOf returns the chunk of a word.
func chunkOf(word string) chat.Chunk {
	if word == finish {
		c, err := chat.NewChunk(finish, nil)
		if err != nil {
			panic(err)
		}
		return c
	}
	if strings.HasPrefix(word, hidden) {
		return chat.TextDelta(hidden, word)
	}
	return chat.TextDelta("t", word)
}

// storedOf returns the words of a list whose chunks are stored.
func storedOf(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(word string) bool { return strings.HasPrefix(word, hidden) })
}

// write writes chunks in a transaction. After a rollback the writer must not be used.
func (x *execution) write(ctx context.Context, m *model, in Instr, g stream, w *chat.ChunkWriter[chat.StoredChunk]) error {
	undo, list := in.N%2 == 1, words(g, w.Next(), in.N/2%4, -1, in.N/8)
	first := w.Next()
	err := randtest.InTransaction(ctx, undo, func(ctx context.Context) error {
		for _, word := range list {
			if err := w.Write(ctx, chunkOf(word)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	text := strings.Join(list, "")
	if w.Text() != text || w.Next() != first+len(storedOf(list)) {
		x.w.Faultf("%s: after %q from %d on, the text is %q, and the next index %d", x.name, list, first, w.Text(), w.Next())
	}
	now := slices.Concat(m.Streams[g.String()], storedOf(list))
	if undo && len(list) > 0 {
		err := w.Write(ctx, chunkOf("after the rollback "))
		if !errors.Is(err, dohost.ErrMisuse) && !randtest.Ended(ctx, err) {
			x.w.Faultf("%s: Write to %v after a rollback: %v", x.name, g, err)
		}
		return nil // the model and the chunks are as before
	}
	if in.N%3 == 0 {
		err = w.Finish(ctx)
		now = append(now, finish)
	}
	if err != nil {
		return err
	}
	m.Streams[g.String()] = now
	return x.save(ctx, m)
}

// twoWriters writes the same chunk by two writers that continue a generation: the second one has a conflict, and can write nothing.
func (x *execution) twoWriters(ctx context.Context, m *model, g stream, w *chat.ChunkWriter[chat.StoredChunk]) error {
	second, err := g.Continue(ctx, x.st.Storage(), g.generation)
	if err != nil {
		return err
	}
	first, word := w.Next(), words(g, w.Next(), 1, -1, 0)[0]
	if err := w.Write(ctx, chunkOf(word)); err != nil {
		return err
	}
	for range 2 {
		err := second.Write(ctx, chunkOf(word))
		if (!errors.Is(err, chat.ErrChunkConflict) || second.Next() != first || second.Text() != "") && !randtest.Ended(ctx, err) {
			x.w.Faultf("%s: a second writer of %v at %d: %v, its text is %q", x.name, g, second.Next(), err, second.Text())
		}
	}
	m.Streams[g.String()] = append(m.Streams[g.String()], word)
	return x.save(ctx, m)
}

var errSource = errors.New("the source of chunks fails")

// source yields chunks, and then an error if it fails.
func source(list []string, fails bool, each time.Duration) func(context.Context) iter.Seq2[chat.Chunk, error] {
	return func(ctx context.Context) iter.Seq2[chat.Chunk, error] {
		return func(yield func(chat.Chunk, error) bool) {
			for _, word := range list {
				select {
				case <-time.After(each):
				case <-ctx.Done():
					return
				}
				if !yield(chunkOf(word), nil) {
					return
				}
			}
			if fails {
				yield(chat.Chunk{}, errSource)
			}
		}
	}
}

// stream writes chunks by StreamTo. Other programs may write to the generation until it ends.
func (x *execution) stream(ctx context.Context, in Instr, g stream, w *chat.ChunkWriter[chat.StoredChunk]) error {
	replay, fails, first := in.N%3 == 0, in.N%5 == 0, w.Next()
	other := in.N/4%8 - 3
	if !replay {
		other = -1
	}
	list := words(g, first, in.N%5, other, in.N/8)
	from := list
	if in.N%2 == 0 {
		from = append(slices.Clone(list), finish) // which is the same as none
	}
	deletions := x.deletions
	text, err := chat.StreamTo(ctx, w, source(from, fails, time.Duration(in.N%7*100)*time.Millisecond+apart(in.N)))
	known := err == nil || errors.Is(err, errSource) || errors.Is(err, chat.ErrChunkConflict)
	switch {
	case x.deletions > deletions && (known || errors.Is(err, dohost.ErrMisuse)):
		return nil // a writer notices only that its last row is missing
	case !known:
		return err
	}
	stored, err2 := x.words(ctx, g)
	if err2 != nil {
		return err2
	}
	want := append(storedOf(list), finish)
	wrote := w.Next() - first
	if wrote > len(want) || w.Next() > len(stored) || !slices.Equal(stored[first:w.Next()], want[:min(wrote, len(want))]) {
		x.w.Faultf("%s: StreamTo of %q has written %d chunks after %d, and %q are stored", x.name, list, wrote, first, stored)
		return nil
	}
	complete := strings.Join(list, "")
	switch {
	case text != w.Text(), !strings.HasPrefix(complete, text), wrote < len(want)-1 && strings.Count(text, g.String()) > wrote:
		x.w.Faultf("%s: StreamTo of %q has written %d chunks, and returns the text %q", x.name, list, wrote, text)
	case wrote >= len(want)-1 && text != complete:
		x.w.Faultf("%s: StreamTo of %q has written all chunks, and returns the text %q", x.name, list, text)
	case errors.Is(err, errSource) && (!fails || wrote != len(want)-1), err == nil && (fails || wrote != len(want)):
		x.w.Faultf("%s: StreamTo of %q ends after %d chunks: %v", x.name, list, wrote, err)
	case errors.Is(err, chat.ErrChunkConflict) && (w.Next() >= len(stored) || replay && stored[w.Next()] == want[wrote]):
		x.w.Faultf("%s: StreamTo of %q ends at %d of %q: %v", x.name, list, w.Next(), stored, err)
	}
	return nil
}

// apart returns a time that keeps timers of programs apart: timers of one moment have no order.
func apart(n int) time.Duration { return time.Duration(1+n) * 13 * time.Microsecond }

// words returns the words of the chunks of a generation, with its finish.
func (b *board) words(ctx context.Context, g stream) (list []string, err error) {
	rows, err := g.Read(ctx, b.st.Storage(), g.generation)
	for i, row := range rows {
		var c struct{ Type, Delta string }
		if err := json.Unmarshal(row.Value.Chunk, &c); err != nil || row.Value.Index != i || row.Value.Generation != g.generation || row.Version != 1 {
			b.w.Faultf("chunk %d of %v is %+v at version %d: %v", i, g, row.Value, row.Version, err)
		}
		if c.Type == finish {
			c.Delta = finish
		}
		list = append(list, c.Delta)
	}
	return list, err
}

// verifyStreams checks that no chunk that the model knows has changed, and that a generation has no chunk after its finish. It makes new
// chunks in the model.
func (b *board) verifyStreams(ctx context.Context, m *model) error {
	for k := range len(sinks) * len(generations) {
		g := streamAt(k)
		now, err := b.words(ctx, g)
		if err != nil {
			return err
		}
		before := m.Streams[g.String()]
		if len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			b.w.Faultf("the generation %v was %q, and is %q", g, before, now)
		}
		if at := slices.Index(now, finish); at >= 0 && at < len(now)-1 {
			b.w.Faultf("the generation %v has chunks after its end: %q", g, now)
		}
		m.Streams[g.String()] = now
	}
	return nil
}
