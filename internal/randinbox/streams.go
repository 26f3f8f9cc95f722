package randinbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// finish is the last chunk of a generation that has ended.
const finish = "finish"

var errSource = errors.New("the source of chunks fails")

// words returns the words of a generation. The chunk at the position other has another text, if other is not negative.
func words(generation string, count, other int) (list []string) {
	for i := range count {
		word := fmt.Sprint(generation, ".", i, " ")
		if i == other {
			word = fmt.Sprint("other.", i, " ")
		}
		list = append(list, word)
	}
	return list
}

// stream writes chunks of a generation: after those that are stored, or again from the first on.
func (x *execution) stream(ctx context.Context, in Instr) error {
	generation := fmt.Sprint("g", in.K%3)
	list := words(generation, 1+in.N%4, in.N/4%8-3)
	w, err := streams.Replay(x.Storage(), generation)
	replay := in.N%3 == 0
	if !replay {
		before, err2 := x.chunks(ctx, streams, generation)
		if err2 != nil {
			return err2
		}
		w, err = streams.Continue(ctx, x.Storage(), generation)
		finished := errors.Is(err, chat.ErrGenerationFinished)
		if err != nil && !finished {
			return err
		}
		if ended := len(before) > 0 && before[len(before)-1] == finish; finished != ended {
			x.w.Faultf("%s: Continue of %s with %q: %v", x.name, generation, before, err)
		}
		if finished {
			return nil
		}
		if list = list[min(w.Next(), len(list)):]; w.Next() != len(before) {
			x.w.Faultf("%s: Continue of %s with %q is at %d", x.name, generation, before, w.Next())
		}
	}
	if err != nil {
		return err
	}
	first := w.Next()
	text, err := chat.StreamTo(ctx, w, source(list, in.N%5 == 0, time.Duration(in.N%7*100)*time.Millisecond+apart(in.N)/7))
	stored, err2 := x.chunks(ctx, streams, generation)
	if err2 != nil {
		return err2
	}
	return x.streamed(ctx, in, stored, first, w.Next(), list, text, err)
}

// source yields chunks with words, and then an error if it fails.
func source(list []string, fails bool, each time.Duration) func(context.Context) iter.Seq2[chat.Chunk, error] {
	return func(ctx context.Context) iter.Seq2[chat.Chunk, error] {
		return func(yield func(chat.Chunk, error) bool) {
			for _, word := range list {
				if !pause(ctx, each) || !yield(chat.TextDelta("t", word), nil) {
					return
				}
			}
			if fails {
				yield(chat.Chunk{}, errSource)
			}
		}
	}
}

// streamed compares the chunks that are stored with those that a StreamTo has written from the index first up to next.
func (x *execution) streamed(ctx context.Context, in Instr, stored []string, first, next int, list []string, text string, err error) error {
	if err != nil && !errors.Is(err, errSource) && !errors.Is(err, chat.ErrChunkConflict) {
		return err
	}
	want := slices.Concat(list, []string{finish})
	wrote := next - first
	if wrote > len(want) || next > len(stored) || !slices.Equal(stored[first:next], want[:min(wrote, len(want))]) {
		x.w.Faultf("%s: StreamTo of %q has written %d chunks after %d, and %q are stored", x.name, list, wrote, first, stored)
		return nil
	}
	said := ""
	for _, word := range list[:min(wrote, len(list))] {
		said += word
	}
	if text != said {
		x.w.Faultf("%s: StreamTo returns the text %q, want %q", x.name, text, said)
	}
	fails := in.N%5 == 0
	switch {
	case errors.Is(err, errSource) && (!fails || wrote != len(list)), err == nil && (fails || wrote != len(want)):
		x.w.Faultf("%s: StreamTo of %q ends after %d chunks: %v", x.name, list, wrote, err)
	case errors.Is(err, chat.ErrChunkConflict) && (next >= len(stored) || in.N%3 == 0 && stored[next] == want[wrote]):
		x.w.Faultf("%s: StreamTo of %q ends at %d of %q: %v", x.name, list, next, stored, err)
	}
	return nil
}

// chunks returns the words of a generation, with its finish.
func (o *office) chunks(ctx context.Context, of *chat.ChunkSink[chat.StoredChunk], generation string) (list []string, err error) {
	rows, err := of.Read(ctx, o.Storage(), generation)
	for i, row := range rows {
		var c struct{ Type, Delta string }
		if err := json.Unmarshal(row.Value.Chunk, &c); err != nil || row.Value.Index != i || row.Value.Generation != generation {
			o.w.Faultf("chunk %d of %s is %+v: %v", i, generation, row.Value, err)
		}
		if c.Type == finish {
			c.Delta = finish
		}
		list = append(list, c.Delta)
	}
	return list, err
}

// verifyStreams checks that no chunk that the model knows has changed, and that a generation has no chunk after its finish.
func (o *office) verifyStreams(ctx context.Context, m *model) error {
	for n := range 3 {
		generation := fmt.Sprint("g", n)
		now, err := o.chunks(ctx, streams, generation)
		if err != nil {
			return err
		}
		before := m.Streams[generation]
		if len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
			o.w.Faultf("the generation %s was %q, and is %q", generation, before, now)
		}
		if at := slices.Index(now, finish); at >= 0 && at < len(now)-1 {
			o.w.Faultf("the generation %s has chunks after its end: %q", generation, now)
		}
		if len(now) > 0 {
			m.Streams[generation] = now
		}
	}
	return nil
}

// checkAnswer checks that the chunks of a reply make its text, and have an end.
func (o *office) checkAnswer(ctx context.Context, reply *inbox.Message) error {
	if reply.From != "cook" {
		return nil
	}
	rows, err := answers.Read(ctx, o.Storage(), reply.Generation)
	if err != nil {
		return err
	}
	if len(rows) == 0 || string(rows[len(rows)-1].Value.Chunk) != `{"type":"finish"}` {
		o.w.Faultf("the generation of the reply %s has %d chunks, and no end", rowText(reply), len(rows))
	}
	return nil
}
