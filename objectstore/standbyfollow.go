package objectstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/frame"
)

// The bounds of the time between two listings of the archive. A list of many objects takes long, so within these bounds the pause is ten
// times as long as the list.
const (
	followEvery  = time.Second
	followAtMost = time.Minute
)

// Follow applies the records of the archive as they come, until ctx ends or the standby is promoted; then it returns nil. It lists the
// archive about once a second; if a list takes longer than 100 ms, the pause is ten times as long as the list, but at most a minute. Status
// reports an archive that cannot be read or lacks a record, and a disk that is almost full; Follow then tries again.
//
// Errors: ErrDamagedArchive with the number of the record, ErrForeignArchive, ErrForeign, ErrClosed, errors of the disk; and, if ctx ends while a read of
// the archive hangs, an error with the name of the read.
func (y *Standby) Follow(ctx context.Context) error {
	for {
		pause, err := y.pass(ctx)
		if _, hangs := errors.AsType[*hangingError](err); ctx.Err() != nil && !hangs {
			return nil
		}
		if err != nil {
			return fmt.Errorf("dohost: standby: %w", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if read := y.from.runningRead(); read != nil {
				return fmt.Errorf("dohost: standby: %w: %w", context.Cause(ctx), read)
			}
			return nil
		case <-y.promoted:
			timer.Stop()
			return nil
		}
	}
}

// errInterrupted ends a pass in favor of a promotion.
var errInterrupted = errors.New("the standby is being promoted")

// pass applies the records that the archive has now, and returns the time until the next pass.
func (y *Standby) pass(ctx context.Context) (time.Duration, error) {
	ctx, err := y.acquire(ctx, true)
	if err != nil {
		return 0, err
	}
	defer y.release()
	select {
	case <-y.promoted:
		return followEvery, nil
	default:
	}
	if err = y.catchUp(ctx); errors.Is(err, errInterrupted) {
		err = nil
	}
	return max(min(max(followEvery, 10*y.listTook), followAtMost), y.retry), err
}

// catchUp applies the records that the archive has. It returns an error if the standby must stop, and otherwise sets the reason to
// wait, if there is one.
func (y *Standby) catchUp(ctx context.Context) error {
	why, err := y.applyListed(ctx)
	if ctx.Err() != nil {
		ended := context.Cause(ctx)
		if hangs, ok := errors.AsType[*hangingError](err); ok && ended != error(hangs) {
			ended = fmt.Errorf("%w: %w", ended, hangs)
		}
		return ended
	}
	if later, ok := errors.AsType[laterError](err); ok {
		why, err = later.Error(), nil
	}
	if err == nil {
		y.wait(why)
	}
	return err
}

// applyListed lists the archive and applies the records. A list of a folder is not of one moment: it may have an object and lack one
// that was put before it. So it lists a second time before it reports a missing record.
func (y *Standby) applyListed(ctx context.Context) (why string, err error) {
	y.retry = 0
	for try := 0; ; try++ {
		list, newest, err := y.list(ctx)
		if err != nil {
			return "", err
		}
		if y.store.Load() == nil {
			if len(list.bases) == 0 {
				return "the archive has no complete base yet", nil
			}
			if err := y.begin(ctx, list.bases); err != nil {
				return "", err
			}
		}
		if newest < y.newest { // it was emptied or replaced, or its disk is not mounted
			y.resetCompared()
		}
		y.newest = newest
		if !y.compared && newest > 0 {
			if err := y.compare(ctx, &list); err != nil {
				return "", err
			}
		}
		if err := y.applyRecords(ctx, list.records); err != nil {
			return "", err
		}
		switch at := y.at.Number; {
		case newest == at:
			return "", nil
		case newest < at:
			return fmt.Sprintf("the newest record of the archive is %d, the standby has record %d", newest, at), nil
		case try > 0:
			return y.missing(&list), nil
		}
	}
}

// list returns the objects of the archive, and its newest record.
func (y *Standby) list(ctx context.Context) (list archiveList, newest uint64, err error) {
	begun := time.Now()
	objects, err := y.from.List(ctx)
	y.listTook = time.Since(begun)
	if err != nil {
		return list, 0, err
	}
	list = parseObjects(objects)
	for _, o := range list.records {
		newest = max(newest, o.Last)
	}
	for _, b := range list.bases {
		newest = max(newest, b.number)
	}
	y.listed(newest)
	return list, newest, nil
}

// applyRecords applies the objects that continue the last applied record, one after the other. Two objects may have the same records.
func (y *Standby) applyRecords(ctx context.Context, records []archivedRecords) error {
	for {
		for len(records) > 0 && records[0].Last <= y.at.Number {
			records = records[1:]
		}
		i := slices.IndexFunc(records, func(o archivedRecords) bool { return o.First <= y.at.Number+1 && o.Last > y.at.Number })
		if i < 0 {
			return nil
		}
		if err := y.applyObject(ctx, records[i]); err != nil {
			y.resetCompared()
			return err
		}
	}
}

// missing is the reason to wait if the archive has later records than the next one.
func (y *Standby) missing(list *archiveList) string {
	var first uint64 // the first record after the missing ones
	for _, o := range list.records {
		if o.First > y.at.Number && (first == 0 || o.First < first) {
			first = o.First
		}
	}
	why := ""
	if first > 0 {
		why = fmt.Sprintf("records %d to %d are missing in the archive", y.at.Number+1, first-1)
	} else {
		why = fmt.Sprintf("record %d is missing in the archive", y.at.Number+1)
	}
	if n := len(list.bases); n > 0 && list.bases[n-1].number > y.at.Number {
		why += fmt.Sprintf("; a new standby in an empty directory would begin after them, with the base of record %d", list.bases[n-1].number)
	}
	return why
}

// applyObject verifies and applies the records of an object, in batches. The records before a refused one are applied.
func (y *Standby) applyObject(ctx context.Context, o archivedRecords) error {
	content, err := y.from.Get(ctx, o.Name.String())
	if err != nil {
		return err
	}
	at, err := y.positionBefore(content)
	if err != nil {
		return fmt.Errorf("object %v: %w", o.Name, err)
	}
	var b engineBatch = pebbleDB(y.store.Load()).NewBatch()
	defer func() { _ = b.Close() }() // it has been applied, or is dropped
	var refused error
	for len(content) > 0 {
		next := at
		f, rest, err := next.Next(content)
		if err == nil {
			err = y.checkRecord(&f)
		}
		if refused = err; err != nil {
			break
		}
		if at, content = next, rest; at.Number <= y.at.Number {
			continue
		}
		if err := y.add(ctx, b, &f); err != nil {
			return err
		}
	}
	if refused == nil && at.Number != o.Last {
		refused = &frame.Error{Number: at.Number + 1, Reason: "it is missing at the end of its object"}
	}
	if at.Number > y.at.Number {
		if err := y.apply(ctx, b, &at); err != nil {
			return err
		}
	}
	if refused != nil {
		return fmt.Errorf("%w: object %v: %w", ErrDamagedArchive, o.Name, refused)
	}
	return nil
}

// positionBefore returns the position before the records of an object: the last applied record, or an earlier one if an object has been applied
// in part, or a base is of a record within it, or two objects have the same records. The chain from there is verified, too. The error
// reports that the object is of another store, or of another fork.
func (y *Standby) positionBefore(content []byte) (frame.Position, error) {
	at := y.at
	f, _, err := frame.Decode(content)
	if err != nil { // the caller decodes it again, and reports that
		return at, nil
	}
	if f.Number > 0 && f.Number <= at.Number {
		at.Generation, at.Number, at.Time, at.Sum = f.Generation, f.Number-1, f.Time, f.Prev
	}
	return at, y.ofHistory(&f)
}

// checkRecord checks that a record that continues the one before changes rows of the store only, and that the last applied one is the
// same in the archive.
func (y *Standby) checkRecord(f *frame.Frame) (err error) {
	if f.Number == y.at.Number && frame.After(f) != y.at {
		err = errors.New("the archive has two records with this number")
	}
	for op, opErr := range frame.Ops(f.Payload) {
		if opErr == nil && (op.Key[0] == keyFrame || op.Key[0] == keyApplied) {
			opErr = errors.New("it changes a row that is not part of the state")
		}
		err = errors.Join(err, opErr)
	}
	if err != nil {
		return &frame.Error{Number: f.Number, Reason: err.Error()}
	}
	return nil
}

// maxFollowedBatch bounds an engine batch of a standby, in bytes; the last record may exceed it.
const maxFollowedBatch = 512 << 10

// add adds the operations of a record to the batch, and applies the batch if it is large.
func (y *Standby) add(ctx context.Context, b engineBatch, f *frame.Frame) error {
	for op, err := range frame.Ops(f.Payload) {
		if err := errors.Join(err, applyOp(b.(*pebble.Batch), &op)); err != nil {
			return err
		}
		y.marks = y.marks || op.Key[0] == keyImporting
	}
	if len(b.Repr()) < maxFollowedBatch {
		return nil
	}
	at := frame.After(f)
	return y.apply(ctx, b, &at)
}

// apply makes the batch durable together with the row that names its last record, and empties it.
func (y *Standby) apply(ctx context.Context, b engineBatch, at *frame.Position) error {
	s := y.store.Load()
	if err := s.space.check(); err != nil {
		return laterError{err}
	}
	row := appliedRow{at: *at}
	if err := b.(*pebble.Batch).Set([]byte{keyApplied}, row.encode(), nil); err != nil {
		return err
	}
	if err := s.applyFollowed(ctx, b, y.marks); err != nil {
		return err
	}
	y.marks = false
	s.space.wrote(int64(b.Len()))
	b.(*pebble.Batch).Reset()
	y.applied(at)
	return nil
}

// applyFollowed applies a batch of a standby between two snapshots. If that fails the store fails, as after a record that cannot be
// made durable: its readers must not see rows that a power cut could undo. marks reports that the batch changes marks of imports.
func (s *Store) applyFollowed(ctx context.Context, b engineBatch, marks bool) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	if !s.engine.acquire() {
		return s.refusal()
	}
	defer s.engine.release()
	defer s.exitOnPanic()
	err := pebbleDB(s).ApplyNoSyncWait(b.(*pebble.Batch), pebble.Sync)
	if err == nil {
		err = errors.Join(b.SyncWait(), s.background.failure())
	}
	if err == nil && marks {
		err = s.importing.load(s)
	}
	if err != nil && s.failFrom(nil, err) {
		s.refuse(true)
	}
	return err
}
