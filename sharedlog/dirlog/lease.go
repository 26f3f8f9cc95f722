package dirlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// lease is the right to append to a Log.
type lease struct {
	log        *Log
	generation uint64
	newest     uint64 // when it was acquired
	acquired   base   // the newest one when it was acquired
	stop       chan struct{}
	stopped    chan struct{} // closed when the renewals have ended
	lost       chan struct{}
	invalid    atomic.Bool
	deadline   atomic.Int64 // in nanoseconds after begun
	begun      time.Time
	expiry     *time.Timer // calls lose at the deadline
	losing     sync.Once
	stopping   sync.Once

	// turn is the right to fill the next slot, and guards the rest. It is a channel, since it is held during I/O.
	turn    chan struct{}
	slot    uint64 // the last slot that is known to be filled
	number  uint64 // the newest record
	record  uint64 // its slot, if this lease has appended it
	base    base   // the newest one
	unknown *slot  // may be in the slot after that; nil if that one is empty. The payload of a record is not kept.
}

func (o *lease) takeTurn(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *lease) endTurn() { <-o.turn }

// own begins the lease of an owner that has filled its first slot. The lease counts from begun.
func (l *Log) own(begun time.Time, n uint64, s *slot) (sharedlog.Lease, error) {
	o := &lease{
		log: l, generation: s.generation, newest: s.number, slot: n, number: s.number, begun: begun,
		turn: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}), lost: make(chan struct{}),
	}
	o.expiry = time.AfterFunc(l.ttl, o.lose)
	err := o.renew(0)
	if err != nil {
		err = fmt.Errorf("dirlog: %w", err)
	} else {
		o.acquired, err = l.newestBase() // after the first slot, so that no former owner can publish one
	}
	if err != nil {
		o.expiry.Stop()
		return nil, err
	}
	o.base = o.acquired
	l.clean(s.generation)
	l.cleanBases(s.generation, &o.base)
	go o.run()
	return o, nil
}

// run renews the lease until it ends.
func (o *lease) run() {
	defer close(o.stopped)
	ticker := time.NewTicker(o.log.ttl / renewals)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-o.stop:
			return
		case <-ticker.C:
		}
		if err := o.renew(n); errors.Is(err, sharedlog.ErrFenced) {
			o.lose()
			return
		}
	}
}

func (o *lease) endRenewals() {
	o.stopping.Do(func() { close(o.stop) })
	<-o.stopped
}

// renew extends the lease. Waiting hosts see it and keep waiting. n differs in each call.
func (o *lease) renew(n int) error {
	begun := time.Since(o.begun)
	if n > 0 && !o.Valid() {
		return sharedlog.ErrFenced // it must not be valid again
	}
	temp := filepath.Join(o.log.dir, "tmp", fmt.Sprintf("%d-alive", o.generation))
	if err := os.WriteFile(temp, fmt.Append(nil, n), private); err != nil {
		return err
	}
	if err := os.Rename(temp, o.log.file("alive", o.generation)); err != nil {
		return err
	}
	switch newer, err := o.log.newer(o.generation); {
	case err != nil:
		return err
	case newer:
		return sharedlog.ErrFenced
	}
	deadline := begun + o.log.ttl - o.log.ttl/margin
	o.deadline.Store(int64(deadline))
	o.expiry.Reset(deadline - time.Since(o.begun))
	return nil
}

// lose ends a lease that another host may have by now.
func (o *lease) lose() {
	o.invalid.Store(true)
	o.losing.Do(func() { close(o.lost) })
}

// Generation implements [sharedlog.Lease].
func (o *lease) Generation() uint64 { return o.generation }

// Newest implements [sharedlog.Lease].
func (o *lease) Newest() uint64 { return o.newest }

// Lost implements [sharedlog.Lease].
func (o *lease) Lost() <-chan struct{} { return o.lost }

// Valid implements [sharedlog.Lease].
func (o *lease) Valid() bool {
	return !o.invalid.Load() && int64(time.Since(o.begun)) < o.deadline.Load()
}

// Read implements [sharedlog.Lease]. Each record has a slot whose number is not less than its own.
func (o *lease) Read(ctx context.Context, from uint64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for n, next := from, from; next <= o.newest; n++ {
			s, err := o.log.read(n)
			if errors.Is(err, fs.ErrNotExist) && next == from {
				n, s, err = o.firstAfter(n, from, err)
			}
			if err == nil {
				err = context.Cause(ctx)
			}
			if err == nil && (s.number > next || s.kind != kindRecord && s.kind != kindOwner && s.kind != kindBase) {
				err = fmt.Errorf("dirlog: damaged log: %s is of record %d, want record %d", o.log.path(n), s.number, next)
			}
			if errors.Is(err, fs.ErrNotExist) && next < o.acquired.number {
				err = purged(next)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if s.kind != kindRecord || s.number < next {
				continue
			}
			if !yield(s.payload, nil) {
				return
			}
			next++
		}
	}
}

func purged(number uint64) error {
	return fmt.Errorf("dirlog: record %d: %w", number, sharedlog.ErrPurged)
}

// firstAfter returns the first filled slot after one that is empty, on the way to a record. The record is purged if a base has it: a
// purge may be at any point.
func (o *lease) firstAfter(n, record uint64, absent error) (uint64, slot, error) {
	if record < o.acquired.number {
		return n, slot{}, purged(record)
	}
	next, err := o.log.after(n)
	if err != nil || next == 0 {
		return n, slot{}, errors.Join(err, absent)
	}
	s, err := o.log.read(next)
	return next, s, err
}

// Append implements [sharedlog.Lease].
func (o *lease) Append(ctx context.Context, number uint64, record []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	defer o.endTurn()
	if err := o.repeatBase(); err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	switch {
	case o.invalid.Load():
		return fmt.Errorf("dirlog: generation %d: %w", o.generation, sharedlog.ErrFenced)
	case number == o.number:
		return o.repeat(number, record)
	case number != o.number+1:
		return fmt.Errorf("dirlog: append of record %d after record %d", number, o.number)
	case len(record) > maxRecord:
		return fmt.Errorf("dirlog: a record has %d bytes, the limit is %d", len(record), maxRecord)
	}
	if err := o.put(&slot{kindRecord, o.generation, number, record}); err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	o.number, o.record = number, o.slot
	return nil
}

// put fills the next slot. While it is not known whether that has succeeded, only the same content may be put again. The caller has the
// turn. The texts of its errors do not begin with the name of the package.
func (o *lease) put(s *slot) error {
	linked, err := o.log.fill(o.slot+1, s)
	switch {
	case errors.Is(err, errFilled):
		o.lose()
		return fmt.Errorf("generation %d: %w: %w", o.generation, sharedlog.ErrFenced, err)
	case err != nil && linked:
		if o.unknown = s; s.kind == kindRecord {
			o.unknown = &slot{kind: kindRecord}
		}
		return fmt.Errorf("%w: %w", sharedlog.ErrUnknown, err)
	case err != nil:
		return fmt.Errorf("%w: %w", sharedlog.ErrUnavailable, err)
	}
	o.slot, o.unknown = o.slot+1, nil
	return nil
}

// repeatBase publishes a base again whose outcome is not known: the slot that it may have is the next one.
func (o *lease) repeatBase() error {
	s := o.unknown
	if s == nil || s.kind != kindBase || o.invalid.Load() {
		return nil
	}
	if err := o.put(s); err != nil {
		if errors.Is(err, sharedlog.ErrUnknown) {
			err = fmt.Errorf("%w: %v", sharedlog.ErrUnavailable, err) // the record was not appended
		}
		return err
	}
	o.base = base{slot: o.slot, generation: o.generation}
	o.base.decode(s.payload)
	return nil
}

// repeat accepts the newest record again if this lease has appended it.
func (o *lease) repeat(number uint64, record []byte) error {
	if o.record == 0 {
		return fmt.Errorf("dirlog: append of record %d, which another lease has appended", number)
	}
	s, err := o.log.read(o.record)
	if err != nil {
		return fmt.Errorf("%w: %w", err, sharedlog.ErrUnknown)
	}
	if string(s.payload) != string(record) {
		return fmt.Errorf("dirlog: another record with the number of the newest one, %d", number)
	}
	return nil
}

// Release implements [sharedlog.Lease].
func (o *lease) Release(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if o.invalid.Swap(true) {
		return nil
	}
	o.expiry.Stop()
	o.endRenewals()
	f, err := os.OpenFile(o.log.file("released", o.generation), os.O_CREATE|os.O_EXCL|os.O_WRONLY, private)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	if err := errors.Join(f.Close(), syncDir(filepath.Join(o.log.dir, "released"))); err != nil {
		return fmt.Errorf("dirlog: %w", err)
	}
	return nil
}
