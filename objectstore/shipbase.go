package objectstore

import (
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/frame"
)

// The delays of bases. A base keeps a snapshot, so it is dropped when puts have failed for a while. The records do not wait for
// the next one.
const (
	baseFailTime = time.Minute // of failed attempts, until a base is dropped
	baseDelay    = time.Minute // after the first base that failed; doubled after each other one
	maxBaseDelay = time.Hour
)

// baseRetry decides when a base is tried again.
type baseRetry struct {
	failed int       // bases in sequence that were dropped
	at     time.Time // the time of the next attempt; zero before the first failure
}

// baseWriter puts a base: the rows of a snapshot. It keeps the snapshot until the archive has all parts, or until it
// is dropped, so the store keeps the rows that were overwritten since.
type baseWriter struct {
	sn    *Snapshot
	w     *walker
	at    frame.Position // of the snapshot
	ok    bool           // w is at a row
	part  uint32
	last  frame.Sum // of the previous part
	bytes int64
	// name and content are the part that the archive does not have yet; nil if there is none.
	name    string
	content []byte
	end     bool // name and content are the last part
	// failing is the first of the failed attempts since the last put; zero if there is none. tries is their number.
	failing time.Time
	tries   int
}

// wantsBase reports whether a base is being put or should be begun.
func (sh *shipper) wantsBase() bool {
	return sh.base != nil || !sh.linked || sh.stats().NeedsBase || sh.sinceBase > sh.opts.BaseAfter+4*sh.baseBytes
}

// baseDue reports whether a base is wanted and the delay after a failure has passed.
func (sh *shipper) baseDue() bool { return !time.Now().Before(sh.retry.at) && sh.wantsBase() }

// baseTimer returns a channel that has a value when a base that has failed is tried again; nil if none has.
func (sh *shipper) baseTimer() (due <-chan time.Time, stop func()) {
	if sh.retry.at.IsZero() || !sh.wantsBase() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(sh.retry.at))
	return timer.C, func() { timer.Stop() }
}

// stepBase begins a base, or puts its next part, if one is due. A failure is reported here, and does not fail the shipping of
// records. It returns false if nothing was put.
func (sh *shipper) stepBase() (more bool) {
	if !sh.baseDue() {
		return false
	}
	try := sh.putBase
	if sh.base == nil {
		try = sh.beginBase
	}
	if err := try(); err != nil {
		sh.baseFailed(err)
		return false
	}
	return true
}

// baseFailed reports a failed attempt and sets the time of the next one.
func (sh *shipper) baseFailed(err error) {
	if sh.ctx.Err() != nil {
		return
	}
	sh.mu.Lock()
	repeated := sh.baseErr != nil && sh.baseErr.Error() == err.Error()
	sh.failures++
	sh.baseErr = err
	sh.mu.Unlock()
	if !repeated {
		sh.s.opts.Logger.Error("a base cannot be shipped", "err", err)
	}
	if sh.expireBase(); sh.base != nil {
		sh.retry.at = time.Now().Add(backoff.Delay(sh.base.tries, shipRetry, maxShipRetry))
		sh.base.tries++
	} else if !time.Now().Before(sh.retry.at) { // it could not be begun or read
		sh.delayBase()
	}
}

// expireBase is called after each failed attempt, of records or of a base. It drops the base after a minute of failures.
func (sh *shipper) expireBase() {
	b, now := sh.base, time.Now()
	switch {
	case b == nil:
	case b.failing.IsZero():
		b.failing = now
	case now.Sub(b.failing) >= baseFailTime:
		sh.s.opts.Logger.Warn("the base is dropped after a minute of failures, another one is begun later", "record", b.at.Number)
		sh.dropBase()
		sh.delayBase()
	}
}

// delayBase delays the next base, after one that was not completed.
func (sh *shipper) delayBase() {
	sh.retry.at = time.Now().Add(backoff.Delay(sh.retry.failed, baseDelay, maxBaseDelay))
	sh.retry.failed++
}

// beginBase begins a base of the present durable state.
func (sh *shipper) beginBase() error {
	b, err := sh.freeze()
	if err != nil {
		return err
	}
	if err := b.walk(nil, []byte{keyFrame}); err != nil {
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

// freeze returns the writer of a base of the present durable state. It reads no frame: the newest one before this host may be
// damaged.
func (sh *shipper) freeze() (*baseWriter, error) {
	if err := sh.s.acquire(sh.ctx); err != nil {
		return nil, err
	}
	defer sh.s.release()
	sn, err := sh.s.freeze()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return &baseWriter{sn: sn, at: sh.last}, err
}

// walk moves to the first row of a range that begins or ends at the frames. If there is none before them, it moves to the first
// row after them. Frames are not read: many may wait, and one may be damaged.
func (b *baseWriter) walk(lower, upper []byte) (err error) {
	if b.w, err = b.sn.walk(lower, upper); err != nil {
		return err
	}
	b.ok, err = b.w.first()
	return b.skipFrames(err)
}

// next moves to the next row.
func (b *baseWriter) next() (err error) {
	b.ok, err = b.w.next()
	return b.skipFrames(err)
}

// skipFrames continues after the frames if there is no other row before them.
func (b *baseWriter) skipFrames(err error) error {
	if b.ok || err != nil || b.w.upper == nil {
		return err
	}
	if err := b.w.close(); err != nil {
		return err
	}
	return b.walk([]byte{keyHost}, nil)
}

func (b *baseWriter) close() {
	if b.w != nil {
		_ = b.w.close() // it was only read
	}
	b.sn.Close()
}

// dropBase ends the base that is being put, if there is one.
func (sh *shipper) dropBase() {
	if sh.base != nil {
		sh.base.close()
		sh.base = nil
	}
}

// fill makes the next part. Its rows have at least this size in bytes, except in the last part.
func (b *baseWriter) fill(size int) (err error) {
	var rows []byte
	for b.ok && err == nil && len(rows) < size {
		if b.w.key[0] != keyApplied { // the header has it
			rows = frame.AppendSet(rows, b.w.key, b.w.value)
		}
		err = b.next()
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
			sh.dropBase()
			return err
		}
	}
	if err := sh.opts.Archive.Put(sh.ctx, b.name, b.content); err != nil {
		return err
	}
	n := int64(len(b.content))
	b.bytes += n
	b.part++
	b.content, b.failing, b.tries = nil, time.Time{}, 0
	sh.mu.Lock()
	sh.uploaded += n
	sh.baseErr = nil
	sh.mu.Unlock()
	if !b.end {
		return nil
	}
	b.close()
	sh.newest = archivedAt{frame.Name{Last: b.at.Number, End: b.part == 1}, b.at}
	sh.base, sh.baseBytes, sh.sinceBase, sh.retry = nil, b.bytes, 0, baseRetry{}
	sh.mu.Lock()
	sh.needsBase = !sh.linked // a gap that was found since needs another one
	sh.progressLocked()
	sh.mu.Unlock()
	sh.s.opts.Logger.Info("shipped a base", "record", b.at.Number, "bytes", b.bytes)
	return nil
}
