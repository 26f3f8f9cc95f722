package objectstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/frame"
)

// Shipping configures the shipping of records to an archive: see the section of the package comment.
type Shipping struct {
	// Archive gets the records. It is required. It must be empty, or have records of this store and fork, and no record that the store
	// lacks. Otherwise Open returns ErrForeignArchive. If the archive cannot be read within 10 s, Open succeeds, and the shipper compares it later.
	Archive Archive
	// Context is the parent of the contexts of the archive's calls. It is required, and must not end before Close has
	// returned.
	Context context.Context
	// Every is the delay before a record is shipped, in one object with all other records of that time. There is no delay while
	// 4 MiB wait. Zero means one second.
	Every time.Duration
	// Backlog bounds the bytes of frames that wait in the store. Beyond it the store drops them, and ships a new base
	// when the archive is available again. Zero means 1 GiB.
	Backlog int64
	// BaseAfter is how many bytes of records follow a base, in addition to four times its size, before the next one is
	// made. Zero means 256 MiB.
	BaseAfter int64

	shipment, part int // sizes, for tests; zero means maxShipment and maxBasePart
}

func (o *Shipping) withDefaults(log *slog.Logger) Shipping {
	d := *o
	d.Archive = guardedArchive{o.Archive, newArchiveFaults(log)}
	if d.Every == 0 {
		d.Every = time.Second
	}
	if d.Backlog == 0 {
		d.Backlog = 1 << 30
	}
	if d.BaseAfter == 0 {
		d.BaseAfter = 256 << 20
	}
	if d.shipment == 0 {
		d.shipment = maxShipment
	}
	if d.part == 0 {
		d.part = maxBasePart
	}
	return d
}

// Sizes of objects, in bytes: of frames, and of the rows of a part of a base. The last frame or row may exceed them.
const (
	maxShipment = 4 << 20
	maxBasePart = 8 << 20
)

// The delays of shipping.
const (
	shipRetry     = time.Second // after the first failure; doubled after each other one
	maxShipRetry  = time.Minute
	shipOpenTime  = 10 * time.Second // of Open, for the comparison with the archive
	shipCloseTime = 5 * time.Second  // of Close, for the last records
)

// shipper puts durable records into an archive, on a goroutine of its own. The committer never waits for it.
type shipper struct {
	s    *Store
	opts Shipping
	ctx  context.Context
	end  context.CancelFunc
	wake chan struct{} // cap 1; has a token when there is a record, or many, or the store closes
	done chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex     // guards the fields up to the next comment; not held during I/O
	made      uint64         // the newest record that is durable with its frame
	last      frame.Position // of that record, if it is of this host
	bytes     int64          // of frames since Open, and about the bytes of the frames that Open found
	shipped   uint64         // the newest record in the archive
	sent      int64          // bytes that need not wait any more: shipped, or dropped
	oldest    time.Time      // when the first record that waits became durable, about; zero if none waits
	uploaded  int64
	failures  int64
	err       error // of the last attempt of records
	baseErr   error // of the last attempt of a base
	closing   bool  // the goroutine ends when nothing is left, or at a failure
	attached  bool  // the archive was compared with the store
	needsBase bool  // the newest shipped records cannot be restored before a base is complete
	// progress is closed when shipped grows or needsBase is cleared; nil if no goroutine waits for that.
	progress chan struct{}

	// Only the goroutine uses the rest, and Open before it starts.
	at         frame.Position // of the newest shipped record, or of the base that was begun
	linked     bool           // at is such a position, and the frames after it may be in the store
	pointReads bool           // an iterator over frames has met damage
	shipment   *shipment
	spare      []byte // the content of the last shipment, to be used again; nil if there is none
	base       *baseWriter
	retry      baseRetry
	baseBytes  int64 // of the newest base
	sinceBase  int64 // bytes of records since then
	newest     archivedAt
	lastSeen   archivedAt // newest at the time checked
	checked    time.Time  // the last check for lastSeen
}

func newShipper(s *Store, o *Shipping) *shipper {
	sh := &shipper{s: s, opts: o.withDefaults(s.opts.Logger), wake: make(chan struct{}, 1), done: make(chan struct{})}
	sh.ctx, sh.end = context.WithCancel(o.Context)
	return sh
}

// recordDurable is called by the committer when a record with a frame is durable. Only such records are shipped.
func (sh *shipper) recordDurable(at *frame.Position, size int64) {
	sh.mu.Lock()
	before := sh.bytes - sh.sent
	sh.made, sh.last = at.Number, *at
	sh.bytes += size
	first := sh.oldest.IsZero()
	if first {
		sh.oldest = time.Now()
	}
	limit := int64(sh.opts.shipment)
	many := before < limit && before+size >= limit
	sh.mu.Unlock()
	if first || many {
		sh.signal()
	}
}

func (sh *shipper) signal() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

// deletable returns the last record whose frame the store need not keep, before the record next, and the bytes that were
// sent. With drop the backlog was too large, and unsent frames are among them.
func (sh *shipper) deletable(next uint64) (through uint64, sent int64, drop bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.bytes-sh.sent > sh.opts.Backlog {
		sh.sent = sh.bytes
		return next - 1, sh.sent, true
	}
	return min(sh.shipped, next-1), sh.sent, false
}

// run ships until the store closes. The last attempt begins after that: an earlier one may have read no frames since the last
// record was made.
func (sh *shipper) run() {
	defer close(sh.done)
	for failed := 0; sh.wait(failed); {
		last := sh.isClosing()
		if err := sh.shipAll(); err != nil {
			failed++
			sh.failed(err, failed)
			sh.expireBase()
		} else {
			failed = 0
			sh.succeeded()
		}
		if last {
			return
		}
	}
}

// wait waits for work: after failures for a delay, otherwise for a record, or a base that is due, and, if no base is due,
// for more records. It returns false when shipping must end.
func (sh *shipper) wait(failed int) bool {
	delay := sh.opts.Every
	if failed > 0 {
		delay = backoff.Delay(failed-1, shipRetry, maxShipRetry)
	} else if sh.stats().Records == 0 && sh.isAttached() {
		due, stop := sh.baseTimer()
		defer stop()
		select {
		case <-sh.wake:
		case <-due:
			return true
		case <-sh.ctx.Done():
			return false
		}
	}
	if failed == 0 && sh.isAttached() && sh.baseDue() {
		delay = 0
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for !sh.isClosing() && (failed > 0 || !sh.linked || sh.stats().Bytes < int64(sh.opts.shipment)) {
		select {
		case <-timer.C:
			return true
		case <-sh.wake:
		case <-sh.ctx.Done():
			return false
		}
	}
	return sh.ctx.Err() == nil
}

// shipAll ships until nothing is left.
func (sh *shipper) shipAll() error {
	for {
		if !sh.isAttached() {
			if err := sh.attach(sh.ctx); err != nil {
				return err
			}
		}
		more, err := sh.step()
		if !more || err != nil {
			return err
		}
	}
}

// step puts at most one shipment and one part of a base. While more than one shipment waits it puts no part: the records
// come first. It returns false if there was nothing to put.
func (sh *shipper) step() (more bool, err error) {
	if sh.shipment == nil && sh.linked {
		if err := sh.read(); err != nil {
			return false, err
		}
	}
	if m := sh.shipment; m != nil {
		if valid, err := sh.checkArchive(); !valid || err != nil {
			return true, err
		}
		if err := sh.opts.Archive.Put(sh.ctx, m.name.String(), m.content); err != nil {
			m.failed = true
			return false, err
		}
		sh.confirm(m)
		if m.more {
			return true, nil
		}
		more = true
	}
	if sh.isClosing() {
		return more, nil
	}
	return sh.stepBase() || more, nil
}

func (sh *shipper) isClosing() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.closing
}

func (sh *shipper) isAttached() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.attached
}

// failed reports a failed attempt to ship records. It logs only the first of several failures with the same text.
func (sh *shipper) failed(err error, n int) {
	if sh.ctx.Err() != nil {
		return
	}
	sh.mu.Lock()
	repeated := sh.err != nil && sh.err.Error() == err.Error()
	sh.failures++
	sh.err = err
	sh.mu.Unlock()
	if !repeated {
		sh.s.opts.Logger.Error("records cannot be shipped", "err", err, "attempt", n)
	}
}

func (sh *shipper) succeeded() {
	sh.mu.Lock()
	failed := sh.err != nil
	sh.err = nil
	sh.mu.Unlock()
	if failed {
		sh.s.opts.Logger.Info("records are shipped again")
	}
}

// close ends the shipping. With drain it first ships the durable records. It waits for shipCloseTime at most: after a Put that
// returns later, the goroutine ends without another read of the store.
func (sh *shipper) close(drain bool) {
	sh.mu.Lock()
	sh.closing = true
	sh.mu.Unlock()
	if !drain {
		sh.end()
	}
	sh.signal()
	timer := time.NewTimer(shipCloseTime)
	defer timer.Stop()
	select {
	case <-sh.done:
	case <-timer.C:
		sh.s.opts.Logger.Error("the newest records are not shipped; the next host ships them", "records", sh.stats().Records)
	}
	sh.end()
}
