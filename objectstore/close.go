package objectstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/internal/guard"
)

// ending is the cause of the end of a store.
type ending struct {
	failure error // nil if it was closed
	refusal error // the error for callers: ErrFenced and the reason
}

// A store ends in this order: ended is set, the queue is shut, and the committer commits or drops the undurable
// layers. So a Commit that has not seen ended either finds the queue shut or is completed by the committer,
// and a write that waits for memory finds ended set when the wait ends.

// refusal returns nil while the store is open, then an error that is ErrFenced.
func (s *Store) refusal() error {
	if e := s.ended.Load(); e != nil {
		return e.refusal
	}
	return nil
}

// Err returns the cause of the store's failure; nil if it has not failed.
func (s *Store) Err() error {
	if e := s.ended.Load(); e != nil {
		return e.failure
	}
	return nil
}

// leaseInvalid fails the store because an output may not leave. Otherwise an object whose outputs are refused could still write. Any
// goroutine may call it.
func (s *Store) leaseInvalid() {
	if s.failFrom(nil, errLeaseLost) {
		s.refuse(true)
	}
}

// fail makes the store refuse all calls from now on, even if it is being closed. The first cause of a failure stays, and an abandoned
// store does not fail: the end of its last append is no failure. Only the committer calls fail.
func (s *Store) fail(cause error) {
	if !s.failFrom(nil, cause) {
		if e := s.ended.Load(); e.failure == nil && !s.abandoned.Load() {
			s.failFrom(e, cause)
		}
	}
	s.refuse(true)
}

// failFrom makes the store a failed one if it is in this state.
func (s *Store) failFrom(from *ending, cause error) bool {
	failure := fmt.Errorf("dohost: store failed: %w", cause)
	if !s.ended.CompareAndSwap(from, &ending{failure: failure, refusal: fmt.Errorf("%w: %w", ErrFenced, failure)}) {
		return false
	}
	s.opts.Logger.Error("store failed", "err", cause)
	return true
}

// refuse ends the queue and all waits for memory. With abort the committer drops the commits.
func (s *Store) refuse(abort bool) {
	s.queue.end(abort)
	s.budget.close()
}

// reportFailure calls Options.OnFail if the store has failed.
func (s *Store) reportFailure() (reported bool) {
	failure := s.Err()
	if failure != nil && s.opts.OnFail != nil {
		go s.failed(failure)
	}
	return failure != nil
}

// failed calls Options.OnFail.
func (s *Store) failed(failure error) {
	if f := guard.Call(func() { s.opts.OnFail(failure) }); f != nil {
		s.opts.Logger.Error("OnFail panicked", "panic", f.Value, "stack", string(f.Stack))
	}
}

// shutDown makes the store refuse all calls, unless it does already, and waits until it is closed. A shared log that does not accept
// a record is given up after leaseHostTime.
func (s *Store) shutDown(abort bool) {
	s.ended.CompareAndSwap(nil, &ending{refusal: fmt.Errorf("%w: %w", ErrFenced, ErrClosed)})
	s.refuse(abort)
	for wait := leaseHostTime; ; {
		select {
		case <-s.done:
			return
		case <-time.After(wait):
		}
		if wait = leaseHostTime - s.Stalled(); wait <= 0 {
			s.log.Stop(errNoAnswer)
			wait = leaseHostTime
		}
	}
}

// Close makes all commits durable, writes the mark of a clean end and closes the store. Later calls, and later
// commits, are refused with ErrFenced. A shared log that does not accept a record for 10 s fails the store. Close returns
// the error of the store's failure if it has failed, and otherwise the errors of the release of the lease and of the
// database. Closing twice is allowed.
func (s *Store) Close() error {
	s.shutDown(false)
	if err := s.Err(); err != nil {
		return err
	}
	return s.closeErr
}

// Abandon closes the store without committing the queue and without the mark of a clean end: the closest to a crash
// that a living process can get. It drops commits that are in no record yet. It waits for a record in flight, but
// releases no output any more, not even those of that record: they get ErrFenced.
func (s *Store) Abandon() {
	s.BeginAbandon()
	s.shutDown(true)
}

// BeginAbandon is the first half of Abandon: it refuses all later commits, and lets no output leave except those with a
// release that has begun. It does not wait.
func (s *Store) BeginAbandon() {
	s.ended.CompareAndSwap(nil, &ending{refusal: fmt.Errorf("%w: %w", ErrFenced, ErrClosed)})
	s.abandoned.Store(true) // after ended, which is the refusal of the outputs
	s.log.Stop(ErrClosed)
	s.budget.close()
}

// drop removes layers that will not become durable, and releases their outputs with the refusal. The range is not clean before
// the last of these outputs is released.
func (c *committer) drop(parts []part) {
	for _, p := range parts {
		p.r.mu.Lock()
		switch p.g {
		case p.r.inflight:
			p.r.inflight = nil
		case p.r.filling:
			p.r.filling = nil
		default: // FenceDropping has dropped it
			p.r.mu.Unlock()
			continue
		}
		p.r.dropping++
		p.r.mu.Unlock()
		p.r.subtractUndurable(p.g.bytes())
		c.s.budget.give(p.g.bytes())
		p.r.releaseDropped(p.g.outs, c.s.refusal())
	}
}

// dropUndurable drops the layer in flight of one range, which cannot be written, and the younger one that was
// committed after it. The range loses its owner, since the owner has read the dropped writes and may have built on
// them. Other ranges are not affected. The outputs are released with ErrFenced and the cause, after the call of
// Options.OnDropped.
func (r *Range) dropUndurable(g *layer, cause error) {
	r.mu.Lock()
	owner, younger := r.owner, r.filling
	r.beginLocked(Epoch{})
	r.inflight, r.filling = nil, nil
	r.dropping++
	r.mu.Unlock()
	s := r.store
	s.opts.Logger.Error("writes of an object cannot be committed", "object", r.id.String(), "err", cause)
	outs, bytes := g.outs, g.bytes()
	if younger != nil {
		outs = append(outs, younger.outs...)
		bytes += younger.bytes()
	}
	r.subtractUndurable(bytes)
	s.budget.give(bytes)
	go func() {
		if s.opts.OnDropped != nil && owner != (Epoch{}) {
			s.opts.OnDropped(r.id, owner, cause)
		}
		r.releaseDropped(outs, fmt.Errorf("%w: %w", ErrFenced, cause))
	}()
}

// end closes the store. With drained all commits are durable, and end writes the mark of a clean end, unless the store is read-only.
func (c *committer) end(drained bool) {
	s := c.s
	for {
		s.queue.take(&c.work)
		c.dropQueued()
		c.releasePasses()
		if len(c.work.busy) == 0 && s.queue.tryStop() {
			break
		}
	}
	c.ended = true
	reported := s.reportFailure() // before the wait for a base: until then the host does not close itself
	if l, ok := s.log.(*leaseLog); ok {
		l.bases.close()
	}
	if drained && !s.opts.ReadOnly {
		if err := c.writeHost(true); err != nil {
			s.fail(err)
		}
	}
	failure := s.Err()
	if !reported {
		s.reportFailure()
	}
	if s.ship != nil {
		s.ship.close(drained && failure == nil)
	}
	s.closeErr = errors.Join(s.log.Release(), s.closeDB(), s.background.failure())
}

// dropQueued drops filling layers. There are none after a drain.
func (c *committer) dropQueued() {
	for _, r := range c.work.dirty {
		r.mu.Lock()
		r.queued = false
		g := r.filling
		r.mu.Unlock()
		if g != nil {
			c.drop([]part{{r: r, g: g}})
		}
	}
	clear(c.work.dirty)
	c.work.dirty = c.work.dirty[:0]
}

// writeHost writes the host record, in a record of its own, which no snapshot contains before it is durable. Open and
// Close return its error.
func (c *committer) writeHost(clean bool) error {
	c.s.recordLock <- struct{}{}
	defer c.s.release()
	h := c.host
	h.clean = clean
	value, err := h.encode()
	if err != nil {
		return err
	}
	rec := &record{batch: pebbleDB(c.s).NewBatch()}
	if err := pebbleBatch(rec).Set([]byte{keyHost}, value, nil); err != nil {
		return err
	}
	if err := c.addFrame(rec); err != nil {
		return err
	}
	if err = c.appendHost(rec); err != nil {
		return err
	}
	c.frames.durable()
	c.chain.durable()
	return rec.batch.Close()
}

// appendHost appends the record of a host to the log. A shared log that does not answer is given up after leaseHostTime.
func (c *committer) appendHost(rec *record) (err error) {
	late := time.AfterFunc(leaseHostTime, func() { c.s.log.Stop(errNoAnswer) })
	defer late.Stop()
	for {
		if c.tail, err = c.s.log.Append(c.host.generation, c.tail, rec); !repeatable(err) || !c.s.queue.pause(appendRetry) {
			return err
		}
	}
}

// closeDB waits until all calls inside the database have ended, and closes it.
func (s *Store) closeDB() error {
	s.engine.close()
	s.cursors.closeAll()
	s.snapshots.closeAll()
	s.background.close()
	err := s.db.Close()
	return errors.Join(err, s.lock.Close())
}
