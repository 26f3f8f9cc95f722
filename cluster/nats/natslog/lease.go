package natslog

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dohost/dohost/sharedlog"
)

// lease is the right to append to a Log.
type lease struct {
	log        *Log
	owner      string // random: the value of its key and of its mark
	generation uint64
	newest     uint64 // the newest record when the lease began
	first      uint64 // the sequence of its mark
	size       int    // the longest part of a record
	seed       maphash.Seed

	begun    time.Time
	wall     time.Time    // begun, without the monotonic clock
	deadline atomic.Int64 // in nanoseconds after begun
	invalid  atomic.Bool
	lost     chan struct{}
	losing   sync.Once
	expiry   *time.Timer // calls lose at the deadline
	cancel   context.CancelFunc
	renewed  chan struct{} // closed when the renewals have ended
	revision uint64        // of its key; after the beginning only the renewals use it

	acquired base // the newest base when the lease began

	// turn is the right to publish the next message, and guards the rest. It is a channel, since it is held during I/O.
	turn     chan struct{}
	base     base   // the newest one
	pending  *base  // may be published; nil if all outcomes of bases are known
	tail     uint64 // the sequence of its last message
	number   uint64 // the newest record
	sum      uint64 // of the newest record; 0 if this lease has appended none
	tried    bool   // an append of the next record has failed
	triedSum uint64 // of the next record
	part     int    // the parts of the next record that are in the stream
	unknown  bool   // an attempt to publish the next message has an unknown outcome
}

const (
	renewals      = 3 // in a lease's time
	margin        = 500 * time.Millisecond
	maxGeneration = 1 << 24 // of a host
)

// operation is the header that marks a deleted key for clients of buckets.
const (
	operation = "KV-Operation"
	deletion  = "DEL"
)

// run renews the lease until it ends.
func (o *lease) run(ctx context.Context) {
	defer close(o.renewed)
	ticker := time.NewTicker(o.log.options.LeaseTime / renewals)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := o.renew(ctx); errors.Is(err, sharedlog.ErrFenced) {
			o.lose()
			return
		}
	}
}

func (o *lease) endRenewals() {
	o.cancel()
	<-o.renewed
}

// renew extends the lease if the servers acknowledge a new revision of the key. An error other than ErrFenced ends no lease.
func (o *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.log.options.LeaseTime/renewals)
	defer cancel()
	for {
		if !o.Valid() {
			return sharedlog.ErrFenced // it must not be valid again
		}
		sent := o.elapsed()
		revision, err := o.log.putKey(ctx, o.owner, o.revision)
		if err == nil {
			o.revision = revision
			deadline := sent + o.log.options.LeaseTime - margin
			o.deadline.Store(int64(deadline))
			o.expiry.Reset(deadline - o.elapsed())
			return nil
		}
		if !isRefused(err) {
			return err
		}
		if err := o.findKey(ctx); err != nil {
			return err
		}
	}
}

// findKey finds the revision of the key after a refusal: the answer to an earlier renewal may have been lost. ErrFenced means that the key
// has expired, or has another owner.
func (o *lease) findKey(ctx context.Context) error {
	m, err := o.log.owners.GetLastMsgForSubject(ctx, o.log.ownerKey())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: its key has expired", sharedlog.ErrFenced)
	case err != nil:
		return err
	case string(m.Data) != o.owner:
		return fmt.Errorf("%w: its key has another owner", sharedlog.ErrFenced)
	case m.Sequence == o.revision: // refused because of an earlier attempt that the servers have not decided yet
		return sleep(ctx, retryTime)
	}
	o.revision = m.Sequence
	return nil
}

// lose ends a lease that another host may have by now.
func (o *lease) lose() {
	o.invalid.Store(true)
	o.losing.Do(func() { close(o.lost) })
}

// elapsed is the time since the lease began, by the clock that is ahead: the monotonic clock stands still while a machine is suspended.
func (o *lease) elapsed() time.Duration {
	now := time.Now()
	return max(now.Sub(o.begun), now.Round(0).Sub(o.wall))
}

// Generation implements [sharedlog.Lease].
func (o *lease) Generation() uint64 { return o.generation }

// Newest implements [sharedlog.Lease].
func (o *lease) Newest() uint64 { return o.newest }

// Lost implements [sharedlog.Lease].
func (o *lease) Lost() <-chan struct{} { return o.lost }

// Valid implements [sharedlog.Lease].
func (o *lease) Valid() bool {
	if o.invalid.Load() {
		return false
	}
	if int64(o.elapsed()) >= o.deadline.Load() {
		o.invalid.Store(true) // a renewal that is acknowledged now must not make it valid again
		return false
	}
	return true
}

// Release implements [sharedlog.Lease].
func (o *lease) Release(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	released := !o.invalid.Swap(true)
	o.expiry.Stop()
	o.endRenewals()
	if !released {
		return nil
	}
	return o.deleteKey(ctx)
}

// deleteKey lets a waiting host acquire the log immediately. It tries until the lease would have ended: then the key expires.
func (o *lease) deleteKey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.deadline.Load())-o.elapsed())
	defer cancel()
	err := o.log.persist(ctx, func(ctx context.Context) error {
		m := &nats.Msg{Subject: o.log.ownerKey(), Header: nats.Header{operation: {deletion}}}
		_, err := o.log.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(o.revision),
			jetstream.WithMsgTTL(o.log.options.LeaseTime), jetstream.WithRetryAttempts(0))
		if isRefused(err) && errors.Is(o.findKey(ctx), sharedlog.ErrFenced) {
			return nil // deleted by an earlier attempt, or expired
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("natslog: release of cell %s: %w", o.log.cell, err)
	}
	return nil
}
