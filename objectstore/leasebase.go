package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/internal/backoff"
)

// Bases of a shared log: see Bases in the package comment.

// The default size of the records after a base, and the delays of bases.
const (
	logBaseAfter     = 64 << 20
	logBaseRetry     = time.Second // after the first failure; doubled after each other one
	maxLogBaseRetry  = 5 * time.Minute
	logBaseCloseTime = 5 * time.Second // of Close, for a base that does not end with its context
)

// bases writes the bases of a shared log, and purges the records before them, on a goroutine of its own. The committer never waits for it.
type bases struct {
	l     *leaseLog
	after int64
	part  int
	wake  chan struct{} // cap 1
	done  chan struct{} // closed when the goroutine has ended
	ctx   context.Context
	end   context.CancelFunc

	cut  atomic.Int64 // chain.total at the newest base
	have atomic.Int64 // chain.total
	size atomic.Int64 // of the newest base, if this host has written or restored it

	mu    sync.Mutex // guards stats; not held during I/O
	stats SharedStats

	purge uint64 // the records before this one are to be purged; 0 for none. Only the goroutine uses it.
}

func newBases(l *leaseLog, o *Shared) *bases {
	b := &bases{l: l, after: o.BaseAfter, part: o.part, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if b.after == 0 {
		b.after = logBaseAfter
	}
	if b.part == 0 {
		b.part = maxBasePart
	}
	b.ctx, b.end = context.WithCancel(l.ctx)
	b.stats = SharedStats{On: true, Base: o.Lease.Base()}
	b.purge = b.stats.Base // the host that wrote it may have ended before its purge
	return b
}

// since returns the bytes since the newest base, if the frames up to a record have this total.
func (b *bases) since(total int64) int64 { return total - b.cut.Load() }

// grown is called by the committer after each record.
func (b *bases) grown(total int64) {
	b.have.Store(total)
	if b.due() {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

// due reports whether the records since the newest base exceed its size plus BaseAfter. A base grows by at most the records before it, so
// the bases have less than twice as many bytes as the records. A host that restores a base reads about twice its size plus BaseAfter.
func (b *bases) due() bool { return b.since(b.have.Load()) > b.after+b.size.Load() }

// run writes bases and purges until the lease or the store ends.
func (b *bases) run() {
	defer close(b.done)
	for failed := 0; b.wait(failed); {
		if err := b.step(); err != nil {
			failed++
			b.failed(err)
			continue
		}
		failed = 0
		b.mu.Lock()
		b.stats.Err = nil
		b.mu.Unlock()
	}
}

// wait waits for work, and after failures for a delay. It returns false at the end.
func (b *bases) wait(failed int) bool {
	if failed > 0 {
		timer := time.NewTimer(backoff.Delay(failed-1, logBaseRetry, maxLogBaseRetry))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-b.ctx.Done():
		}
	}
	for b.ctx.Err() == nil && b.purge == 0 && !b.due() {
		select {
		case <-b.wake:
		case <-b.ctx.Done():
		}
	}
	return b.ctx.Err() == nil
}

// step writes a base if one is due, and then purges. The order matters: a record is purged only after a base that has it is published. A
// purge that has failed is repeated before the base, since the log may have no room for both.
func (b *bases) step() error {
	err := b.purgeLog()
	if !b.due() {
		return err
	}
	if failed := b.write(); failed != nil {
		return errors.Join(err, failed)
	}
	return b.purgeLog()
}

// purgeLog purges the records before the newest base, if they are not purged yet.
func (b *bases) purgeLog() error {
	if b.purge == 0 {
		return nil
	}
	if err := b.l.guard("Purge", func() error { return b.l.lease.Purge(b.ctx, b.purge) }); err != nil {
		return fmt.Errorf("purging the records before %d: %w", b.purge, err)
	}
	b.purge = 0
	return nil
}

// write publishes a base of the present state.
func (b *bases) write() error {
	w, total, err := b.freeze()
	if err != nil {
		return err
	}
	defer w.close()
	number := w.at.Number
	err = b.l.guard("WriteBase", func() error {
		return b.l.lease.WriteBase(b.ctx, number, func(to io.Writer) error { return w.copy(to, b.part) })
	})
	if err == nil && !w.end {
		err = errors.New("the lease returned before it had the whole base")
	}
	if err != nil {
		return fmt.Errorf("writing the base of record %d: %w", number, err)
	}
	b.purge = number
	b.cut.Store(total)
	b.size.Store(w.bytes)
	b.mu.Lock()
	b.stats.Base = number
	b.stats.Written++
	b.mu.Unlock()
	b.l.s.opts.Logger.Info("the shared log has a base", "record", number, "bytes", w.bytes)
	return nil
}

// freeze returns the writer of a base of the present state, and the total of its chain.
func (b *bases) freeze() (*baseWriter, int64, error) {
	s := b.l.s
	if err := s.acquire(b.ctx); err != nil {
		return nil, 0, err
	}
	defer s.release()
	sn, err := s.freeze()
	if err != nil {
		return nil, 0, err
	}
	w := &baseWriter{sn: sn, at: b.l.chain.at}
	return w, b.l.chain.total, nil
}

// copy writes all parts of a base, one after the other.
func (b *baseWriter) copy(to io.Writer, part int) error {
	if b.w != nil {
		return errors.New("the base was written before")
	}
	if err := b.walk(nil, []byte{keyFrame}); err != nil {
		return err
	}
	for !b.end {
		if err := b.fill(part); err != nil {
			return err
		}
		n, err := to.Write(b.content)
		if err != nil {
			return err
		}
		b.bytes += int64(n)
		b.part++
	}
	return nil
}

// failed counts a failed attempt. It logs only the first of several failures with the same text.
func (b *bases) failed(err error) {
	if b.ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	repeated := b.stats.Err != nil && b.stats.Err.Error() == err.Error()
	b.stats.Failures++
	b.stats.Err = err
	b.mu.Unlock()
	if !repeated {
		b.l.s.opts.Logger.Error("the shared log cannot be cut, repeating", "err", err)
	}
}

// close ends the goroutine. It waits for logBaseCloseTime at most: a method of the lease that returns later finds the store closed.
func (b *bases) close() {
	b.end()
	timer := time.NewTimer(logBaseCloseTime)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
		b.l.s.opts.Logger.Error("the lease has not ended the writing of a base")
	}
}
