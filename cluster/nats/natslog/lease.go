package natslog

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// lease is the right to append to a Log, while its session is valid.
type lease struct {
	log        *Log
	session    *session
	owner      string // random: its key and its mark have it
	revision   uint64 // of its key; until the servers have acknowledged that, of the key before
	generation uint64
	newest     uint64 // the newest record when the lease began
	first      uint64 // the sequence of its mark
	size       int    // the longest part of a record
	seed       maphash.Seed

	invalid atomic.Bool
	lost    chan struct{}
	losing  sync.Once

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

const maxGeneration = 1 << 24 // of a host

// value is the value of its key.
func (o *lease) value() string { return o.owner + " " + o.session.name }

// lose ends a lease that another host may have by now.
func (o *lease) lose() {
	o.invalid.Store(true)
	o.session.remove(o)
	if o.session.cancel != nil {
		o.session.invalid.Store(true) // no other lease needs its renewals
	}
	o.losing.Do(func() { close(o.lost) })
}

// Generation implements [sharedlog.Lease].
func (o *lease) Generation() uint64 { return o.generation }

// Newest implements [sharedlog.Lease].
func (o *lease) Newest() uint64 { return o.newest }

// Lost implements [sharedlog.Lease].
func (o *lease) Lost() <-chan struct{} { return o.lost }

// Valid implements [sharedlog.Lease].
func (o *lease) Valid() bool { return !o.invalid.Load() && o.session.valid() }

// Release implements [sharedlog.Lease]. If the servers do not acknowledge it in the time of a lease, the renewals of the node repeat it.
func (o *lease) Release(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	o.invalid.Store(true)
	s := o.session
	s.remove(o)
	if s.cancel != nil {
		return s.endWithLease(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, o.log.options.LeaseTime)
	defer cancel()
	return s.free(ctx, o)
}

// freeKey deletes the key of the owner, unless another owner has it. After that the key has another revision than an earlier write of this
// lease expects, so the servers refuse such a write that arrives later.
func (o *lease) freeKey(ctx context.Context) error {
	l := o.log
	return l.persist(ctx, func(ctx context.Context) error {
		m, err := l.key(ctx, l.cell)
		if err != nil || m.Sequence > o.revision && string(m.Data) != o.value() {
			return err
		}
		_, err = l.deleteKey(ctx, l.cell, m.Sequence, 0)
		return err
	})
}
