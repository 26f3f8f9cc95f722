package objectstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/frame"
)

// baseWriter puts a base: the rows of a snapshot. It keeps the snapshot until the archive has all parts, so the store
// keeps the rows that were overwritten since.
type baseWriter struct {
	sn    *Snapshot
	w     *walker
	at    frame.Position // of the snapshot
	ok    bool           // w is at a row
	part  uint32
	last  frame.Sum // of the part before
	bytes int64
	// name and content are the part that the archive does not have yet; nil if there is none.
	name    string
	content []byte
	end     bool // it is the last one
}

// beginBase begins a base of the present durable state.
func (sh *shipper) beginBase() error {
	sn, err := sh.s.Snapshot(sh.ctx)
	if err != nil {
		return err
	}
	newest, ok, err := sh.s.newestFrame(sn.at)
	if err == nil && !ok {
		err = errors.New("the store has no frame")
	}
	b := &baseWriter{sn: sn, at: frame.After(&newest)}
	if err == nil {
		b.w, err = sn.walk(nil, nil)
	}
	if err == nil {
		b.ok, err = b.w.first()
	}
	if err != nil {
		b.close()
		return fmt.Errorf("beginning a base: %w", err)
	}
	sh.base = b
	if !sh.linked { // the records after the base are shipped while its parts are
		sh.at, sh.linked = b.at, true
		sh.mu.Lock()
		sh.needsBase = true
		sh.mu.Unlock()
		sh.sentThrough(b.at.Number, 0, time.Now())
	}
	sh.s.opts.Logger.Info("shipping a base", "record", b.at.Number)
	return nil
}

func (b *baseWriter) close() {
	if b.w != nil {
		_ = b.w.close() // it was only read
	}
	b.sn.Close()
}

// fill makes the next part, with rows of at least this size in bytes, if there are as many.
func (b *baseWriter) fill(size int) (err error) {
	var rows []byte
	for b.ok && err == nil && len(rows) < size {
		if b.w.key[0] != keyFrame {
			rows = frame.AppendSet(rows, b.w.key, b.w.value)
		}
		b.ok, err = b.w.next()
	}
	if err != nil {
		return fmt.Errorf("reading a base: %w", err)
	}
	b.end = !b.ok
	h := b.at.BaseHeader(b.part, b.end, b.last)
	b.content = make([]byte, frame.Size(len(rows)))
	b.last = frame.Encode(b.content, &h, rows)
	b.name = frame.Name{Last: b.at.Number, Part: b.part, End: b.end}.String()
	return nil
}

// putBase puts the next part of the base.
func (sh *shipper) putBase() error {
	b := sh.base
	if b.content == nil {
		if err := b.fill(sh.opts.part); err != nil { // the snapshot is of no use any more
			b.close()
			sh.base = nil
			return err
		}
	}
	if err := sh.opts.Archive.Put(sh.ctx, b.name, b.content); err != nil {
		return err
	}
	n := int64(len(b.content))
	b.bytes += n
	b.part++
	b.content = nil
	sh.mu.Lock()
	sh.uploaded += n
	sh.mu.Unlock()
	if !b.end {
		return nil
	}
	b.close()
	sh.base, sh.baseBytes, sh.sinceBase = nil, b.bytes, 0
	sh.mu.Lock()
	sh.needsBase = !sh.linked // a gap that was found since needs another one
	sh.mu.Unlock()
	sh.s.opts.Logger.Info("shipped a base", "record", b.at.Number, "bytes", b.bytes)
	return nil
}
