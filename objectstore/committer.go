package objectstore

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/sharedlog"
)

const (
	// maxRecord is the size in bytes that ends the growth of a record. Its last layer may exceed it.
	maxRecord = 1 << 20
	// maxReleasePasses bounds the passes over the ranges that keep getting outputs before the committer takes the next
	// record.
	maxReleasePasses = 8
	// maxLastDurable bounds the bytes of the layer that an active object keeps in memory after it has become durable. If
	// the layer is the whole object, later layers are merged into it up to twice that size.
	maxLastDurable = 4 << 10
	// appendRetry is the delay before the committer appends a record again.
	appendRetry = 100 * time.Millisecond
)

// committer makes records and releases outputs. Only its goroutine uses it.
type committer struct {
	s      *Store
	host   hostRecord      // of this host, without the mark of a clean end
	tail   uint64          // the number of the last appended record
	lost   <-chan struct{} // closed when the lease on a shared log has ended; nil without one
	work   work            // taken from the queue and not done
	rec    record          // the record in flight; its parts are reused
	unused []*layer        // layers of the record that are recycled after it
	dead   int64           // weight of the deletions since the last flush by flushDead
	frames *framer         // nil if no archive gets the records
	chain  *chain          // nil if there is no shared log
	copied bool            // the store is a backup that no host has opened before
	ended  bool            // end was called
}

// run commits until the store is closed or fails, and then closes the database.
func (c *committer) run() {
	defer close(c.s.done)
	defer c.failOnExit()
	for {
		c.s.queue.take(&c.work)
		c.releasePasses()
		switch {
		case c.work.abort:
			c.end(false)
			return
		case len(c.work.dirty) > 0:
			if !c.commit() {
				c.end(false)
				return
			}
		case len(c.work.busy) > 0:
		case c.work.shut:
			c.end(true)
			return
		case !c.waitForWork():
			c.s.fail(errLeaseLost)
			c.end(false)
			return
		}
	}
}

// waitForWork waits until there may be work. It returns false if the lease is lost.
func (c *committer) waitForWork() bool {
	if c.lost == nil {
		<-c.s.queue.wake // receiving from one channel is cheaper than the select below
		return true
	}
	select {
	case <-c.s.queue.wake:
		return true
	case <-c.lost:
		return false
	}
}

// failOnExit fails the store if the committer's goroutine ends by a panic or by
// runtime.Goexit: nothing would become durable any more, and no caller would be answered.
func (c *committer) failOnExit() {
	if c.ended {
		return
	}
	cause := errors.New("the committer's goroutine was ended by runtime.Goexit")
	if v := recover(); v != nil {
		cause = fmt.Errorf("the committer panicked: %v", v)
	}
	c.s.opts.Logger.Error("the committer's goroutine ended", "err", cause, "stack", string(debug.Stack()))
	c.s.fail(cause)
	// Each call skips the output that ended the previous call.
	for guard.Run(c.releaseDurable) != nil {
	}
	for guard.Run(func() { c.drop(c.rec.parts) }) != nil {
	}
	c.end(false)
}

// commit makes one record durable and releases its outputs. It returns false if the store has failed.
func (c *committer) commit() bool {
	// Goroutines that can run now may commit more, which then shares the sync. On one core no other goroutine would
	// run before this one waits for the disk, with a record of one commit.
	goruntime.Gosched()
	c.s.hook(StageTake, c.work.objects)
	// Commits that came during the hook belong to this record.
	c.s.queue.take(&c.work)
	if c.work.abort {
		return true
	}
	if !c.append() {
		return false
	}
	if len(c.rec.parts) > 0 {
		c.s.hook(StageDurable, c.rec.objects)
		c.durable()
		return c.flushDead()
	}
	return true
}

// append takes a record and makes it durable. Snapshots are taken before or
// after, never between. It returns false if the store has failed.
func (c *committer) append() bool {
	s, rec := c.s, &c.rec
	s.recordLock <- struct{}{}
	defer func() { <-s.recordLock }()

	clear(rec.parts)
	*rec = record{parts: rec.parts[:0]}
	size := c.collect()
	if len(rec.parts) == 0 {
		return true
	}
	s.recordSince.Store(int64(time.Since(s.opened)) + 1)
	defer s.recordSince.Store(0)
	if c.readSlots(); len(rec.parts) == 0 {
		return true
	}
	rec.batch = pebbleDB(s).NewBatch(pebble.WithInitialSizeBytes(size))
	err := rec.encode()
	if err == nil {
		rec.size = int64(rec.batch.Len())
		err = c.addFrame(rec)
	}
	if err == nil {
		err = c.appendToLog()
	}
	if err == nil {
		c.frames.durable()
		c.chain.durable()
		err = rec.batch.Close()
	}
	if err != nil {
		// The engine batch is left to the engine, which may still refer to it.
		s.fail(err)
		c.drop(rec.parts)
		return false
	}
	return true
}

// readSlots reads the alarm slots that the record changes; a record needs nothing else from the engine. It removes
// the parts with unreadable slots from the record.
func (c *committer) readSlots() {
	for i := 0; i < len(c.rec.parts); {
		p := c.rec.parts[i]
		if err := c.rec.parts[i].readSlot(); err != nil {
			c.rec.parts = slices.Delete(c.rec.parts, i, i+1)
			p.r.dropUndurable(p.g, err)
			continue
		}
		i++
	}
}

// appendToLog appends the record in flight to the log, and repeats that while the error permits. The first error is logged, and the
// end of the repetition.
func (c *committer) appendToLog() error {
	for failures := 0; ; failures++ {
		tail, err := c.s.log.Append(c.s.generation, c.tail, &c.rec)
		if err == nil {
			if c.tail = tail; failures > 0 {
				c.s.opts.Logger.Info("the shared log has accepted the record", "after", c.recordAge(), "failures", failures)
			}
			return nil
		}
		if !repeatable(err) {
			return err
		}
		if failures == 0 {
			c.s.opts.Logger.Warn("the shared log has not accepted a record, repeating", "err", err)
		}
		if !c.s.queue.pause(appendRetry) {
			return err
		}
	}
}

// recordAge returns how long the committer has had the record in flight.
func (c *committer) recordAge() time.Duration {
	return time.Since(c.s.opened) - time.Duration(c.s.recordSince.Load())
}

// errLeaseLost is the cause of the failure of a store that has lost its lease.
var errLeaseLost = fmt.Errorf("%w: the lease on the shared log has ended", ErrFenced)

// repeatable reports whether an append that failed with this error is repeated.
func repeatable(err error) bool {
	return errors.Is(err, sharedlog.ErrUnknown) || errors.Is(err, sharedlog.ErrUnavailable)
}

// collect makes filling layers the layers in flight, until the record is large enough. It returns their approximate size in
// the record, in bytes.
func (c *committer) collect() (size int) {
	n := 0
	for _, r := range c.work.dirty {
		if size >= maxRecord || c.s.opts.OneObject && len(c.rec.parts) > 0 {
			break
		}
		n++
		r.mu.Lock()
		r.queued = false
		g := r.filling
		r.filling = nil
		r.inflight = g
		r.mu.Unlock()
		if g == nil {
			continue // a fence dropped it
		}
		c.rec.parts = append(c.rec.parts, part{r: r, g: g})
		size += g.size(len(r.prefix))
	}
	left := copy(c.work.dirty, c.work.dirty[n:])
	clear(c.work.dirty[left:])
	c.work.dirty = c.work.dirty[:left]
	return size
}

// durable marks the record as durable and releases its outputs.
func (c *committer) durable() {
	s := c.s
	if s.opts.OnAlarms != nil && len(c.rec.changes) > 0 {
		s.opts.OnAlarms(c.rec.changes)
	}
	var freed, batches int64
	for i := range c.rec.parts {
		p := &c.rec.parts[i]
		n := p.g.bytes()
		freed += n
		p.r.subtractUndurable(n)
		batches += int64(p.g.batches)
		if spent := p.markDurable(); spent != nil {
			c.unused = append(c.unused, spent)
		}
	}
	s.budget.give(freed)
	s.counts.records.Add(1)
	s.counts.batches.Add(batches)
	s.counts.bytes.Add(c.rec.size)
	s.space.wrote(c.rec.size)
	c.releaseDurable()
	s.queue.recycle(c.unused)
	clear(c.unused)
	c.unused = c.unused[:0]
}

// releaseDurable releases the outputs of a record that is durable.
func (c *committer) releaseDurable() {
	for i := range c.rec.parts {
		if p := &c.rec.parts[i]; p.mustRelease {
			p.mustRelease = false
			c.release(p.r, p.g.outs)
		}
		if g := c.rec.parts[i].g; cap(g.outs) > maxSpareOuts { // it may be kept with the range
			g.outs = nil
		}
	}
}

// markDurable marks a layer as durable, and returns a layer that is no longer used: the previous lastDurable or, if the layer
// was merged into it or is too large to be kept, the layer itself. The committer releases its outputs. If another goroutine is releasing outputs of the
// range, they join its queue instead.
func (p *part) markDurable() (spent *layer) {
	r := p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	spent = r.markDurableLocked(p.g)
	if p.mustRelease = !r.releasing; p.mustRelease {
		r.releasing = true
		return spent
	}
	r.out = append(r.out, p.g.outs...)
	clear(p.g.outs)
	return spent
}

func (r *Range) markDurableLocked(g *layer) (spent *layer) {
	invariants.Held(&r.mu)
	r.addRecordLocked(g)
	r.inflight, r.reading = nil, nil
	g.clearing = clearing{}
	if r.whole && !g.cleared && r.lastDurable.set.bytes+g.set.bytes <= 2*maxLastDurable {
		r.mergeDurableLocked(g)
		return g
	}
	spent, r.whole = r.lastDurable, r.whole && g.cleared
	r.lastDurable = g
	if g.set.bytes > maxLastDurable || g.set.capacity > maxSpareArena {
		r.lastDurable, r.whole, spent = nil, false, g
	}
	return spent
}

// release releases outputs of a range as its releaser. It makes one pass: a range that keeps getting outputs must not
// delay the others.
func (c *committer) release(r *Range, outs []emission) {
	if r.releasePass(outs) {
		c.work.busy = append(c.work.busy, r)
	}
}

// releasePasses continues the releases of ranges that keep getting outputs, for a while.
func (c *committer) releasePasses() {
	for i := 0; i < maxReleasePasses && len(c.work.busy) > 0; i++ {
		round := c.work.busy
		c.work.busy = nil
		for _, r := range round {
			c.release(r, r.takeReleasable())
		}
	}
}
