package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/sharedlog"
)

// Implementation is an implementation to test.
type Implementation struct {
	// Open returns a new, empty log; with again it returns another handle of the log that the test has opened before, as
	// another process would have.
	Open func(t *testing.T, again bool) sharedlog.Log
	// Suspend ends the renewals of a lease, as if the owner's process was stopped: the lease ends after its time. Nil does
	// nothing: for a log that can be acquired while its owner is alive.
	Suspend func(sharedlog.Lease)
	// VirtualTime runs each test in a bubble of testing/synctest, so that the test does not wait for the end of a lease. Logs on a
	// network cannot use it.
	VirtualTime bool
}

// Run runs the tests of an implementation, in parallel, each with a log of its own.
func Run(t *testing.T, i Implementation) {
	if i.Suspend == nil {
		i.Suspend = func(sharedlog.Lease) {}
	}
	for name, test := range map[string]func(t *testing.T, i *opened){
		"Sequence": testSequence, "Fence": testFence, "Repetition": testRepetition, "Gap": testGap, "Release": testRelease,
		"Canceled": testCanceled, "Sizes": testSizes,
		"Base": testBase, "Bases": testBases, "FailedBase": testFailedBase, "LateBase": testLateBase, "Purge": testPurge,
		"PurgeNeedsABase": testPurgeNeedsABase, "LatePurge": testLatePurge,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if i.VirtualTime {
				synctest.Test(t, func(t *testing.T) { test(t, &opened{Implementation: i}) })
				return
			}
			test(t, &opened{Implementation: i})
		})
	}
}

// opened has the leases of a test.
type opened struct {
	Implementation
	owner sharedlog.Lease // the last one
}

// acquire acquires the log of the test with a handle of its own, while the former owner is suspended.
func (i *opened) acquire(t *testing.T) sharedlog.Lease {
	t.Helper()
	if i.owner != nil {
		i.Suspend(i.owner)
	}
	i.owner = acquire(t, i.Open(t, i.owner != nil))
	return i.owner
}

// next acquires the log of the test after its owner has released it.
func (i *opened) next(t *testing.T) sharedlog.Lease {
	t.Helper()
	if err := i.owner.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i.acquire(t)
}

// lossTime is how long a lease may take to notice that another host has acquired the log.
const lossTime = time.Minute

func acquire(t *testing.T, l sharedlog.Log) sharedlog.Lease {
	t.Helper()
	o, err := l.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Release(context.WithoutCancel(t.Context())) }) // it may be released, or fenced
	if !o.Valid() || isClosed(o.Lost()) || o.Generation() == 0 {
		t.Fatalf("a new lease is valid %v, lost %v, of generation %d", o.Valid(), isClosed(o.Lost()), o.Generation())
	}
	return o
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// record is the content of a record in these tests.
func record(n uint64) []byte { return fmt.Appendf(nil, "record %d", n) }

func appends(t *testing.T, o sharedlog.Lease, from, to uint64) {
	t.Helper()
	for n := from; n <= to; n++ {
		if err := o.Append(t.Context(), n, record(n)); err != nil {
			t.Fatalf("append of record %d: %v", n, err)
		}
	}
}

// has checks that the records from one number to the newest of the lease are those of record.
func has(t *testing.T, o sharedlog.Lease, from, newest uint64) {
	t.Helper()
	if o.Newest() != newest {
		t.Errorf("the newest record is %d, want %d", o.Newest(), newest)
	}
	n := from
	for b, err := range o.Read(t.Context(), from) {
		if err != nil || !bytes.Equal(b, record(n)) {
			t.Fatalf("record %d is %q, %v", n, b, err)
		}
		n++
	}
	if n != newest+1 {
		t.Errorf("the last record read is %d, want %d", n-1, newest)
	}
}

func testSequence(t *testing.T, i *opened) {
	o := i.acquire(t)
	has(t, o, 1, 0)
	appends(t, o, 1, 20)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := i.acquire(t)
	if next.Generation() <= o.Generation() {
		t.Errorf("generation %d follows %d", next.Generation(), o.Generation())
	}
	has(t, next, 1, 20)
	has(t, next, 20, 20)
	has(t, next, 7, 20)
	appends(t, next, 21, 22)
}

// testFence takes a log over while its owner still runs.
func testFence(t *testing.T, i *opened) {
	old := i.acquire(t)
	appends(t, old, 1, 3)
	o := i.acquire(t)
	if old.Valid() {
		t.Error("the former lease is valid")
	}
	refused := func(n uint64, b []byte) {
		t.Helper()
		if err := old.Append(t.Context(), n, b); !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("append of record %d with the former lease: %v", n, err)
		}
	}
	refused(4, record(4))
	refused(3, record(3)) // also a repetition
	appends(t, o, 4, 4)
	refused(4, record(4))
	refused(5, record(5)) // a predicted number
	appends(t, o, 5, 5)
	if err := old.Release(t.Context()); err != nil && !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("release of the former lease: %v", err)
	}
	appends(t, o, 6, 6)
	has(t, i.acquire(t), 1, 6)
	for n, former := range []sharedlog.Lease{old, o} {
		select {
		case <-former.Lost():
		case <-time.After(lossTime):
			t.Errorf("the loss of lease %d was not noticed within %v", n+1, lossTime)
		}
	}
}

// testRepetition appends the newest record again.
func testRepetition(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 2)
	appends(t, o, 2, 2)
	if err := o.Append(t.Context(), 2, []byte("another one")); err == nil {
		t.Error("another record with the number of the newest one was accepted")
	}
	appends(t, o, 3, 3)
	next := i.acquire(t)
	if err := next.Append(t.Context(), 3, record(3)); err == nil {
		t.Error("the record of another lease was taken for a repetition")
	}
	has(t, i.acquire(t), 1, 3)
}

func testGap(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 2)
	for _, n := range []uint64{0, 1, 4, 100} {
		err := o.Append(t.Context(), n, record(n))
		if err == nil || errors.Is(err, sharedlog.ErrUnknown) || errors.Is(err, sharedlog.ErrUnavailable) {
			t.Errorf("append of record %d after record 2: %v", n, err)
		}
	}
	has(t, i.acquire(t), 1, 2)
}

func testRelease(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 1)
	if err := o.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := o.Append(t.Context(), 2, record(2)); !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("append after the release: %v", err)
	}
	if o.Valid() || isClosed(o.Lost()) {
		t.Errorf("after its release the lease is valid %v, lost %v", o.Valid(), isClosed(o.Lost()))
	}
	has(t, i.acquire(t), 1, 1)
}

func testCanceled(t *testing.T, i *opened) {
	o := i.acquire(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	switch err := o.Append(ctx, 1, record(1)); {
	case err == nil:
		has(t, i.acquire(t), 1, 1)
	case !errors.Is(err, context.Canceled):
		t.Errorf("append with a cancelled context: %v", err)
	}
}

func testSizes(t *testing.T, i *opened) {
	o := i.acquire(t)
	sizes := []int{1, 1 << 10, 1<<20 + 1, 20 << 20}
	for n, size := range sizes {
		if err := o.Append(t.Context(), uint64(n+1), bytes.Repeat([]byte{byte(n)}, size)); err != nil {
			t.Fatalf("append of %d bytes: %v", size, err)
		}
	}
	next, n := i.acquire(t), 0
	for b, err := range next.Read(t.Context(), 1) {
		if err != nil || n >= len(sizes) || len(b) != sizes[n] || b[len(b)-1] != byte(n) {
			t.Fatalf("record %d has %d bytes, %v", n+1, len(b), err)
		}
		n++
	}
	if n != len(sizes) {
		t.Errorf("%d records were read, want %d", n, len(sizes))
	}
}
