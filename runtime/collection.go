package runtime

import (
	"context"
	"fmt"
	"iter"

	"github.com/dohost/dohost/objectstore"
)

// GetRow returns a row of a collection in the view of the turn. The caller owns the slices.
// Errors: *objectstore.NameError, *objectstore.LimitError, objectstore.ErrFormat.
func (s *State) GetRow(ctx context.Context, c *objectstore.Collection, key []byte) (row objectstore.CollectionRow, ok bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return row, false, err
	}
	defer t.done()
	return s.incarnation().batch.GetRow(c, key)
}

// PutRow writes a row, its index entries and its entry in the feed, all or
// nothing, and returns its new version. It waits as Put does. Errors: the errors of Put, of
// objectstore's Batch.PutRow, and of the class's RowWritten.
func (s *State) PutRow(ctx context.Context, c *objectstore.Collection, w objectstore.RowWrite) (version uint64, err error) {
	if s.incarnation().class().RowWritten == nil {
		return s.putRow(ctx, c, w)
	}
	of, row, former := *c, w, new([]objectstore.IndexEntry) // only a class with the hook allocates them
	row.Former = former
	err = Transaction(ctx, func(ctx context.Context) (err error) {
		if version, err = s.putRow(ctx, &of, row); err != nil {
			return err
		}
		return s.rowWritten(ctx, &of, &row, false)
	})
	return version, err
}

func (s *State) putRow(ctx context.Context, c *objectstore.Collection, w objectstore.RowWrite) (version uint64, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return 0, err
	}
	defer t.done()
	err = s.write(ctx, func(batch *objectstore.Batch) (err error) {
		version, err = batch.PutRow(c, w)
		return err
	})
	if err == nil {
		s.incarnation().feedGrows(c.Feed.Name)
	}
	return version, err
}

// rowWritten calls the class's RowWritten, which may use the turn.
func (s *State) rowWritten(ctx context.Context, c *objectstore.Collection, w *objectstore.RowWrite, deleted bool) error {
	return s.incarnation().class().RowWritten(ctx, s.incarnation().instance, c, w, deleted)
}

// DeleteRow removes a row and its index entries, and reports whether it existed. It waits
// as Put does. Errors: the errors of objectstore's Batch.DeleteRow, and of the class's RowWritten.
func (s *State) DeleteRow(ctx context.Context, c *objectstore.Collection, key []byte, expect uint64) (existed bool, err error) {
	if s.incarnation().class().RowWritten == nil {
		_, existed, err = s.deleteRow(ctx, c, key, expect)
		return existed, err
	}
	of := *c
	err = Transaction(ctx, func(ctx context.Context) (err error) {
		var former []objectstore.IndexEntry
		if former, existed, err = s.deleteRow(ctx, &of, key, expect); err != nil || !existed {
			return err
		}
		return s.rowWritten(ctx, &of, &objectstore.RowWrite{Key: key, Former: &former}, true)
	})
	return existed && err == nil, err
}

func (s *State) deleteRow(
	ctx context.Context, c *objectstore.Collection, key []byte, expect uint64,
) (former []objectstore.IndexEntry, existed bool, err error) {
	t, err := s.storage(ctx)
	if err != nil {
		return nil, false, err
	}
	defer t.done()
	err = s.write(ctx, func(batch *objectstore.Batch) (err error) {
		former, existed, err = batch.DeleteRow(c, key, expect)
		return err
	})
	if existed {
		s.incarnation().feedGrows(c.Feed.Name)
	}
	return former, existed, err
}

// Rows yields the rows of a collection that q selects: see objectstore's
// Batch.QueryRows. The slices are valid until the next step. The step after the
// turn was given up yields ErrTurnOver.
func (s *State) Rows(ctx context.Context, c *objectstore.Collection, q objectstore.RowQuery) iter.Seq2[objectstore.CollectionRow, error] {
	return func(yield func(objectstore.CollectionRow, error) bool) { s.rows(ctx, c, q, yield) }
}

// rows is the loop of Rows. The compiler copies the function that Rows returns into each caller, so that function only calls this one.
func (s *State) rows(ctx context.Context, c *objectstore.Collection, q objectstore.RowQuery, yield func(objectstore.CollectionRow, error) bool) {
	t, err := s.storage(ctx)
	if err != nil {
		yield(objectstore.CollectionRow{}, err)
		return
	}
	releases := t.releases
	it := s.incarnation().batch.QueryRows(c, q)
	t.done()
	defer it.Close()
	for {
		ok, err := nextRow(t, releases, it)
		if err != nil {
			yield(objectstore.CollectionRow{}, err)
			return
		}
		if !ok || !yield(it.Row(), nil) {
			return
		}
	}
}

func nextRow(t *turn, releases uint32, it *objectstore.RowIterator) (bool, error) {
	if err := t.use(); err != nil {
		return false, err
	}
	defer t.done()
	if t.releases != releases {
		return false, fmt.Errorf("%w: use List for loops that wait", ErrTurnOver)
	}
	return it.Next(), it.Err()
}

// CountRows counts the rows that q selects, without reading more than index
// entries if q names an index.
func (s *State) CountRows(ctx context.Context, c *objectstore.Collection, q objectstore.RowQuery) (int, error) {
	t, err := s.storage(ctx)
	if err != nil {
		return 0, err
	}
	defer t.done()
	return s.incarnation().batch.CountRows(c, q)
}
