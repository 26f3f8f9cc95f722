package objectstore

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/guard"
)

// The intervals of the checks for ErrNoSpace.
const (
	spaceCheckBytes = 1 << 20                // written, while there is space
	spaceCheckEvery = time.Second            // while there is space
	spaceRecheck    = 100 * time.Millisecond // while there is none
)

// minReserve is space for records and for undurable data, even with small memtables.
const minReserve = 64 << 20

// spaceGuard checks whether the disk has the reserve left. A full disk fails syncs, and with them the store, so
// writes are refused before that.
type spaceGuard struct {
	fs      vfs.FS
	dir     string
	flush   func() error // the error of the engine's last flush, or nil
	reserve int64
	since   time.Time // the start of the clock of measured
	on      func(DiskSpace)
	log     *slog.Logger

	mu       sync.Mutex            // held while on is called
	refusal  atomic.Pointer[error] // of writes; nil if they are taken
	measured atomic.Int64          // when, in nanoseconds after since

	written int64 // since the last check; the committer's
}

// check returns ErrNoSpace while the disk is full, or the engine cannot flush. It checks the disk if the last check is older than
// spaceCheckEvery, or spaceRecheck while writes are refused: without writes the committer does not check, and other programs may fill
// the disk.
func (g *spaceGuard) check() error {
	wait := spaceCheckEvery
	if g.refusal.Load() != nil {
		wait = spaceRecheck
	}
	last := g.measured.Load()
	now := int64(time.Since(g.since))
	if now-last >= int64(wait) && g.measured.CompareAndSwap(last, now) {
		g.measure()
	}
	if refusal := g.refusal.Load(); refusal != nil {
		return *refusal
	}
	return nil
}

// recheck is check after a new measurement of the disk, for writes to files other than the engine's.
func (g *spaceGuard) recheck() error {
	g.measured.Store(int64(time.Since(g.since)))
	g.measure()
	return g.check()
}

// RecheckSpace measures the free space of the disk now: while there was space, Put does that once a second. For tests.
func (s *Store) RecheckSpace() { _ = s.space.recheck() }

// flushError refuses writes while the engine cannot flush: it could probably not create its next log file either, and the
// store would fail.
type flushError struct{ err error }

// Error implements error.
func (e *flushError) Error() string {
	return "dohost: writes are refused until the store can write its files: " + e.err.Error()
}

// Is makes the error [ErrNoSpace].
func (e *flushError) Is(target error) bool { return target == ErrNoSpace }

// Unwrap returns the error of the flush.
func (e *flushError) Unwrap() error { return e.err }

// wrote counts written bytes for the committer, and checks the disk after enough bytes or time.
func (g *spaceGuard) wrote(n int64) {
	g.written += n
	now := int64(time.Since(g.since))
	if g.written < spaceCheckBytes && now-g.measured.Load() < int64(spaceCheckEvery) {
		return
	}
	g.written = 0
	g.measured.Store(now)
	g.measure()
}

func (g *spaceGuard) measure() {
	var refusal error
	cause := g.flush()
	if cause != nil {
		refusal = &flushError{cause}
	}
	var free uint64
	if g.reserve >= 0 {
		// A file system that cannot report its usage is taken to have space.
		if u, err := g.fs.GetDiskUsage(g.dir); err == nil {
			if free = u.AvailBytes; free < uint64(g.reserve) {
				refusal, cause = ErrNoSpace, nil
			}
		}
	}
	g.mu.Lock() // orders the calls of OnSpace, so that the last one has the present state
	defer g.mu.Unlock()
	was := g.refusal.Load() != nil
	full := refusal != nil
	if full {
		g.refusal.Store(&refusal)
	} else {
		g.refusal.Store(nil)
	}
	if was == full || g.on == nil {
		return
	}
	space := DiskSpace{Dir: g.dir, Full: full, Free: free, Reserve: uint64(max(0, g.reserve)), Err: cause}
	if f := guard.Run(func() { g.on(space) }); f != nil {
		g.log.Error("OnSpace failed", "cause", f, "stack", string(f.Stack))
	}
}

// DiskSpace reports that a store refuses writes for lack of space, or accepts them again.
type DiskSpace struct {
	Dir     string
	Full    bool   // writes are refused
	Free    uint64 // bytes; zero if the file system does not report it, or Options.ReserveBytes is negative
	Reserve uint64 // bytes: Options.ReserveBytes; zero if that is negative
	// Err is the error of the engine's last flush, if writes are refused because of it
	// and not because Free is below Reserve.
	Err error
}
