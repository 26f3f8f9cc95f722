package runtime

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost/objectstore"
)

// MaxBatch is how many keys one GetMany, PutMany or DeleteMany may name.
const MaxBatch = 128

// Get appends the value of a key, in the view of the turn, to dst, which may be nil. The
// caller owns the slice.
func (s *State) Get(ctx context.Context, dst []byte, sp objectstore.Space, key []byte) (value []byte, ok bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return dst, false, err
	}
	defer t.done()
	return s.incarnation().batch.Get(dst, sp, key)
}

// Put writes a key. While the object, or the host, has too many undurable bytes, Put waits
// with the turn held until there is room, until ctx or the incarnation ends, or for a
// minute. With noWait no output waits for this write. Errors: *objectstore.LimitError,
// objectstore.ErrNoSpace; ErrOverloaded after the minute; ctx's cause.
func (s *State) Put(ctx context.Context, sp objectstore.Space, key, value []byte, noWait bool) error {
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	return s.write(ctx, func(batch *objectstore.Batch) error { return batch.Put(sp, key, value, noWait) })
}

// maxThrottle is how long a write waits for memory. It is longer than the default Limits.Stall, so
// that a slow disk ends the incarnation first. Only code that keeps its bytes reaches it.
const maxThrottle = time.Minute

// write adds to the batch of the turn by op. While there is no memory for it, write waits.
func (s *State) write(ctx context.Context, op func(*objectstore.Batch) error) error {
	return s.writeTo(ctx, s.incarnation().batch, op)
}

func (s *State) writeTo(ctx context.Context, batch *objectstore.Batch, op func(*objectstore.Batch) error) error {
	for {
		err := op(batch)
		if err == nil || !errors.Is(err, objectstore.ErrFull) {
			return err
		}
		if err := s.waitMemory(ctx, batch); err != nil {
			return err
		}
	}
}

// waitMemory waits until the write that returned objectstore.ErrFull may be repeated.
func (s *State) waitMemory(ctx context.Context, batch *objectstore.Batch) error {
	inc := s.incarnation()
	inc.throttled.Add(1)
	defer inc.throttled.Add(-1)
	wait, cancel := context.WithTimeout(inc.context(), maxThrottle)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err := batch.WaitMemory(wait)
	switch {
	case err == nil:
		return nil
	case inc.dead.Load():
		return inc.cause()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: a write waited %v for memory: %d bytes of the host's writes are not durable yet",
			ErrOverloaded, maxThrottle, inc.host().undurable())
	}
	return inc.orFenced()
}

// Delete removes a key and reports whether it existed. It waits as Put does. Errors: the errors of Put, without objectstore.ErrNoSpace.
func (s *State) Delete(ctx context.Context, sp objectstore.Space, key []byte, noWait bool) (existed bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return false, err
	}
	defer t.done()
	_, existed, err = s.incarnation().batch.Get(nil, sp, key)
	if err != nil || !existed {
		return false, err
	}
	return true, s.write(ctx, func(batch *objectstore.Batch) error { return batch.Delete(sp, key, noWait) })
}

// DeleteAll removes everything that the object has stored, the alarm included. It waits as
// Put does. Errors: ErrInTransaction; the errors of Put, without objectstore.ErrNoSpace.
func (s *State) DeleteAll(ctx context.Context) error {
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	if t.tx != nil {
		return ErrInTransaction
	}
	if err := s.write(ctx, (*objectstore.Batch).DeleteAll); err != nil {
		return err
	}
	s.incarnation().allDeleted()
	return nil
}

// Row is a key and its value.
type Row struct{ Key, Value []byte }

// Scan yields the rows within bounds, in order, as they are when it starts. The
// slices are valid until the next step. The step after the turn was given up
// yields ErrTurnOver.
func (s *State) Scan(ctx context.Context, b objectstore.Bounds) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		t, err := s.storage(ctx)
		if err != nil {
			yield(Row{}, err)
			return
		}
		releases := t.releases
		it := s.incarnation().batch.Scan(b)
		t.done()
		defer it.Close()
		for {
			row, ok, err := s.step(t, releases, it)
			if err != nil {
				yield(Row{}, err)
				return
			}
			if !ok || !yield(row, nil) {
				return
			}
		}
	}
}

func (s *State) step(t *turn, releases uint32, it *objectstore.Iterator) (Row, bool, error) {
	if err := t.use(); err != nil {
		return Row{}, false, err
	}
	defer t.done()
	if t.releases != releases {
		return Row{}, false, fmt.Errorf("%w: use List for loops that wait", ErrTurnOver)
	}
	if !it.Next() {
		return Row{}, false, it.Err()
	}
	return Row{it.Key(), it.Value()}, true, nil
}
