package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat/internal/rawjson"
	"github.com/dohost/dohost/chat/uimessage"
)

// ErrChunkConflict is the error of a [ChunkWriter] if another row is stored under the chunk's index: the replayed stream
// differs from the stored one, or two writers write one generation. It is [dohost.ErrConflict].
var ErrChunkConflict = fmt.Errorf("chat: another chunk is stored with the index: %w", dohost.ErrConflict)

// ErrGenerationFinished is the error of [ChunkSink.Continue] for a generation that has ended. It is [dohost.ErrConflict].
var ErrGenerationFinished = fmt.Errorf("chat: the generation has ended: %w", dohost.ErrConflict)

// ChunkSink describes how a collection stores the chunks of generations: one row for each chunk, with the indexes 0, 1, 2, …
// in each generation. Rows are only inserted, so a reader of the collection's feed gets each chunk once, in order.
//
// A sink is a description without data. All methods are safe for concurrent use if Row is.
type ChunkSink[T any] struct {
	// Rows gets the rows. Required.
	Rows *dohost.Collection[T]
	// Index names the index of Rows whose keys are KeyOf(generation) + KeyOf(index). If it is empty, the row keys are
	// string(KeyOf(generation) + KeyOf(index)), or begin with that.
	Index string
	// Row returns the row of a chunk. If ok is false, the chunk is not stored and gets no index. Row must return equal rows
	// for equal arguments. Required.
	Row func(generation string, index int, c Chunk) (row T, ok bool)
}

// StoredChunk is a row with an unchanged chunk. [StoredChunks] makes a collection of such rows.
type StoredChunk struct {
	Generation string          `json:"generation"`
	Index      int             `json:"index"`
	Kind       ChunkKind       `json:"kind"` // see [KindOf]
	Chunk      json.RawMessage `json:"chunk"`
	// Parent is the generation of the calling model, if this generation began in one of its tools and its chunks are stored, too.
	// Only the chunk with index 0 has it. See [InGeneration].
	Parent string `json:"parent,omitempty" msgpack:",omitempty"`
}

// StoredChunks returns a sink with a collection of [StoredChunk] rows. feed is the feed of the collection; it may be nil.
// Assign the sink to a variable: a collection must not be made twice.
func StoredChunks(name string, feed *dohost.Feed) *ChunkSink[StoredChunk] {
	return &ChunkSink[StoredChunk]{
		Rows: &dohost.Collection[StoredChunk]{Name: name, Feed: feed, Key: func(c StoredChunk) string {
			return string(dohost.KeyOf(c.Generation) + dohost.KeyOf(c.Index))
		}},
		Row: func(generation string, index int, c Chunk) (StoredChunk, bool) {
			return StoredChunk{Generation: generation, Index: index, Kind: KindOf(c), Chunk: rawjson.MustEncode(c)}, true
		},
	}
}

// query selects the rows of a generation.
func (to *ChunkSink[T]) query(generation string) *dohost.Query[T] {
	return &dohost.Query[T]{Index: to.Index, Prefix: dohost.KeyOf(generation)}
}

// Read returns the rows of a generation, in the order of their indexes.
//
// Errors: [dohost.ErrMisuse], and the errors of the collection.
func (to *ChunkSink[T]) Read(ctx context.Context, s *dohost.Storage, generation string) ([]dohost.Row[T], error) {
	if err := to.check(generation); err != nil {
		return nil, err
	}
	return to.Rows.List(ctx, s, to.query(generation))
}

// Last returns the index of the last stored chunk of a generation, or -1 if it has none.
//
// Errors: the errors of Read.
func (to *ChunkSink[T]) Last(ctx context.Context, s *dohost.Storage, generation string) (index int, err error) {
	if err := to.check(generation); err != nil {
		return -1, err
	}
	n, err := to.Rows.Count(ctx, s, to.query(generation))
	return n - 1, err
}

func (to *ChunkSink[T]) check(generation string) error {
	switch {
	case to == nil || to.Rows == nil || to.Row == nil || to.Rows.Key == nil:
		return fmt.Errorf("chat: a ChunkSink without Rows, Row, or the Key of Rows: %w", dohost.ErrMisuse)
	case generation == "":
		return fmt.Errorf("chat: a generation of the collection %q without an id: %w", to.Rows.Name, dohost.ErrMisuse)
	case to.Index != "" && !slices.ContainsFunc(to.Rows.Indexes, func(x dohost.Index[T]) bool { return x.Name == to.Index }):
		return fmt.Errorf("chat: the collection %q of a ChunkSink has no index %q: %w", to.Rows.Name, to.Index, dohost.ErrMisuse)
	}
	return nil
}

// has reports whether a row has the place of a chunk.
func (to *ChunkSink[T]) has(row T, place dohost.Key) bool {
	if to.Index == "" {
		return strings.HasPrefix(to.Rows.Key(row), string(place))
	}
	return to.Rows.InIndex(row, to.Index, place)
}

// ChunkWriter writes the chunks of one generation. It belongs to one event, and must not be used after the rollback of a
// Transaction that contains its writes. It is not safe for concurrent use.
type ChunkWriter[T any] struct {
	to         *ChunkSink[T]
	store      *dohost.Storage
	generation string
	replay     bool // writes chunks that may be stored
	next       int
	last       string // the key of the row before next, if w wrote it or continues after it
	text       strings.Builder
}

// Continue returns a writer that continues a generation after the last stored chunk, or begins it.
//
// A generation has ended if its last row is the row that Row returns for a chunk of the type "finish". So Row should return no
// such row for any other chunk. If Row drops the finish, a generation has no end, and the caller must know whether the
// generation has ended.
//
// Errors: [ErrGenerationFinished], [dohost.ErrMisuse], and the errors of the collection.
func (to *ChunkSink[T]) Continue(ctx context.Context, s *dohost.Storage, generation string) (*ChunkWriter[T], error) {
	w, err := to.Replay(s, generation)
	if err != nil {
		return nil, err
	}
	w.replay = false
	if w.next, err = to.Rows.Count(ctx, s, to.query(generation)); err != nil || w.next == 0 {
		return w, err
	}
	q := to.query(generation)
	q.Reverse, q.Limit = true, 1
	for row, err := range to.Rows.All(ctx, s, q) {
		if err != nil {
			return nil, err
		}
		w.last = row.Key
	}
	finished, err := to.finishedBefore(ctx, s, generation, w.next)
	switch {
	case err != nil:
		return nil, err
	case finished:
		return nil, fmt.Errorf("%w (%q, with %d chunks)", ErrGenerationFinished, generation, w.next)
	}
	return w, nil
}

// finishedBefore reports whether the chunk before an index is the finish.
func (to *ChunkSink[T]) finishedBefore(ctx context.Context, s *dohost.Storage, generation string, next int) (bool, error) {
	row, ok := to.Row(generation, next-1, uimessage.MakeChunk("finish"))
	if !ok {
		return false, nil
	}
	if _, stored, err := to.Rows.Get(ctx, s, to.Rows.Key(row)); !stored {
		return false, err
	}
	err := to.ensure(ctx, s, row) // writes nothing, since a row with the key is stored
	if errors.Is(err, dohost.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// Replay returns a writer that starts with the index 0. It writes nothing for a chunk that is already stored.
//
// Errors: [dohost.ErrMisuse].
func (to *ChunkSink[T]) Replay(s *dohost.Storage, generation string) (*ChunkWriter[T], error) {
	if err := to.check(generation); err != nil {
		return nil, err
	}
	return &ChunkWriter[T]{to: to, store: s, generation: generation, replay: true}, nil
}

// Write writes the next chunk, in the batch of the event's other writes. After an error the next Write has the same
// index.
//
// Errors: [ErrChunkConflict]; [dohost.ErrMisuse] for a row without the place that [ChunkSink] requires, and if the row before it was
// deleted or was written in a Transaction that was rolled back; the errors of the collection.
func (w *ChunkWriter[T]) Write(ctx context.Context, c Chunk) error {
	row, ok := w.to.Row(w.generation, w.next, c)
	if !ok {
		w.aggregate(c)
		return nil
	}
	if w.next == 0 {
		setParent(&row, parentOf(ctx, w.generation))
	}
	if place := dohost.KeyOf(w.generation) + dohost.KeyOf(w.next); !w.to.has(row, place) {
		return fmt.Errorf("chat: the row of chunk %d of %q has no key, or index key, that begins with its generation and index: %w",
			w.next, w.generation, dohost.ErrMisuse)
	}
	err := w.insert(ctx, row)
	switch {
	case errors.Is(err, dohost.ErrConflict):
		return fmt.Errorf("%w (chunk %d of the generation %q)", ErrChunkConflict, w.next, w.generation)
	case err != nil:
		return err
	}
	w.next, w.last = w.next+1, w.to.Rows.Key(row)
	w.aggregate(c)
	return nil
}

// insert writes a row after the last one, which is missing if a Transaction was rolled back, or other code has deleted the generation.
func (w *ChunkWriter[T]) insert(ctx context.Context, row T) error {
	if w.last != "" {
		_, stored, err := w.to.Rows.Get(ctx, w.store, w.last)
		switch {
		case err != nil:
			return err
		case !stored:
			return fmt.Errorf("chat: the writer was used in a Transaction that was rolled back, or its last row was deleted (chunk %d of %q): %w",
				w.next-1, w.generation, dohost.ErrMisuse)
		}
	}
	if !w.replay {
		return w.to.Rows.Insert(ctx, w.store, row)
	}
	return w.to.ensure(ctx, w.store, row)
}

func (w *ChunkWriter[T]) aggregate(c Chunk) {
	if KindOf(c) == ChunkText {
		w.text.WriteString(c.Text("delta"))
	}
}

// Finish writes a chunk of the type "finish", which marks the end of a generation.
//
// Errors: the errors of Write.
func (w *ChunkWriter[T]) Finish(ctx context.Context) error {
	return w.Write(ctx, uimessage.MakeChunk("finish"))
}

// Next returns the index of the next chunk, which is the number of the chunks before it.
func (w *ChunkWriter[T]) Next() int { return w.next }

// Text returns the text of the chunks that were written with w, including chunks that Row did not store, but without the chunks of
// other writers of the generation.
func (w *ChunkWriter[T]) Text() string { return w.text.String() }

// StreamTo writes the chunks of a stream, and returns the text of all chunks that w has written: without the text of earlier stored
// chunks, if w comes from [ChunkSink.Continue]. The last row is a chunk of the type "finish", unless Row drops it. src runs on its own
// goroutine, without the turn; StreamTo gives up the turn while it waits for a chunk, and other events see the rows written so far.
// The context of src ends when StreamTo returns, and src must end then.
//
// After an error the chunks that were written remain: see [ChunkSink.Continue].
//
// Errors: the errors of src and of [ChunkWriter.Write]; a [*ModelPanic]; the cause of ctx; the errors of [dohost.Await].
func StreamTo[T any](ctx context.Context, w *ChunkWriter[T], src func(context.Context) iter.Seq2[Chunk, error]) (text string, err error) {
	ask := func(ctx context.Context, _ *Prompt) iter.Seq2[Chunk, error] {
		return src(InGeneration(ctx, func() string { return w.generation }))
	}
	noCheckpoint := func(any) error { return fmt.Errorf("chat: StreamTo saves no checkpoint: %w", dohost.ErrMisuse) }
	if err := receive(ctx, &Prompt{}, &modelRequest{ask: ask, save: noCheckpoint, each: func(c Chunk) error {
		if c.Type() == "finish" {
			return nil // written at the end
		}
		return w.Write(ctx, c)
	}}); err != nil {
		return w.Text(), err
	}
	return w.Text(), w.Finish(ctx)
}
