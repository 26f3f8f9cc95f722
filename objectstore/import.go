package objectstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dohost/dohost/internal/errkind"
)

// Errors of Import.
var (
	// ErrExists reports that an object to be imported already has rows, or is being imported.
	ErrExists = errkind.New(errkind.ErrConflict, "object exists")
	// ErrStream reports that a stream is not an export, or is damaged.
	ErrStream = errkind.New(errkind.ErrDamaged, "not a complete export")
)

// importChunk bounds the bytes of rows in a record of an import. The last row may exceed it.
const importChunk = 512 << 10

// Import creates the object id from a stream that Export wrote; the exported object may have had another ID. Its
// alarm gets a new generation. The object must be absent (ErrExists), and cold until Import returns. A large object
// takes several records. Until the last one is durable, and permanently if the host ends before that, Importing returns
// true for it. A new Import first removes the rows of an interrupted import. After an error nothing is left, unless the
// store has failed, or the rows cannot be removed: then Importing still returns true.
//
// Errors: *NameError, ErrReadOnlyStore, ErrExists, ErrStream, ErrFormat, ErrNoSpace, the error of ctx, ErrFenced, and
// the errors of r.
func (s *Store) Import(ctx context.Context, id ID, r io.Reader) error {
	if err := id.Validate(); err != nil {
		return err
	}
	if s.opts.ReadOnly {
		return ErrReadOnlyStore
	}
	remains, ok := s.importing.begin(id)
	if !ok {
		return fmt.Errorf("%w: %s is being imported", ErrExists, id)
	}
	im := &importer{s: s, ctx: ctx, marked: remains}
	im.r = s.Range(id)
	e := s.NewEpoch()
	im.r.Begin(e)
	im.batch = im.r.NewBatch(e)
	err := im.run(id, r)
	im.batch.Discard()
	if err != nil && im.marked {
		err = errors.Join(err, im.remove())
	}
	s.importing.end(id, im.marked)
	return err
}

// importer is a running import.
type importer struct {
	s      *Store
	ctx    context.Context
	r      *Range
	batch  *Batch
	marked bool // the mark is durable, or may be

	// The alarm comes last: it must not fire for half an object.
	slot    Slot
	hasSlot bool
}

func (im *importer) run(id ID, r io.Reader) error {
	if im.marked {
		if err := im.batch.retryFull(im.ctx, im.batch.DeleteAll); err != nil {
			return err
		}
	} else if err := im.wantAbsent(id); err != nil {
		return err
	}
	in := &importStream{dec: msgpack.NewDecoder(bufio.NewReader(r)), sum: newChecksum()}
	if err := in.header(); err != nil {
		return err
	}
	for {
		if err := im.ctx.Err(); err != nil {
			return err
		}
		done, err := in.frame(im)
		if err != nil {
			return err
		}
		if done {
			break
		}
		if im.batch.Bytes() >= importChunk {
			im.batch.g.mark = markSet
			im.marked = true
			if err := im.commit(); err != nil {
				return err
			}
		}
	}
	if im.hasSlot {
		im.batch.SetSlot(im.slot)
	}
	if im.marked {
		im.batch.g.mark = markCleared
	}
	if err := im.commit(); err != nil {
		return err
	}
	im.marked = false
	return nil
}

func (im *importer) wantAbsent(id ID) error {
	sn, err := im.s.Snapshot(im.ctx)
	if err != nil {
		return err
	}
	defer sn.Close()
	if has, err := sn.hasRows(id); err != nil || has {
		if err == nil {
			err = fmt.Errorf("%w: %s", ErrExists, id)
		}
		return err
	}
	return nil
}

// remove deletes the writes of a failed import. It becomes the new owner of the range, since the store takes the
// range from its owner if it cannot read the alarm slot.
func (im *importer) remove() error {
	e := im.s.NewEpoch()
	im.r.Begin(e)
	im.batch = im.r.NewBatch(e)
	if err := im.batch.retryFull(context.WithoutCancel(im.ctx), im.batch.DeleteAll); err != nil {
		im.batch.Discard()
		return err
	}
	im.batch.g.mark = markCleared
	if err := im.commit(); err != nil {
		return err
	}
	im.marked = false
	return nil
}

// commit commits the batch and waits until it is durable. It ignores the ctx: a record cannot be undone, and the importer
// must know whether it is durable.
func (im *importer) commit() error {
	done := make(importResult, 1)
	im.batch.Sync(done)
	if err := im.r.Commit(im.batch); err != nil {
		im.batch.Discard()
		return err
	}
	return <-done
}

type importResult chan error

// Release implements Output.
func (l importResult) Release(err error) { l <- err }
