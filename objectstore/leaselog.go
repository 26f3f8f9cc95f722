package objectstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/frame"
	"github.com/dohost/dohost/internal/guard"
	"github.com/dohost/dohost/sharedlog"
)

// Errors of Open with a lease.
var (
	// ErrSharedHistory reports that the directory and the shared log do not belong together: the log has the history of another
	// store, or the directory has records that are in no shared log, or a store with a shared log was opened without a lease.
	ErrSharedHistory = errkind.New(errkind.ErrConflict, "the directory and the shared log have different histories")
	// ErrLogDamaged reports that the records of a shared log are no continuous history, or that the log has lost records that the
	// directory has. The error names the number of the record.
	ErrLogDamaged = errkind.New(errkind.ErrDamaged, "damaged shared log")
)

// The times of a lease's calls.
const (
	leaseHostTime    = 10 * time.Second // of Open, for the host record, and of Close, for each record
	leaseReleaseTime = 5 * time.Second  // of Close, for the release
)

// errNoAnswer is the cause when Open or Close stops waiting for a record.
var errNoAnswer = fmt.Errorf("dohost: the shared log has not accepted a record for %v", leaseHostTime)

// maxGeneration is the greatest generation of a host: NewAlarmGeneration has 24 bits for it.
const maxGeneration = 1<<24 - 1

// leaseLog is a shared log. The engine is a cache of it, and gets the records without a sync: after a crash the store reads the lost
// records from the log. Only a backup syncs the engine.
type leaseLog struct {
	s      *Store
	lease  sharedlog.Lease
	lost   <-chan struct{} // of the lease
	parent context.Context
	ctx    context.Context // of all calls but Release; a child of parent
	stop   context.CancelCauseFunc
	chain  *chain // set by replay
	bases  *bases
	first  frame.Position // of the first record that the log must have: the record of its base, or record 1
}

func newLeaseLog(s *Store, o *Shared) *leaseLog {
	l := &leaseLog{s: s, lease: o.Lease, lost: o.Lease.Lost(), parent: o.Context}
	l.ctx, l.stop = context.WithCancelCause(o.Context)
	l.bases = newBases(l, o)
	return l
}

// watch ends the contexts of the lease's calls when the lease is lost: an append may wait for its context. It returns when they end.
func (l *leaseLog) watch() {
	select {
	case <-l.lost:
		l.stop(errLeaseLost)
	case <-l.ctx.Done():
	}
}

// Append appends the frame of a record to the shared log, and then applies the record to the engine. The order matters: the engine
// cannot undo a record that the log has refused.
func (l *leaseLog) Append(_, tail uint64, r *record) (uint64, error) {
	l.s.hook(StageSync, r.objects)
	if err := context.Cause(l.ctx); err != nil {
		return tail, err
	}
	err := l.guard("Append", func() error { return l.lease.Append(l.ctx, tail+1, r.frame) })
	if err != nil {
		return tail, l.failure(err)
	}
	if err := l.apply(r.batch); err != nil {
		return tail, err
	}
	return tail + 1, nil
}

// guard calls a method of the lease, which must not end the committer by a panic: the error is that of the method, or the panic.
func (l *leaseLog) guard(method string, f func() error) (err error) {
	if p := guard.Call(func() { err = f() }); p != nil {
		err = fmt.Errorf("dohost: the lease's method %s: %w", method, p)
		l.s.opts.Logger.Error("a method of the lease panicked", "method", method, "panic", p.Value, "stack", string(p.Stack))
	}
	return err
}

// failure returns ErrFenced for a sharedlog.ErrFenced. Once the context of the calls has ended, the
// error is the cause of that, which is not retried.
func (l *leaseLog) failure(err error) error {
	cause := context.Cause(l.ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sharedlog.ErrFenced):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case cause != nil && errors.Is(err, cause):
		return cause
	case cause != nil:
		return fmt.Errorf("%w: %v", cause, err) // %v: an unknown outcome is not repeated any more
	}
	return err
}

func (l *leaseLog) apply(b engineBatch) error {
	defer l.s.exitOnPanic()
	return errors.Join(pebbleDB(l.s).Apply(b.(*pebble.Batch), pebble.NoSync), l.s.background.failure())
}

// Valid reports whether the lease is valid and the store is not abandoned. After a panic it is not known whether the lease is valid.
func (l *leaseLog) Valid() (valid bool) {
	if l.s.abandoned.Load() {
		return false
	}
	_ = l.guard("Valid", func() error { valid = l.lease.Valid(); return nil }) // it is logged
	return valid
}

// Lost returns the lease's channel.
func (l *leaseLog) Lost() <-chan struct{} { return l.lost }

// Stop ends the contexts of the lease's calls.
func (l *leaseLog) Stop(cause error) { l.stop(cause) }

// Release releases the lease, unless the store is abandoned: a process that has ended releases nothing.
func (l *leaseLog) Release() error {
	defer l.stop(ErrClosed)
	if l.s.abandoned.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.parent, leaseReleaseTime)
	defer cancel()
	return l.guard("Release", func() error { return l.lease.Release(ctx) })
}

// chain makes the frames of the records of a store with a shared log. Only the committer uses it, and with the store's recordLock
// the writer of bases.
type chain struct {
	at    frame.Position // of the newest record that is in the log and in the engine
	next  frame.Position // of the record in flight
	total int64          // bytes of the frames up to at, since a base
	size  int64          // of the frame in flight
	bases *bases
}

// add makes the frame of a record that is complete otherwise, and adds the row that names it to the engine batch: the engine has a
// record if and only if that row has its number, or a later one.
func (m *chain) add(rec *record, generation uint64) error {
	ops := rec.batch.Repr()[batchHeader:]
	h := m.at.Header(generation, time.Now().UnixNano())
	rec.frame = make([]byte, frame.Size(len(ops)))
	sum := frame.Encode(rec.frame, &h, ops)
	m.next = frame.Position{Store: h.Store, Fork: h.Fork, Generation: h.Generation, Number: h.Number, Time: h.Time, Sum: sum}
	m.size = int64(len(rec.frame))
	row := appliedRow{m.next, m.bases.since(m.total + m.size)}
	return pebbleBatch(rec).Set([]byte{keyApplied}, row.encode(), nil)
}

// durable is called when the record in flight is in the log and in the engine.
func (m *chain) durable() {
	if m == nil {
		return
	}
	m.at, m.total = m.next, m.total+m.size
	m.bases.grown(m.total)
}

// newChain returns the chain before the first record of a store.
func (l *leaseLog) newChain(id Identity) (*chain, error) {
	store, err := ulid.ParseStrict(id.Store)
	if err != nil {
		return nil, fmt.Errorf("dohost: id of a store: %w", err)
	}
	return &chain{at: frame.Position{Store: store, Fork: id.Fork}, bases: l.bases}, nil
}
