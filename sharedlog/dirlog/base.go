package dirlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dohost/dohost/sharedlog"
)

// base is a published base. Its slot names it.
type base struct {
	number     uint64 // of its last record; 0 if there is no base
	size       int64
	slot       uint64
	generation uint64 // of the lease that wrote it
}

const basePayload = 8 + 8

func (b *base) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, b.number), uint64(b.size))
}

func (b *base) decode(payload []byte) {
	b.number, b.size = binary.BigEndian.Uint64(payload), int64(binary.BigEndian.Uint64(payload[8:]))
}

// file returns the path of the content.
func (b *base) file(l *Log) string {
	return filepath.Join(l.dir, "bases", fmt.Sprintf("%016x-%016x", b.slot, b.generation))
}

// newestBase returns the newest base. Files whose slot has another content were not published.
func (l *Log) newestBase() (base, error) {
	files, err := os.ReadDir(filepath.Join(l.dir, "bases")) // sorted
	if err != nil {
		return base{}, fmt.Errorf("dirlog: %w", err)
	}
	for _, file := range slices.Backward(files) {
		var b base
		if _, err := fmt.Sscanf(file.Name(), "%x-%x", &b.slot, &b.generation); err != nil {
			return b, fmt.Errorf("dirlog: damaged log: %s is no base", filepath.Join(l.dir, "bases", file.Name()))
		}
		s, err := l.read(b.slot)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return b, err
		case s.kind != kindBase || s.generation != b.generation:
			continue
		case len(s.payload) != basePayload:
			return b, fmt.Errorf("dirlog: damaged log: %s names no base", l.path(b.slot))
		}
		b.decode(s.payload)
		return b, nil
	}
	return base{}, nil
}

// cleanBases removes the content of other bases than the newest one, if this owner or an earlier one has written it: this owner may be a
// former one itself by now. A failure leaves files that do no harm.
func (l *Log) cleanBases(generation uint64, newest *base) {
	files, err := os.ReadDir(filepath.Join(l.dir, "bases"))
	if err != nil {
		return
	}
	for _, file := range files {
		var b base
		if _, err := fmt.Sscanf(file.Name(), "%x-%x", &b.slot, &b.generation); err != nil || b.generation > generation {
			continue
		}
		if path := b.file(l); path != newest.file(l) {
			_ = os.Remove(path)
		}
	}
}

// Base implements [sharedlog.Lease].
func (o *lease) Base() uint64 { return o.acquired.number }

// ReadBase implements [sharedlog.Lease].
func (o *lease) ReadBase(ctx context.Context) (io.ReadCloser, error) {
	f, err := os.Open(o.acquired.file(o.log))
	if err != nil {
		return nil, fmt.Errorf("dirlog: damaged log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() != o.acquired.size {
		err = fmt.Errorf("damaged log: %s has %d bytes, want %d", f.Name(), info.Size(), o.acquired.size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dirlog: %w", err), f.Close())
	}
	return &baseReader{f, ctx}, nil
}

// baseReader ends with its context.
type baseReader struct {
	*os.File
	ctx context.Context
}

// Read implements io.Reader.
func (r *baseReader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.File.Read(b)
}

// baseWriter counts bytes, and ends with its context.
type baseWriter struct {
	f    *os.File
	ctx  context.Context
	size int64
}

// Write implements io.Writer.
func (w *baseWriter) Write(b []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	n, err := w.f.Write(b)
	w.size += int64(n)
	return n, err
}

// WriteBase implements [sharedlog.Lease].
func (o *lease) WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error {
	if err := o.ended(ctx); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Join(o.log.dir, "tmp"), fmt.Sprintf("%d-base-", o.generation))
	if err != nil {
		return fmt.Errorf("dirlog: %w: %w", sharedlog.ErrUnavailable, err)
	}
	defer os.Remove(temp.Name()) // one that stays is removed by the next owner
	w := &baseWriter{f: temp, ctx: ctx}
	err = write(w)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	defer o.endTurn()
	if err := o.ended(ctx); err != nil { // the next owner may have removed the file
		return err
	}
	return o.publish(base{number: number, size: w.size, slot: o.slot + 1, generation: o.generation}, temp.Name())
}

// publish gives the content of a base its name, and then fills the slot that makes it the newest one. The caller has the turn.
func (o *lease) publish(b base, temp string) error {
	switch {
	case o.unknown != nil:
		return fmt.Errorf("dirlog: the content of slot %d is not known: %w", b.slot, sharedlog.ErrUnavailable)
	case b.number == 0 || b.number < o.base.number || b.number > o.number:
		return fmt.Errorf("dirlog: base of record %d, the newest base is %d and the newest record %d", b.number, o.base.number, o.number)
	}
	path := b.file(o.log)
	err := os.Rename(temp, path)
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("dirlog: %w: %w", sharedlog.ErrUnavailable, err)
	}
	former := o.base
	if err := o.put(&slot{kindBase, o.generation, o.number, b.encode()}); err != nil {
		if o.unknown == nil {
			_ = os.Remove(path)
		}
		return fmt.Errorf("dirlog: %w", err)
	}
	o.base = b
	if former.number > 0 {
		_ = os.Remove(former.file(o.log)) // the next owner removes one that stays
	}
	return nil
}

// Purge implements [sharedlog.Lease]. The beginnings of ownerships stay: the slot after the last one that a former owner knows must
// be filled for ever.
func (o *lease) Purge(ctx context.Context, before uint64) error {
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	newest := o.base.number
	o.endTurn()
	if before > newest {
		return fmt.Errorf("dirlog: purge of the records before %d, the newest base is %d", before, newest)
	}
	err := o.log.each(1, func(n uint64) (more bool, err error) {
		if err := o.ended(ctx); err != nil {
			return false, err
		}
		s, err := o.log.read(n)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return true, nil
		case err != nil || s.number >= before:
			return false, err
		case s.kind == kindOwner:
			return true, nil
		}
		if err := os.Remove(o.log.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("dirlog: %w", err)
		}
		if strings.HasSuffix(o.log.path(n), "fff") { // the last one of its folder, which stays if it is not empty
			_ = os.Remove(o.log.folder(n))
		}
		return true, nil
	})
	return err
}

// ended returns an error if the lease or the context has ended.
func (o *lease) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !o.Valid() {
		return fmt.Errorf("dirlog: generation %d: %w", o.generation, sharedlog.ErrFenced)
	}
	return nil
}
