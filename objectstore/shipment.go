package objectstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dohost/dohost/internal/frame"
	"github.com/dohost/dohost/internal/invariants"
)

// shipment is frames that are put as one object. It is kept until the archive has it, so a repeated Put has the same
// content.
type shipment struct {
	name    frame.Name
	content []byte
	after   frame.Position // of its last record
	oldest  time.Time      // of the first record after it, about
	more    bool           // more than one shipment was waiting
	failed  bool           // a Put has failed
}

// read makes a shipment of the durable frames after sh.at. If the store does not have the next one, at is no longer
// linked: the frame was dropped, or a host did not ship its records.
func (sh *shipper) read() error {
	sh.mu.Lock()
	made, waiting := sh.made, sh.bytes-sh.sent
	sh.mu.Unlock()
	if made <= sh.at.Number {
		return nil
	}
	m := &shipment{after: sh.at, oldest: time.Now(), content: sh.reusable(waiting)}
	frames := sh.s.frames
	if sh.pointReads {
		frames = sh.s.singleFrames
	}
	var broken error // the reason why the next frame cannot follow
	for v, err := range frames(sh.at.Number+1, made) {
		switch {
		case err != nil && !damagedRecord(err):
			return fmt.Errorf("reading frames: %w", err)
		case err != nil && !sh.pointReads:
			sh.pointReads = true
			return sh.read()
		}
		if len(m.content) >= sh.opts.shipment {
			f, _, _ := frame.Decode(v) // if it is damaged, the next read finds that
			m.oldest, m.more = sh.durableAt(f.Time), true
			break
		}
		if broken = err; broken == nil {
			_, _, broken = m.after.Next(v)
		}
		if broken != nil {
			break
		}
		m.content = append(m.content, v...)
	}
	if len(m.content) == 0 {
		sh.linked = false
		sh.mu.Lock()
		sh.needsBase = true
		sh.mu.Unlock()
		sh.s.opts.Logger.Warn("records are missing between the archive and the store, a new base is needed", "after", sh.at.Number, "err", broken)
		return nil
	}
	m.name = frame.Name{First: sh.at.Number + 1, Last: m.after.Number}
	sh.shipment = m
	return nil
}

// reusable returns an empty slice for the content of a shipment: the content of the previous shipment, if the waiting bytes
// fit. A slice that one large frame has grown is not kept, nor one of a Put that has failed: an archive may still read it.
func (sh *shipper) reusable(waiting int64) []byte {
	b := sh.spare
	sh.spare = nil
	if size := int(min(waiting, int64(sh.opts.shipment))); cap(b) < size {
		return make([]byte, 0, size+size/8)
	}
	return b[:0]
}

// frames yields the frames from one number to another that the store has, up to an error. A slice is valid until the next one.
func (s *Store) frames(first, last uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		c, err := s.cursor(s.db, frameKey(first), frameKey(last+1))
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = c.close() }() // it was only read
		w := &walker{cursor: c}
		ok, err := w.first()
		for ; ok && err == nil; ok, err = w.next() {
			if !yield(w.value, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// singleFrames is frames by a read for each number, up to the first one that the store does not have. It is slower. It reads newer
// frames than a damaged one in the same store, where an iterator fails.
func (s *Store) singleFrames(first, last uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var v []byte
		for number := first; number <= last; number++ {
			var ok bool
			var err error
			if v, ok, err = s.frame(v[:0], number); !ok && err == nil || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// durableAt returns when a waiting record with this time became durable, about. The clock may have been set since, so the result
// is not before the oldest waiting record became durable, and not after now.
func (sh *shipper) durableAt(t int64) time.Time {
	sh.mu.Lock()
	oldest := sh.oldest
	sh.mu.Unlock()
	now := time.Now()
	at := now.Add(-time.Duration(max(0, now.UnixNano()-t)))
	if at.Before(oldest) {
		return oldest
	}
	return at
}

// confirm is called when the archive has a shipment.
func (sh *shipper) confirm(m *shipment) {
	sh.at, sh.shipment, sh.newest = m.after, nil, archivedAt{m.name, m.after}
	if !m.failed && cap(m.content) <= 2*sh.opts.shipment {
		sh.spare = m.content
	}
	n := int64(len(m.content))
	sh.sinceBase += n
	sh.sentThrough(m.after.Number, n, m.oldest)
}

// sentThrough records that the archive has the records up to a number, by an object of n bytes.
func (sh *shipper) sentThrough(number uint64, n int64, oldest time.Time) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.shipped = max(sh.shipped, number)
	sh.progressLocked()
	sh.uploaded += n
	sh.sent = min(sh.sent+n, sh.bytes)
	sh.oldest = oldest
	if sh.shipped >= sh.made {
		sh.sent, sh.oldest = sh.bytes, time.Time{}
	}
}

// progressLocked wakes the goroutines in await.
func (sh *shipper) progressLocked() {
	invariants.Held(&sh.mu)
	if sh.progress != nil {
		close(sh.progress)
		sh.progress = nil
	}
}

// await waits until the archive is complete up to a record: it has the record, and needs no base to restore it.
func (sh *shipper) await(ctx context.Context, number uint64) error {
	for {
		sh.mu.Lock()
		ready := sh.shipped >= number && !sh.needsBase
		if sh.progress == nil {
			sh.progress = make(chan struct{})
		}
		progress := sh.progress
		sh.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-progress:
		case <-sh.done:
			return sh.s.refusal()
		case <-ctx.Done():
			err := context.Cause(ctx)
			if last := sh.stats().Err; last != nil {
				err = fmt.Errorf("%w; the last error of shipping is: %w", err, last)
			}
			return fmt.Errorf("waiting for record %d in the archive: %w", number, err)
		}
	}
}
