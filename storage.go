package dohost

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Storage is an object's own range of the store: ordered keys, and typed values. Keys are 1 to 2,048 bytes and sort
// by bytes. A value encodes to at most 2 MiB, and the writes of one event between Awaits to at most 16 MiB
// ([*LimitError]). Writes of an event are atomic, and durable before any output leaves the object.
//
// Functions that read or write need a ctx that holds the turn of the storage's object. In addition to the errors that
// they name they return [ErrMisuse] or [ErrFenced]. A failed write has written nothing. A Storage must
// not be copied.
type Storage struct{ state runtime.State }

func (s *Storage) rt() *runtime.State { return &s.state }

const kv = objectstore.SpaceKV

// Get returns the value of a key; ok is false if there is none.
//
// Errors: [ErrDamaged] for a value in an unknown format, and an error for a value that is not a T or contains a number
// that a T cannot hold.
func Get[T any](ctx context.Context, s *Storage, key string) (v T, ok bool, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	data, ok, err := s.rt().Get(ctx, (*buf)[:0], kv, []byte(key))
	if cap(data) <= maxKept {
		*buf = data
	}
	if err != nil || !ok {
		return v, false, err
	}
	if v, err = decode[T](data); err != nil {
		return v, false, errkind.About(fmt.Sprintf("key %q", key), err)
	}
	return v, true, nil
}

// Put writes a key. It waits, with the turn held, while more than 8 MiB of the object's
// commits are not durable, and while the undurable data of all objects of the host is at 256
// MiB: writes of running events, commits, and outputs. The wait ends with ctx, with the
// incarnation, or after a minute.
//
// Errors: a [*LimitError] for the key, the value or the batch, [ErrNoSpace], one for a value
// that cannot be encoded, and [ErrOverloaded] after a minute's wait.
func Put[T any](ctx context.Context, s *Storage, key string, v T) error {
	return put(ctx, s, key, v, false)
}

// PutNoWait is Put, but nothing waits for this write to be durable: it may be lost
// in a crash although later answers have left. Durable Objects call it
// allowUnconfirmed.
//
// Errors: the errors of Put.
func PutNoWait[T any](ctx context.Context, s *Storage, key string, v T) error {
	return put(ctx, s, key, v, true)
}

func put[T any](ctx context.Context, s *Storage, key string, v T, noWait bool) error {
	return encoded(v, func(data []byte) error { return s.rt().Put(ctx, kv, []byte(key), data, noWait) })
}

// GetMany returns the values of up to 128 keys, and reads them in the order of the arguments. Keys that do not exist
// are not in the map.
//
// Errors: the errors of [Get], and a [*LimitError] for too many keys.
func GetMany[T any](ctx context.Context, s *Storage, keys ...string) (map[string]T, error) {
	if err := batchLimit(len(keys)); err != nil {
		return nil, err
	}
	found := make(map[string]T, len(keys))
	for _, k := range keys {
		v, ok, err := Get[T](ctx, s, k)
		if err != nil {
			return nil, err
		}
		if ok {
			found[k] = v
		}
	}
	return found, nil
}

// PutMany writes up to 128 keys, in the order of their bytes: all of them, or none after an error.
// It waits as [Put] does, and is a [Transaction].
//
// Errors: the errors of Put, and a [*LimitError] for too many keys.
func PutMany[T any](ctx context.Context, s *Storage, values map[string]T) error {
	if err := batchLimit(len(values)); err != nil {
		return err
	}
	return runtime.Transaction(ctx, func(ctx context.Context) error {
		// With the order of the map, chaos would end the incarnation at another place in every run.
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if err := Put(ctx, s, k, values[k]); err != nil {
				return err
			}
		}
		return nil
	})
}

func batchLimit(n int) error {
	if n > runtime.MaxBatch {
		return &LimitError{Subject: "operation", Size: n, Limit: runtime.MaxBatch, Unit: "keys"}
	}
	return nil
}

// Delete removes a key and reports whether it was present. It waits as [Put] does. A full disk
// does not refuse it.
//
// Errors: a [*LimitError] for the batch, [ErrOverloaded].
func (s *Storage) Delete(ctx context.Context, key string) (existed bool, err error) {
	return s.rt().Delete(ctx, kv, []byte(key), false)
}

// DeleteMany removes up to 128 keys, in the order of the arguments, and returns how many existed. After an error it
// has removed none. It is a [Transaction].
//
// Errors: the errors of Delete, and a [*LimitError] for too many keys.
func (s *Storage) DeleteMany(ctx context.Context, keys ...string) (deleted int, err error) {
	if err := batchLimit(len(keys)); err != nil {
		return 0, err
	}
	err = runtime.Transaction(ctx, func(ctx context.Context) error {
		for _, k := range keys {
			existed, err := s.Delete(ctx, k)
			if err != nil {
				return err
			}
			if existed {
				deleted++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// DeleteAll removes all data of the object, including its alarm. It waits as [Put] does. It also removes the ids and
// results of [Invoke] calls, so a repetition of such a call runs the method again. A repetition of a call in progress
// gets the result of that call, unless the incarnation ends before the method returns.
//
// Errors: [ErrMisuse] in a transaction, [ErrOverloaded].
func (s *Storage) DeleteAll(ctx context.Context) error {
	if err := s.rt().DeleteAll(ctx); err != nil {
		return err
	}
	st := stateOf(s.rt())
	if r := st.relay(); r != nil {
		return r.deleteAll(ctx, st)
	}
	return nil
}

// Sync commits the writes of the event and returns when all writes of the object are durable, including the writes
// of PutNoWait. It holds the turn until then; [AwaitDurable] gives up the turn.
//
// Errors: [ErrMisuse] in a transaction.
func (s *Storage) Sync(ctx context.Context) error {
	if runtime.StateOf(ctx, seal.New()) != s.rt() {
		return runtime.ErrNoTurn
	}
	return runtime.Sync(ctx)
}

// ListOptions selects the keys that satisfy all of its fields.
type ListOptions struct {
	Prefix string
	Start  string // the first key; with After an error
	After  string // the key before the first
	End    string // the key after the last
	// Reverse walks from the last key to the first. Start and End keep their meaning.
	Reverse bool
	// Limit bounds the number of keys. Zero means no bound.
	Limit int
}

// Item is a key and its value.
type Item[T any] struct {
	Key   string
	Value T
}

// All yields the selected keys in order, as they are when the loop starts. The loop must not give
// up the turn: the step after an Await or Call yields [ErrMisuse]. An error is the last thing that
// All yields.
//
// Errors: the errors of [Get], [ErrMisuse].
func All[T any](ctx context.Context, s *Storage, o *ListOptions) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		for row, err := range s.rt().Scan(ctx, o.bounds()) {
			var it Item[T]
			if err == nil {
				it.Key = string(row.Key)
				if it.Value, err = decode[T](row.Value); err != nil {
					err = errkind.About(fmt.Sprintf("key %q", it.Key), err)
				}
			}
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}

// List returns the selected keys and values as of one moment, for loops
// that give up the turn.
//
// Errors: the errors of [Get].
func List[T any](ctx context.Context, s *Storage, o *ListOptions) ([]Item[T], error) {
	var items []Item[T]
	for it, err := range All[T](ctx, s, o) {
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

func (o *ListOptions) bounds() objectstore.Bounds {
	b := objectstore.Bounds{Space: kv}
	if o == nil {
		return b
	}
	b.Prefix, b.Start, b.After, b.End = []byte(o.Prefix), []byte(o.Start), []byte(o.After), []byte(o.End)
	b.Reverse, b.Limit = o.Reverse, o.Limit
	return b
}

// Add adds delta to the number at key, which is zero if the key is not there.
//
// Errors: the errors of [Get] and [Put].
func Add(ctx context.Context, s *Storage, key string, delta int) error {
	n, _, err := Get[int](ctx, s, key)
	if err != nil {
		return err
	}
	return Put(ctx, s, key, n+delta)
}
