package runtime

import (
	"context"
	"fmt"
	"iter"

	"github.com/dohost/dohost/objectstore"
)

// MaxBatch is how many keys one GetMany, PutMany or DeleteMany may name.
const MaxBatch = 128

// Get appends to dst, which may be nil, the value of a key as the turn sees it. The
// slice is the caller's.
func (s *State) Get(ctx context.Context, dst []byte, sp objectstore.Space, key []byte) (value []byte, ok bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return dst, false, err
	}
	defer t.done()
	return s.life().segment.Get(dst, sp, key)
}

// Put writes a key. It waits while the object, or the host, has too many bytes
// that are not durable, with the turn held. With noWait no output waits for this
// write. Errors: *objectstore.LimitError, objectstore.ErrNoSpace.
func (s *State) Put(ctx context.Context, sp objectstore.Space, key, value []byte, noWait bool) error {
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	if err := s.throttle(); err != nil {
		return err
	}
	return s.life().segment.Put(sp, key, value, noWait)
}

func (s *State) throttle() error {
	if !s.life().rng.Full() {
		return nil
	}
	s.life().throttled.Store(true)
	defer s.life().throttled.Store(false)
	if err := s.life().rng.Throttle(s.life().context()); err != nil {
		return s.life().orFenced()
	}
	return nil
}

// Delete removes a key and says whether it was there.
func (s *State) Delete(ctx context.Context, sp objectstore.Space, key []byte, noWait bool) (existed bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return false, err
	}
	defer t.done()
	_, existed, err = s.life().segment.Get(nil, sp, key)
	if err != nil || !existed {
		return false, err
	}
	return true, s.life().segment.Delete(sp, key, noWait)
}

// DeleteAll removes everything that the object has stored, the alarm included.
// Errors: ErrInTransaction.
func (s *State) DeleteAll(ctx context.Context) error {
	t, err := s.storage(ctx)
	if err != nil {
		return err
	}
	defer t.done()
	if t.tx != nil {
		return ErrInTransaction
	}
	return s.life().segment.DeleteAll()
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
		givenUp := t.givenUp
		it := s.life().segment.Scan(b)
		t.done()
		defer it.Close()
		for {
			row, ok, err := s.step(t, givenUp, it)
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

func (s *State) step(t *turn, givenUp uint32, it *objectstore.Iterator) (Row, bool, error) {
	if err := t.use(); err != nil {
		return Row{}, false, err
	}
	defer t.done()
	if t.givenUp != givenUp {
		return Row{}, false, fmt.Errorf("%w: use List for loops that wait", ErrTurnOver)
	}
	if !it.Next() {
		return Row{}, false, it.Err()
	}
	return Row{it.Key(), it.Value()}, true, nil
}
