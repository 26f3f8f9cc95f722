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
	// OnAppend, if set, is called before each append, without a lock. It may block, and its fault is that of the append.
	OnAppend func(Append) Fault

	mu         sync.Mutex
	records    [][]byte
	generation uint64
	owner      *lease // nil if there is none
}

// Append describes an append.
type Append struct {
	Generation uint64 // of the lease
	Number     uint64 // of the record
	Attempt    int    // counts the appends with this lease and number, from 1
}

// Fault is the fault of an append.
type Fault uint8

// The faults.
const (
	FaultNone        Fault = iota
	FaultUnavailable       // the record is not appended, and Append returns ErrUnavailable
	FaultLost              // the record is not appended, and Append returns ErrUnknown
	FaultLostAnswer        // the record is appended, and Append returns ErrUnknown
)

// Acquire implements [sharedlog.Log]. The former lease is invalid when it returns.
func (l *Log) Acquire(context.Context) (sharedlog.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil {
		l.owner.lose(l.Linger)
	}
	l.generation++
	l.owner = &lease{log: l, generation: l.generation, newest: uint64(len(l.records)), lost: make(chan struct{})}
	return l.owner, nil
}

// Expire makes the lease of the present owner invalid, although no other host has acquired the log.
func (l *Log) Expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil {
		l.owner.lose(l.Linger)
		l.owner = nil
	}
}

// Records returns a copy of the log. A change of a record's bytes does not change the log.
func (l *Log) Records() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return clone(l.records)
}

// Corrupt replaces the records by others, as a faulty log does.
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
			o.log.mu.Lock()
			var record []byte
			if more := n >= 1 && n <= uint64(len(o.log.records)); more {
				record = bytes.Clone(o.log.records[n-1])
			}
			o.log.mu.Unlock()
			if record == nil || !yield(record, nil) {
				return
			}
		}
	}
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
	switch fault {
	case FaultUnavailable:
		return fmt.Errorf("%w: by the test", sharedlog.ErrUnavailable)
	case FaultLost:
		return fmt.Errorf("%w: lost by the test", sharedlog.ErrUnknown)
	}
	err := o.append(number, record)
	if fault == FaultLostAnswer {
		return fmt.Errorf("%w: the test has lost the answer", sharedlog.ErrUnknown)
	}
	return err
}

func (o *lease) append(number uint64, record []byte) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := uint64(len(l.records))
	switch {
	case o.invalid:
		return fmt.Errorf("%w: generation %d", sharedlog.ErrFenced, o.generation)
	case number == newest && o.last == number && bytes.Equal(l.records[number-1], record):
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
