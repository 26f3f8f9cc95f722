package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/frame"
)

// archiveReader is an archive that is read.
type archiveReader interface {
	List(ctx context.Context) ([]ArchiveObject, error)
	Get(ctx context.Context, name string) ([]byte, error)
}

// restorer replays an archive into a new database. Its batches are not logged: until finish the directory is no store, and
// before that the database is flushed.
type restorer struct {
	from  archiveReader
	to    RestorePoint
	store *Store // only its fields of the engine are used
	fs    vfs.FS
	dir   string
	lock  io.Closer
	spans []span       // the keys to restore; nil for all
	space func() error // called before each write; nil for none

	base  *frame.Base // verifies the base; nil before it
	part  int         // the next part of the base
	batch replayBatch
	held  int64          // bytes of the frames since the last write of the batch
	at    frame.Position // of the last replayed record
	bytes int64
}

// replay writes the database, and calls use with the rows in it before it is closed.
func (r *restorer) replay(ctx context.Context, p restorePlan, use func() error) (err error) {
	if err := r.openDatabase(); err != nil {
		return err
	}
	if err = r.replayBase(ctx, p.base); err == nil {
		err = r.replayRecords(ctx, p)
	}
	if err == nil {
		err = r.complete(use)
	}
	return errors.Join(err, r.closeDatabase())
}

func (r *restorer) openDatabase() (err error) {
	if r.store.db, err = r.store.openEngine(true); err != nil {
		return err
	}
	r.store.background.reopen()
	r.batch.index = map[string]int{}
	return nil
}

// complete writes the rest of the batch, and calls use. After an error of r.space it may be called again.
func (r *restorer) complete(use func() error) error {
	if err := r.write(); err != nil {
		return err
	}
	if err := r.checkHost(); err != nil {
		return err
	}
	return use()
}

func (r *restorer) closeDatabase() error {
	b := &r.store.background
	err := b.opened()
	b.close()
	return errors.Join(err, r.store.db.Close())
}

func (r *restorer) get(ctx context.Context, n frame.Name) ([]byte, error) {
	content, err := r.from.Get(ctx, n.String())
	r.bytes += int64(len(content))
	if _, described := errors.AsType[laterError](err); err != nil && !described {
		err = fmt.Errorf("reading object %v of the archive: %w", n, err)
	}
	return content, err
}

// damage returns ErrDamagedArchive for a refused frame, and other errors, for instance of the disk, as they are.
func damage(err error) error {
	if _, refused := errors.AsType[*frame.Error](err); refused {
		return fmt.Errorf("%w: %w", ErrDamagedArchive, err)
	}
	return err
}

// replayBase replays the parts of a base. After an error of the archive or of r.space it may be called again: it continues.
func (r *restorer) replayBase(ctx context.Context, base archivedBase) error {
	if r.base == nil {
		r.base = frame.NewBase(base.number)
	}
	for ; r.part < len(base.parts); r.part++ {
		if err := r.writeIfLarge(); err != nil {
			return err
		}
		content, err := r.get(ctx, base.parts[r.part])
		if err != nil {
			return err
		}
		f, err := r.base.Next(content)
		if err == nil {
			err = r.apply(&f)
		}
		if err != nil {
			return damage(err)
		}
	}
	at, complete := r.base.Position()
	if !complete {
		return fmt.Errorf("%w: the base of record %d has no last part", ErrDamagedArchive, base.number)
	}
	r.at = at
	if r.to.Bookmark != "" {
		return r.to.Bookmark.ofHistory(r.identity())
	}
	return nil
}

// replayRecords stops at the last requested record. Times are verified to be in order, so all records after the
// first one that is too new are too new.
func (r *restorer) replayRecords(ctx context.Context, p restorePlan) error {
	for _, o := range p.records {
		if err := follows(o, r.at.Number); err != nil {
			return err
		}
		content, err := r.get(ctx, o.Name)
		if err != nil {
			return err
		}
		end, err := r.replayObject(o, content)
		if err != nil {
			return damage(fmt.Errorf("object %v: %w", o.Name, err))
		}
		if end {
			return nil
		}
	}
	if p.next > r.at.Number+1 {
		return fmt.Errorf("%w: records %d to %d are missing", ErrDamagedArchive, r.at.Number+1, p.next-1)
	}
	return nil
}

// replayObject replays the frames of an object. It returns true after the last requested record.
func (r *restorer) replayObject(o archivedRecords, content []byte) (end bool, err error) {
	if o.First <= r.at.Number {
		if content, err = r.skip(content); err != nil {
			return false, err
		}
	}
	for len(content) > 0 {
		if r.to.Record > 0 && r.at.Number >= r.to.Record {
			return true, nil
		}
		at := r.at
		f, rest, err := at.Next(content)
		if err != nil {
			return false, err
		}
		if !r.to.Time.IsZero() && f.Time > r.to.Time.UnixNano() {
			return true, nil
		}
		if err := r.writeIfLarge(); err != nil {
			return false, err
		}
		if err := r.apply(&f); err != nil {
			return false, err
		}
		r.at, content = at, rest
	}
	if r.at.Number != o.Last {
		return false, &frame.Error{Number: r.at.Number + 1, Reason: "it is missing at the end of its object"}
	}
	return false, nil
}

// skip returns the frames after the newest restored record: a base may be of a record in the middle of an object, and two objects may
// have the same records. The newest restored record must be the same in both.
func (r *restorer) skip(content []byte) ([]byte, error) {
	for len(content) > 0 {
		f, rest, err := frame.Decode(content)
		if err != nil || f.Number > r.at.Number {
			return content, nil // it is verified, or refused, as the next record
		}
		if f.Number == r.at.Number && f.Sum != r.at.Sum {
			return nil, &frame.Error{Number: f.Number, Reason: "two objects have different records with this number, or the base is of another one"}
		}
		content = rest
	}
	return nil, nil
}

// apply adds the operations of a frame to the batch. If there are spans, it adds only the operations on them. The values stay in memory
// until the batch is written. Its error is a *frame.Error.
func (r *restorer) apply(f *frame.Frame) (err error) {
	for op, opErr := range frame.Ops(f.Payload) {
		switch {
		case opErr != nil:
			err = opErr
		case op.Key[0] == keyFrame:
			err = errors.New("it changes a frame")
		case r.spans == nil || slices.ContainsFunc(r.spans, func(s span) bool { return s.concerns(&op) }):
			r.batch.add(&op)
		}
		if err != nil {
			return &frame.Error{Number: f.Number, Reason: err.Error()}
		}
	}
	r.held += int64(frame.Size(len(f.Payload)))
	return nil
}

// writeIfLarge writes the batch if its frames have at least half the size of a memtable.
func (r *restorer) writeIfLarge() error {
	if r.held < r.store.opts.MemTable/2 {
		return nil
	}
	return r.write()
}

// span is a range of keys: from lower, and before upper.
type span struct{ lower, upper []byte }

// spanOf is the span of one key.
func spanOf(key []byte) span { return span{key, append(key[:len(key):len(key)], 0)} }

// concerns reports whether an operation may change a row of the span. A deletion of a range may extend beyond it: there is
// nothing to delete there.
func (s *span) concerns(op *frame.Op) bool {
	if op.Kind == frame.OpDeleteRange {
		return bytes.Compare(op.Key, s.upper) < 0 && bytes.Compare(op.Value, s.lower) > 0
	}
	return bytes.Compare(op.Key, s.lower) >= 0 && bytes.Compare(op.Key, s.upper) < 0
}

// write writes the batch to the database.
func (r *restorer) write() error {
	if r.space != nil {
		if err := r.space(); err != nil {
			return err
		}
	}
	r.held = 0
	b, err := r.batch.take(r.store)
	if err == nil {
		err = errors.Join(pebbleDB(r.store).Apply(b.(*pebble.Batch), pebble.NoSync), r.store.background.flushError())
	}
	return errors.Join(err, b.Close())
}

// checkHost checks that the host record names the same store as the frames.
func (r *restorer) checkHost() error {
	v, closer, err := r.store.db.Get([]byte{keyHost})
	if err != nil {
		return fmt.Errorf("%w: record %d has no host record: %w", ErrDamagedArchive, r.at.Number, err)
	}
	host, err := decodeHostRecord(bytes.Clone(v))
	if err = errors.Join(err, closer.Close()); err != nil {
		return err
	}
	if host.identity != r.identity() {
		return fmt.Errorf("%w: its frames are of store %v, its rows of %v", ErrDamagedArchive, r.identity(), host.identity)
	}
	return nil
}
