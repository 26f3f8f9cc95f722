package objectstore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
	"github.com/dohost/dohost/sharedlog"
)

// identify checks, before the engine is opened, that the directory is of the store that the shared log has. A new directory becomes one.
func (l *leaseLog) identify(c *claim) error {
	newest := l.lease.Newest()
	switch g := l.lease.Generation(); {
	case g == 0 || g > maxGeneration:
		return fmt.Errorf("dohost: the lease has generation %d, want 1 to %d", g, maxGeneration)
	case !l.Valid():
		return errLeaseLost
	case c.copied:
		return fmt.Errorf("%w: the directory is a backup, which begins a history of its own", ErrSharedHistory)
	case newest == 0 && c.isNew:
		return nil
	case newest == 0:
		return fmt.Errorf("%w: the log is empty, and the directory has store %v", ErrSharedHistory, c.Identity)
	}
	f, err := l.record(max(1, l.lease.Base()))
	if errors.Is(err, sharedlog.ErrPurged) {
		err = fmt.Errorf("%w: the base is of record %d: %w", ErrLogDamaged, l.lease.Base(), err)
	}
	if err != nil {
		return err
	}
	l.first = frame.After(&f)
	id := Identity{Store: f.Store.String(), Fork: f.Fork}
	if !c.isNew && c.Identity != id {
		return fmt.Errorf("%w: the log has store %v, and the directory %v", ErrSharedHistory, id, c.Identity)
	}
	c.Identity = id
	return nil
}

// record reads one record of the log.
func (l *leaseLog) record(number uint64) (f frame.Frame, err error) {
	err = fmt.Errorf("%w: record %d: it is missing", ErrLogDamaged, number)
	for b, readErr := range l.lease.Read(l.ctx, number) {
		if err = l.failure(readErr); err != nil {
			break
		}
		var rest []byte
		if f, rest, err = frame.Decode(b); err == nil && (len(rest) > 0 || f.Number != number) {
			err = fmt.Errorf("the log has record %d in its place, followed by %d more bytes", f.Number, len(rest))
		}
		if err != nil {
			err = fmt.Errorf("%w: record %d: %w", ErrLogDamaged, number, err)
		}
		break
	}
	return f, err
}

// replay applies the records that the engine lacks, and returns the chain after them. If the log has purged one of them, the engine is
// emptied, and gets the base first. After a power cut the engine may be empty, although the directory has the store's name.
func (l *leaseLog) replay(id Identity) (*chain, error) {
	c, err := l.newChain(id)
	if err != nil {
		return nil, err
	}
	row, ok, err := l.s.applied()
	if err != nil {
		return nil, err
	}
	if !ok {
		if _, host, err := l.s.appendGet(nil, l.s.db, []byte{keyHost}); host || err != nil {
			return nil, errors.Join(err, fmt.Errorf("%w: no record of the directory is in the log", ErrSharedHistory))
		}
	}
	l.chain = c
	if row.at.Number > 0 || !ok && l.lease.Base() == 0 {
		if row.at.Number > 0 {
			err = l.resume(&row)
		}
		if err == nil {
			err = l.replayAfter()
		}
		if !errors.Is(err, sharedlog.ErrPurged) {
			return c, err
		}
	}
	if err = l.restoreBase(row.at.Number > 0); err == nil {
		err = l.replayAfter()
	}
	if errors.Is(err, sharedlog.ErrPurged) {
		err = fmt.Errorf("%w: the base is of record %d: %w", ErrLogDamaged, l.lease.Base(), err)
	}
	return c, err
}

// resume continues after the last record that the engine has, if the log has the same one.
func (l *leaseLog) resume(row *appliedRow) error {
	newest, at := l.lease.Newest(), row.at
	switch {
	case at.Generation == l.lease.Generation():
		return fmt.Errorf("%w: another Open has used the lease: the directory has record %d of its generation", ErrFenced, at.Number)
	case at.Number > newest:
		return fmt.Errorf("%w: record %d: it is missing; the directory has it, and the newest one of the log is %d", ErrLogDamaged, newest+1, newest)
	}
	f, err := l.record(at.Number)
	if err != nil {
		return err
	}
	if frame.After(&f) != at {
		return fmt.Errorf("%w: record %d: the directory has another one", ErrLogDamaged, at.Number)
	}
	l.chain.at, l.chain.total = at, row.since
	return nil
}

// replayAfter applies the records after the chain's, up to the newest one. The engine batch of a record also has the row that names
// the record, so a crash in between leaves a prefix.
func (l *leaseLog) replayAfter() error {
	c, newest := l.chain, l.lease.Newest()
	if c.at.Number == newest {
		return nil
	}
	for b, err := range l.lease.Read(l.ctx, c.at.Number+1) {
		if err != nil {
			return l.failure(err)
		}
		f, rest, err := c.at.Next(b)
		if err == nil && len(rest) > 0 {
			err = &frame.Error{Number: f.Number, Reason: fmt.Sprintf("%d bytes follow its frame", len(rest))}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLogDamaged, err)
		}
		if c.total += int64(len(b)); c.at.Number == l.lease.Base() {
			c.total = 0
		}
		if err := l.applyFrame(&f, &appliedRow{c.at, c.total}); err != nil {
			return err
		}
		if c.at.Number == newest {
			return nil
		}
	}
	return fmt.Errorf("%w: record %d: it is missing at the end of the log", ErrLogDamaged, c.at.Number+1)
}

// applyFrame applies the operations of a record, or of a part of a base, together with the row that names the record.
func (l *leaseLog) applyFrame(f *frame.Frame, row *appliedRow) error {
	b := pebbleDB(l.s).NewBatch()
	for op, err := range frame.Ops(f.Payload) {
		if err == nil && (op.Key[0] == keyFrame || op.Key[0] == keyApplied) {
			err = errors.New("it changes a row that is no object's")
		}
		if err == nil {
			err = applyOp(b, &op)
		}
		if err != nil {
			return fmt.Errorf("%w: record %d: %w", ErrLogDamaged, f.Number, err)
		}
	}
	if err := b.Set([]byte{keyApplied}, row.encode(), nil); err != nil {
		return err
	}
	return errors.Join(l.apply(b), b.Close())
}

// applyOp adds an operation to an engine batch.
func applyOp(b *pebble.Batch, op *frame.Op) error {
	switch op.Kind {
	case frame.OpSet:
		return b.Set(op.Key, op.Value, nil)
	case frame.OpDelete:
		return b.Delete(op.Key, nil)
	}
	return b.DeleteRange(op.Key, op.Value, nil)
}

// applied returns the row that names the last record of the shared log that the engine has.
func (s *Store) applied() (r appliedRow, ok bool, err error) {
	v, ok, err := s.appendGet(nil, s.db, []byte{keyApplied})
	if !ok || err != nil {
		return r, false, err
	}
	r, err = decodeApplied(v)
	return r, err == nil, err
}

// dropApplied deletes the row that names the last record of a shared log, in the first record of a backup.
func dropApplied(rec *record) error { return rec.delete([]byte{keyApplied}) }
