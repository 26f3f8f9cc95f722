package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost"
)

// Batch is a part of a stream, for the object that takes it.
type Batch struct {
	Subscription string
	Stream       string // its path
	// Messages are messages of a stream of JSON: at most 256, and at most 1 MiB unless it is one message alone. See Subscription.MaxMessage.
	Messages []json.RawMessage
	// Data is a part of a stream of another type, of at most 1 MiB. It may begin and end anywhere.
	Data []byte
}

// position is a place in a stream: after Skip messages, or bytes, that follow an offset.
type position struct {
	Offset string
	Skip   int64 `msgpack:",omitempty"`
}

// positionRow is the stored position of an object in a stream.
type positionRow struct {
	Subscription, Stream string
	At                   position
	Updated              time.Time
}

var positions = dohost.Collection[positionRow]{
	Name: "dohost.streams.positions",
	Key:  func(r positionRow) string { return positionKey(r.Subscription, r.Stream) },
}

func positionKey(subscription, stream string) string {
	return string(dohost.KeyOf(subscription) + dohost.KeyOf(stream))
}

// Position is the position of an object in a stream: see [Positions].
type Position struct {
	Subscription, Stream string
	// Offset precedes the next message. It is an offset of the server, which a request for the stream may have as its parameter.
	Offset string
	// Skip is the number of messages after Offset that the object has, or of bytes, if the stream is not JSON: a response is taken in several
	// parts.
	Skip int64
	// Updated is the time of the last batch.
	Updated time.Time
}

// Positions returns the positions of an object in the streams that it takes, from its storage, ordered by subscription and stream. It needs
// the turn of the object. An error of the storage ends the iteration.
func Positions(ctx context.Context, s *dohost.Storage) iter.Seq2[Position, error] {
	return func(yield func(Position, error) bool) {
		for row, err := range positions.All(ctx, s, nil) {
			r := row.Value
			if !yield(Position{r.Subscription, r.Stream, r.At.Offset, r.At.Skip, r.Updated}, err) {
				return
			}
		}
	}
}

// Target is a class whose objects take the messages of streams: see [To].
type Target struct {
	name func(path string) string
	// at returns the position of an object in a stream; known is false if it has none.
	at func(ctx context.Context, h dohost.Locator, name, key string) (at storedPosition, err error)
	// take passes a batch to an object.
	take func(ctx context.Context, h dohost.Locator, name string, t *taking) (at storedPosition, err error)
}

// nameOf calls name. A path on which it panics must not end the work on other streams.
func (t *Target) nameOf(path string) (name string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("consumer: the function for the name of an object panicked: %v", p)
		}
	}()
	return t.name(path), nil
}

// storedPosition is the position of an object, if it is known.
type storedPosition struct {
	At    position
	Known bool
}

// taking is the call of an object with a batch. It has an effect only if the object is at From.
type taking struct {
	Batch Batch
	From  storedPosition
	Next  position
}

// To returns a target: the messages of a stream are passed to the method take of an object of the namespace. name returns the name of the object
// for the path of a stream, or "" if the stream is not of this target. It may run on many goroutines concurrently. storage returns the
// storage of the object, for its positions: for an agent, the method Storage.
//
// take gets the messages of each stream in order. It runs in a [dohost.Transaction], so it must not give up the turn; it writes rows that the
// object works on later, for example by [agent.OnRows], or starts a fiber. Its writes and the object's position in the stream are one batch, so each message takes
// effect once. After an error none of the writes remain, and take is called again, later: a message that can never be taken must not be an error.
func To[O any](
	ns dohost.Namespace[O], name func(path string) string, storage func(*O) *dohost.Storage, take func(*O, context.Context, *Batch) error,
) Target {
	if name == nil || storage == nil || take == nil {
		return Target{}
	}
	read := func(o *O, ctx context.Context, key string) (storedPosition, error) {
		row, ok, err := positions.Get(ctx, storage(o), key)
		return storedPosition{row.Value.At, ok}, err
	}
	apply := func(o *O, ctx context.Context, t *taking) (at storedPosition, err error) {
		err = dohost.Transaction(ctx, func(ctx context.Context) error {
			at, err = read(o, ctx, positionKey(t.Batch.Subscription, t.Batch.Stream))
			if err != nil || at != t.From {
				return err
			}
			if len(t.Batch.Messages)+len(t.Batch.Data) > 0 {
				if err := take(o, ctx, &t.Batch); err != nil {
					return err
				}
			}
			at = storedPosition{t.Next, true}
			return positions.Put(ctx, storage(o), positionRow{t.Batch.Subscription, t.Batch.Stream, t.Next, time.Now()})
		})
		return at, err
	}
	return Target{
		name: name,
		at: func(ctx context.Context, h dohost.Locator, name, key string) (storedPosition, error) {
			return callObject(ctx, ns.Get(h, name), read, key)
		},
		take: func(ctx context.Context, h dohost.Locator, name string, t *taking) (storedPosition, error) {
			return callObject(ctx, ns.Get(h, name), apply, t)
		},
	}
}

// callObject calls an object. The methods above have no effect if they are called twice.
func callObject[O, In, Out any](ctx context.Context, s dohost.Stub[O], m func(*O, context.Context, In) (Out, error), in In) (out Out, err error) {
	err = dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) (err error) {
		out, err = dohost.Call(ctx, s, m, in)
		return err
	})
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("consumer: object %s: %w", s.ID(), err)
	}
	return out, err
}
