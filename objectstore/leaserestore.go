package objectstore

import (
	"errors"
	"fmt"
	"io"

	"github.com/dohost/dohost/internal/frame"
)

// restoreBase replaces all rows of the engine by those of the log's base. If the engine has rows of an earlier host, the base is
// verified first: they may be the last copy. The first batch deletes all rows and marks the engine as incomplete, and the batch of the
// last part ends that. So an Open after a crash in between restores the base again.
func (l *leaseLog) restoreBase(used bool) error {
	if l.lease.Base() == 0 {
		return fmt.Errorf("%w: record 1: it is missing, and there is no base", ErrLogDamaged)
	}
	if used {
		if err := l.readBase(func(*frame.Frame, *appliedRow) error { return nil }); err != nil {
			return err
		}
	}
	b := pebbleDB(l.s).NewBatch()
	err := b.DeleteRange([]byte{0}, []byte{0xff}, nil)
	if err == nil {
		err = b.Set([]byte{keyApplied}, new(appliedRow).encode(), nil)
	}
	if err = errors.Join(err, l.apply(b), b.Close()); err != nil {
		return err
	}
	l.s.opts.Logger.Info("restoring the base of the shared log", "record", l.lease.Base())
	return l.readBase(l.applyFrame)
}

// readBase verifies the base, and calls use with each part and the row that is true after it. The chain is then after the base.
func (l *leaseLog) readBase(use func(*frame.Frame, *appliedRow) error) (err error) {
	r, err := l.lease.ReadBase(l.ctx)
	if err != nil {
		return l.failure(fmt.Errorf("reading the base of record %d: %w", l.lease.Base(), err))
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	v, size := frame.NewBase(l.lease.Base()), int64(0)
	for complete := false; !complete; {
		b, err := frame.Read(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return l.failure(fmt.Errorf("reading the base of record %d: %w", l.lease.Base(), err))
		}
		f, err := v.Next(b)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLogDamaged, err)
		}
		size += int64(len(b))
		row := appliedRow{}
		if row.at, complete = v.Position(); !complete {
			row.at = frame.Position{}
		} else if err := l.endBase(r, &row.at); err != nil {
			return err
		}
		if err := use(&f, &row); err != nil {
			return err
		}
	}
	l.chain.at, _ = v.Position()
	l.chain.total = 0
	l.bases.size.Store(size)
	return nil
}

// endBase checks that nothing follows a base, and that it is the state after the record that the log has.
func (l *leaseLog) endBase(r io.Reader, at *frame.Position) error {
	reason := ""
	if n, err := io.ReadFull(r, make([]byte, 1)); n > 0 {
		reason = "bytes follow its last part"
	} else if !errors.Is(err, io.EOF) {
		return l.failure(fmt.Errorf("reading the base of record %d: %w", at.Number, err))
	} else if *at != l.first {
		reason = "the log has another record with its number"
	}
	if reason != "" {
		return fmt.Errorf("%w: the base of record %d: %s", ErrLogDamaged, at.Number, reason)
	}
	return nil
}
