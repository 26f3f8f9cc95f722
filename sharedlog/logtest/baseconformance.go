package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/dohost/dohost/sharedlog"
)

// state is the content of a base in these tests.
func state(n uint64) []byte { return bytes.Repeat(fmt.Appendf(nil, "state after record %d, ", n), 100) }

// writeBase writes the base of a record, in several parts.
func writeBase(t *testing.T, o sharedlog.Lease, number uint64) {
	t.Helper()
	err := o.WriteBase(t.Context(), number, func(w io.Writer) error {
		b := state(number)
		for len(b) > 0 {
			n := min(len(b), 700)
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	})
	if err != nil {
		t.Fatalf("base of record %d: %v", number, err)
	}
}

// hasBase checks the base of a lease.
func hasBase(t *testing.T, o sharedlog.Lease, number uint64) {
	t.Helper()
	if o.Base() != number {
		t.Fatalf("the base is that of record %d, want %d", o.Base(), number)
	}
	if number == 0 {
		return
	}
	r, err := o.ReadBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(content, state(number)) {
		t.Errorf("the base of record %d has %d bytes, want %d: %v", number, len(content), len(state(number)), err)
	}
}

// isPurged checks that the records before one are purged, and that it is not.
func isPurged(t *testing.T, o sharedlog.Lease, before uint64) {
	t.Helper()
	for n := uint64(1); n < before; n++ {
		count := 0
		for _, err := range o.Read(t.Context(), n) {
			if count++; !errors.Is(err, sharedlog.ErrPurged) || count > 1 {
				t.Errorf("read of record %d, step %d: %v, want ErrPurged", n, count, err)
			}
		}
		if count == 0 {
			t.Errorf("read of record %d ends without ErrPurged", n)
		}
	}
	has(t, o, before, o.Newest())
}

// testBase appends records while a base is written.
func testBase(t *testing.T, i *opened) {
	o := i.acquire(t)
	hasBase(t, o, 0)
	appends(t, o, 1, 5)
	err := o.WriteBase(t.Context(), 4, func(w io.Writer) error {
		appends(t, o, 6, 7)
		_, err := w.Write(state(4))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	appends(t, o, 7, 7) // a repetition
	appends(t, o, 8, 8)
	next := i.acquire(t)
	hasBase(t, next, 4)
	has(t, next, 1, 8)
	appends(t, next, 9, 9)
	last := i.next(t)
	hasBase(t, last, 4)
	has(t, last, 4, 9)
}

// testBases replaces a base, by the same lease and by others.
func testBases(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 6)
	writeBase(t, o, 2)
	writeBase(t, o, 4)
	writeBase(t, o, 4)
	for _, number := range []uint64{0, 3, 7} {
		err := o.WriteBase(t.Context(), number, func(w io.Writer) error {
			_, err := w.Write(state(number))
			return err
		})
		if err == nil {
			t.Errorf("a base of record %d was accepted after that of record 4, with 6 records", number)
		}
	}
	o = i.next(t)
	hasBase(t, o, 4)
	writeBase(t, o, 6)
	hasBase(t, i.next(t), 6)
}

// testFailedBase has bases that fail in the middle, and one whose context has ended.
func testFailedBase(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 4)
	failed := errors.New("by the test")
	half := func(number uint64) error {
		return o.WriteBase(t.Context(), number, func(w io.Writer) error {
			_, err := w.Write(state(number)[:100])
			return errors.Join(err, failed)
		})
	}
	if err := half(2); !errors.Is(err, failed) {
		t.Errorf("a base that fails: %v", err)
	}
	writeBase(t, o, 3)
	if err := half(4); !errors.Is(err, failed) {
		t.Errorf("a base that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := o.WriteBase(ctx, 4, func(w io.Writer) error {
		cancel()
		_, err := w.Write(state(4))
		return err
	})
	want := uint64(3)
	if err == nil {
		want = 4
	}
	appends(t, o, 5, 5)
	next := i.next(t)
	hasBase(t, next, want)
	has(t, next, want, 5)
}

// testLateBase has bases of a former owner that end after another host has acquired the log.
func testLateBase(t *testing.T, i *opened) {
	old := i.acquire(t)
	appends(t, old, 1, 5)
	writeBase(t, old, 2)
	var o sharedlog.Lease
	late := func(number uint64, before func()) {
		t.Helper()
		err := old.WriteBase(t.Context(), number, func(w io.Writer) error {
			before()
			_, err := w.Write(state(number))
			return err
		})
		if !errors.Is(err, sharedlog.ErrFenced) {
			t.Errorf("a base of record %d by the former owner: %v", number, err)
		}
	}
	late(5, func() { o = i.acquire(t) })
	hasBase(t, o, 2)
	appends(t, o, 6, 8)
	late(5, func() {})
	writeBase(t, o, 7)
	late(5, func() {})
	if err := o.Purge(t.Context(), 7); err != nil {
		t.Error(err)
	}
	late(5, func() {})
	next := i.next(t)
	hasBase(t, next, 7)
	isPurged(t, next, 7)
}

// testPurge cuts the log several times, and with changes of the owner.
func testPurge(t *testing.T, i *opened) {
	o, newest := i.acquire(t), uint64(0)
	for _, base := range []uint64{3, 4, 9, 20} {
		appends(t, o, newest+1, base+2)
		newest = base + 2
		writeBase(t, o, base)
		for range 2 { // again: there is nothing to delete
			if err := o.Purge(t.Context(), base); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Purge(t.Context(), base-1); err != nil {
			t.Errorf("a purge of purged records: %v", err)
		}
		o = i.next(t)
		hasBase(t, o, base)
		isPurged(t, o, base)
	}
	writeBase(t, o, newest)
	if err := o.Purge(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	o = i.next(t)
	hasBase(t, o, newest)
	isPurged(t, o, newest)
	appends(t, o, newest+1, newest+1)
	has(t, i.next(t), newest, newest+1)
}

// testPurgeNeedsABase purges records that the newest base does not have.
func testPurgeNeedsABase(t *testing.T, i *opened) {
	o := i.acquire(t)
	appends(t, o, 1, 6)
	refused := func(before uint64) {
		t.Helper()
		if err := o.Purge(t.Context(), before); err == nil {
			t.Errorf("the records before %d were purged, without a base that has them", before)
		}
	}
	refused(6)
	writeBase(t, o, 3)
	refused(4)
	refused(7)
	o = i.next(t)
	has(t, o, 1, 6)
	refused(4)
	if err := o.Purge(t.Context(), 3); err != nil {
		t.Error(err)
	}
	isPurged(t, i.next(t), 3)
}

// testLatePurge has a purge by a former owner, of records that its own base has.
func testLatePurge(t *testing.T, i *opened) {
	old := i.acquire(t)
	appends(t, old, 1, 5)
	writeBase(t, old, 4)
	o := i.acquire(t)
	if err := old.Purge(t.Context(), 4); !errors.Is(err, sharedlog.ErrFenced) {
		t.Errorf("a purge by the former owner: %v", err)
	}
	has(t, o, 1, 5)
	hasBase(t, o, 4)
	if err := o.Purge(t.Context(), 4); err != nil {
		t.Error(err)
	}
	isPurged(t, i.next(t), 4)
}
