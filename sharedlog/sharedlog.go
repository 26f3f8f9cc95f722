// Package sharedlog is the interface between a host and a log outside of its machine, which keeps the history of the host's
// store. Another host that acquires the log continues the history, and excludes the former owner.
//
// A host without a shared log keeps its history in its own directory: the log of the embedded database is the history, and a lock
// excludes other hosts. A host with a [Lease] appends each record to the shared log before it applies the record to its database.
// The database is then a cache: a host that opens an empty or an old directory replays the records that the directory lacks.
//
// # Bases
//
// A base is the complete state after the record with its number. The owner writes one when the records since the last one have
// become large, and then purges the records before it, so that the log does not grow without a limit:
//
//	state after record n frozen ──▶ base n durable ──▶ base n published ──▶ records before n purged
//
// Publishing is one atomic step, which the log refuses if another host has acquired it, as it refuses an append. So the bases have
// one order, and a suspended owner that continues late replaces nothing and purges nothing that the newest base does not have. The
// record n itself stays: its successor continues its sum, and so does the base. A host with a directory that has record n or a
// later one continues from its directory; another host reads the base, and then the records after n.
//
// # Invariants
//
// An implementation and the host keep these together. The tests of package logtest check the part of the implementation.
//
//   - Fence. The log decides about each append in one atomic step, and refuses the append if another host has acquired the log. A
//     lease that seems valid is never a reason to accept an append.
//   - No gap. The record number n is accepted only after the record number n-1. The host numbers a record only after the log has
//     confirmed the record before. It never predicts a number, so one append is in flight at a time.
//   - Repetition. If the outcome of an append is unknown, the host repeats it with the same number and the same bytes, and the log
//     accepts it once.
//   - Confirmation. The host applies a record only after Append has returned nil. Then it releases the outputs that depend on the
//     record, if the lease is still valid.
//   - Generation. Each acquisition has a greater generation than all before it. The host never derives a generation from its directory.
//   - Verification. The host verifies the chain of sums of all records that it reads, and of the parts of a base. It refuses to open
//     if the log has lost records that the directory has.
//   - No hole. A record is purged only after a base with its number or a later one is published. A reader gets each record,
//     or ErrPurged, and then it has a base.
package sharedlog

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Errors of a Lease, to be wrapped. After any other error of Append the host fails.
var (
	// ErrFenced: another host has acquired the log, or the lease was released. The append was refused, and so is each later one.
	ErrFenced = errors.New("sharedlog: fenced by another owner")
	// ErrUnknown: it is not known whether the record was appended. The host repeats the append.
	ErrUnknown = errors.New("sharedlog: unknown whether the record was appended")
	// ErrUnavailable: the record was not appended, and a later attempt may succeed. The host repeats the append.
	ErrUnavailable = errors.New("sharedlog: log unavailable")
)

// ErrPurged is an error of Read, to be wrapped: the record was purged, so the log has a base with a later number.
var ErrPurged = errors.New("sharedlog: record purged")

// Log is the history of one store.
type Log interface {
	// Acquire makes the caller the owner. When it returns, no append of an earlier owner can succeed any more, and none of
	// the earlier leases is valid. Acquire may wait until an earlier lease has ended. If ctx ends first, Acquire returns
	// an error that wraps the error of ctx. A Log that cannot be reached returns ErrUnavailable.
	Acquire(ctx context.Context) (Lease, error)
}

// Lease is the right to append to a log, for one Open of a host. The host calls Valid from any goroutine, WriteBase and Purge from
// one goroutine at a time, and the other methods from one goroutine at a time: a base is written while records are appended. A host
// fails after a panic of Append or Valid.
type Lease interface {
	// Generation is greater than the generation of each earlier lease on the log, and at least 1. It must be less than 1<<24.
	Generation() uint64
	// Newest is the number of the newest record when the lease was acquired; 0 if the log is empty.
	Newest() uint64
	// Base is the number of the newest base when the lease was acquired; 0 if the log has none.
	Base() uint64
	// ReadBase opens that base. The host does not call it if Base is 0. It verifies the content, and closes it. The end of ctx ends
	// the reading, too.
	ReadBase(ctx context.Context) (io.ReadCloser, error)
	// Read yields the records from this number, which is at least 1, to the newest one, in order. The host does not change a
	// yielded slice, and does not use it after the next step. An error ends the sequence; it is ErrPurged if the record was purged.
	Read(ctx context.Context, from uint64) iter.Seq2[[]byte, error]
	// Append makes a record durable as the one with this number, which follows the newest one. A record has at most 32 MiB.
	// If the newest record has this number and the same bytes, and was appended with this lease, Append returns nil. Other
	// errors than ErrFenced, ErrUnknown and ErrUnavailable make the host fail. The log must not keep the slice.
	//
	// Append returns soon after the end of ctx, which ends when Lost is closed, and when Open or Close gives the record up. Its error is then
	// of no importance: the host appends nothing any more.
	Append(ctx context.Context, number uint64, record []byte) error
	// WriteBase publishes a base: the state after the record with this number, in the bytes that write writes. It calls write once, unless
	// it fails before; an error of write ends WriteBase, with that error. The number is at most the number of the newest record, and
	// not less than the number of the newest base.
	//
	// The base is published in one atomic step after its bytes are durable, and replaces the one before. The step is refused with
	// ErrFenced if the lease has ended. After nil all later owners get this base or a newer one. After another error they get this
	// one or the one before: the host purges nothing, and writes a newer base later.
	//
	// WriteBase returns soon after the end of ctx, which ends with the lease and with the host. Its errors do not make a host fail.
	WriteBase(ctx context.Context, number uint64, write func(io.Writer) error) error
	// Purge deletes the records with smaller numbers than this one, in their order, and returns nil if there are none. It
	// refuses a number that is greater than the number of the newest base, and a lease that has ended. If it fails, a part of the records may
	// be deleted; the host repeats it. Its errors do not make a host fail.
	Purge(ctx context.Context, before uint64) error
	// Valid reports whether no other host can have acquired the log. It must not block: a host calls it before each output, and
	// fails if the result is false. An implementation compares the monotonic clock with a deadline before which no acquisition of
	// another host succeeds. A lease that was invalid is never valid again.
	Valid() bool
	// Lost is closed when the lease has ended without Release. The host then fails, and ends its objects.
	Lost() <-chan struct{}
	// Release ends the lease, so that another host can acquire the log immediately.
	Release(ctx context.Context) error
}
