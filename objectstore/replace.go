package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/errkind"
)

// ArchivedState is the state of an object at an earlier moment of the store's history, in memory. An object that was absent
// then has no rows and no alarm.
type ArchivedState struct {
	Restored
	rows    []row // their keys begin with the space
	slot    Slot
	hasSlot bool
	size    int // of the rows, as in a batch
}

// ArchivedState reads the state of an object at a moment from the archive, as ExportArchived does, after it has waited until the
// archive is complete up to the moment. One call at a time reads; the others wait.
//
// Errors: ErrNotShipping; an error for the zero moment; ErrBookmark, ErrForeignBookmark; ErrNotArchived for a moment that the
// archive does not have, or that has not come; a *LimitError for a state that is larger than MaxBatchBytes; ErrDamagedArchive;
// ErrNoSpace; ErrFenced or ErrClosed if the store fails or closes during the wait; the cause of ctx; the errors of the archive and
// of the disk.
func (s *Store) ArchivedState(ctx context.Context, id ID, to RestorePoint) (st *ArchivedState, err error) {
	newest, err := s.newestBefore(&to)
	if err == nil {
		err = s.ship.await(ctx, newest)
	}
	if err != nil {
		return nil, errkind.About(fmt.Sprintf("restoring %v", id), err)
	}
	select {
	case s.scratch <- struct{}{}:
		defer func() { <-s.scratch }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	st = &ArchivedState{}
	read := archivedRead{
		from: s.ship.opts.Archive, id: id, to: to, scratch: s.fs.PathJoin(s.dir, scratchName),
		options: &Options{FS: s.opts.FS, Logger: s.opts.Logger}, space: s.space.recheck,
	}
	st.Restored, err = read.run(ctx, func(sn *Snapshot, at Restored) error { return st.read(sn, id, at) })
	if err != nil {
		return nil, errkind.About(fmt.Sprintf("restoring %v", id), err)
	}
	return st, nil
}

// newestBefore checks that a moment is one of this history and has come. It returns the record that the archive must have.
func (s *Store) newestBefore(to *RestorePoint) (uint64, error) {
	switch {
	case s.ship == nil:
		return 0, ErrNotShipping
	case *to == RestorePoint{}:
		return 0, errors.New("want a record, a time or a bookmark")
	}
	if to.Bookmark != "" {
		if err := errors.Join(to.bound(), to.Bookmark.ofHistory(s.identity)); err != nil {
			return 0, err
		}
	}
	newest := s.ship.stats().Record
	if to.Record > newest {
		return 0, fmt.Errorf("%w: the newest record is %d", ErrNotArchived, newest)
	}
	if now := time.Now(); to.Time.After(now) {
		return 0, fmt.Errorf("%w: it is after now, %s", ErrNotArchived, now.UTC().Format(time.RFC3339Nano))
	}
	if to.Record > 0 {
		newest = to.Record
	}
	return newest, nil
}

// read reads the rows of the object, as an import writes them. If they are too large for a batch, it only counts them.
func (st *ArchivedState) read(sn *Snapshot, id ID, at Restored) error {
	if ok, err := sn.Exists(id); err != nil || !ok {
		return err
	}
	prefix := appendObject(nil, id)
	w, err := sn.walk(prefix, pastObject(id))
	if err != nil {
		return err
	}
	defer w.close()
	ok, err := w.first()
	for ; ok && err == nil; ok, err = w.next() {
		err = st.add(w.key[len(prefix):], w.value)
		if err != nil {
			break
		}
	}
	if err == nil && st.size > MaxBatchBytes {
		err = &LimitError{Subject: fmt.Sprintf("the state of %v as of record %d", id, at.Record), Size: st.size, Limit: MaxBatchBytes}
	}
	return err
}

func (st *ArchivedState) add(key, value []byte) (err error) {
	if string(key) == string(slotRow) {
		st.slot, err = decodeSlot(value)
		st.hasSlot = true
		return err
	}
	if st.size += rowSize(key, len(value)); st.size > MaxBatchBytes {
		st.rows = nil
		return nil
	}
	if Space(key[0]) == SpaceCollection {
		if value, err = importedFeed(key[1:], value); err != nil {
			return err
		}
	}
	st.rows = append(st.rows, row{key: bytes.Clone(key), value: bytes.Clone(value)})
	return nil
}

// Replace deletes all rows and the alarm of the object, and writes the rows and the alarm of a state. The alarm gets a new generation.
// A feed gets a new log at its next entry, as after an import, so a reader that has read entries after the moment gets
// a *FeedError with Reset. Replace waits for memory, as WaitMemory does.
//
// Errors: the errors of DeleteAll, Put and WaitMemory. After an error the caller must discard the batch.
func (s *Batch) Replace(ctx context.Context, st *ArchivedState) error {
	if err := s.retryFull(ctx, s.DeleteAll); err != nil {
		return err
	}
	for i := range st.rows {
		r := &st.rows[i]
		if err := s.retryFull(ctx, func() error { return s.Put(Space(r.key[0]), r.key[1:], r.value, false) }); err != nil {
			return err
		}
	}
	if st.hasSlot {
		s.SetSlot(s.r.store.importedSlot(st.slot))
	}
	return nil
}
