// Package logtest has a shared log in memory whose faults a test scripts, and the tests that each implementation of a
// [sharedlog.Log] must pass.
package logtest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// Log is a shared log in memory. The zero Log is empty and has no faults. Its methods may be called from any goroutine.
type Log struct {
	// Linger is the time from the end of a lease's validity, when another host acquires the log, to the closing of its Lost
	// channel. In between the former owner does not know that it has lost the log.
	Linger time.Duration
	// OnAppend, if set, is called before each append, without a lock. It may block. The append has the fault that it returns.
	OnAppend func(Append) Fault
	// OnBase, if set, is called before each writing of a base and each purge, as OnAppend is. With FaultUnavailable a base fails after
	// its first 100 bytes.
	OnBase func(BaseStep) Fault
	// Unchecked lets the owner purge records that no base has. Other logs refuse such a purge; with Unchecked a test sees the damage that a
	// host with this fault does.
	Unchecked bool

	mu         sync.Mutex
	records    [][]byte // without the purged ones
	purged     uint64   // the last purged record; 0 for none
	base       base
	generation uint64
	owner      *lease // nil if there is none
}

// Append describes an append.
type Append struct {
	Generation uint64 // of the lease
	Number     uint64 // of the record
	Attempt    int    // counts the appends with this lease and number, from 1
}

// BaseStep describes the writing of a base, or a purge.
type BaseStep struct {
	Generation uint64 // of the lease
	Number     uint64 // of the base, or of the first record that a purge keeps
	Purge      bool
}

// Fault is the fault of an append, of a base or of a purge.
type Fault uint8

// The faults.
const (
	FaultNone        Fault = iota
	FaultUnavailable       // it has no effect, and returns ErrUnavailable
	FaultLost              // it has no effect, and returns ErrUnknown
	FaultLostAnswer        // it has its effect, and returns ErrUnknown
)

// fail returns the error of a fault without an effect.
func (f Fault) fail() error {
	switch f {
	case FaultUnavailable:
		return fmt.Errorf("logtest: a fault: %w", sharedlog.ErrUnavailable)
	case FaultLost:
		return fmt.Errorf("logtest: a lost request: %w", sharedlog.ErrUnknown)
	}
	return nil
}

// answer returns the error of a call with an effect.
func (f Fault) answer(err error) error {
	if f == FaultLostAnswer {
		return fmt.Errorf("logtest: a lost answer: %w", sharedlog.ErrUnknown)
	}
	return err
}

// Acquire implements [sharedlog.Log]. It does not wait, ignores the context, and never fails. The former lease is invalid when it returns.
func (l *Log) Acquire(context.Context) (sharedlog.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil {
		l.owner.lose(l.Linger)
	}
	l.generation++
	l.owner = &lease{log: l, generation: l.generation, newest: l.newestLocked(), base: l.base, lost: make(chan struct{})}
	return l.owner, nil
}

// Expire makes the lease of the present owner invalid, although no other host has acquired the log. Its Lost channel is closed after Linger.
func (l *Log) Expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil {
		l.owner.lose(l.Linger)
		l.owner = nil
	}
}

func (l *Log) newestLocked() uint64 { return l.purged + uint64(len(l.records)) }

// Records returns a copy of the records that are not purged. A change of a record's bytes does not change the log.
func (l *Log) Records() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clone(l.records)
}

// Corrupt replaces the records that are not purged by others, as a faulty log does.
func (l *Log) Corrupt(records [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = clone(records)
}

func clone(records [][]byte) (copies [][]byte) {
	for _, r := range records {
		copies = append(copies, bytes.Clone(r))
	}
	return copies
}

// lease is the right to append to a Log. Log.mu guards it.
type lease struct {
	log        *Log
	generation uint64
	newest     uint64
	base       base   // when it was acquired
	last       uint64 // the newest record that it has appended; 0 for none
	number     uint64 // of the last call of Append
	attempt    int    // the calls of Append with this number
	invalid    bool
	lost       chan struct{}
}

// lose makes the lease invalid, and closes its channel later.
func (o *lease) lose(linger time.Duration) {
	o.invalid = true
	time.AfterFunc(linger, func() { close(o.lost) })
}

func (o *lease) Generation() uint64    { return o.generation }
func (o *lease) Newest() uint64        { return o.newest }
func (o *lease) Lost() <-chan struct{} { return o.lost }

func (o *lease) Valid() bool {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	return !o.invalid
}

func (o *lease) Read(_ context.Context, from uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for n := from; ; n++ {
			record, err := o.log.record(n)
			if record == nil && err == nil || !yield(record, err) || err != nil {
				return
			}
		}
	}
}

// record returns a copy of a record; nil if the log does not have it yet.
func (l *Log) record(n uint64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case n <= l.purged:
		return nil, fmt.Errorf("logtest: record %d: %w", n, sharedlog.ErrPurged)
	case n > l.newestLocked():
		return nil, nil
	}
	return bytes.Clone(l.records[n-l.purged-1]), nil
}

func (o *lease) Append(ctx context.Context, number uint64, record []byte) error {
	l := o.log
	l.mu.Lock()
	if o.attempt++; o.number != number {
		o.number, o.attempt = number, 1
	}
	a := Append{Generation: o.generation, Number: number, Attempt: o.attempt}
	l.mu.Unlock()
	fault := FaultNone
	if l.OnAppend != nil {
		fault = l.OnAppend(a)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fault.fail(); err != nil {
		return err
	}
	return fault.answer(o.append(number, record))
}

func (o *lease) append(number uint64, record []byte) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.newestLocked()
	switch {
	case o.invalid:
		return fmt.Errorf("logtest: generation %d: %w", o.generation, sharedlog.ErrFenced)
	case number == newest && o.last == number && bytes.Equal(l.records[len(l.records)-1], record):
		return nil
	case number != newest+1:
		return fmt.Errorf("logtest: append of record %d after record %d", number, newest)
	}
	l.records = append(l.records, bytes.Clone(record))
	o.last = number
	return nil
}

// Release ends the lease. Its Lost channel stays open.
func (o *lease) Release(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	if o.log.owner == o {
		o.log.owner, o.invalid = nil, true
	}
	return nil
}
