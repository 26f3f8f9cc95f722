package objectstore

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dohost/dohost/internal/guard"
)

// ErrNoSpace is decided by looks at the disk that are this far apart.
const (
	spaceLookBytes = 1 << 20                // written, while there is space
	spaceLookEvery = time.Second            // while there is space
	spaceLookAgain = 100 * time.Millisecond // while there is none
)

// minReserve is room for records and for what is undurable, however small the
// memtables are.
const minReserve = 64 << 20

// spaceGuard knows whether the disk has the reserve left. A full disk fails
// syncs, and with them the store, so writes are refused before that.
type spaceGuard struct {
	fs      vfs.FS
	dir     string
	reserve int64
	since   time.Time // the start of looked's clock
	on      func(DiskSpace)
	log     *slog.Logger

	mu     sync.Mutex // held while on is called
	full   atomic.Bool
	looked atomic.Int64 // when, in nanoseconds after since

	written int64 // since the last look; the committer's
}

// check returns ErrNoSpace while the disk is full. It looks again now and then:
// without writes nobody else does, and other programs may fill the disk.
func (g *spaceGuard) check() error {
	wait := spaceLookEvery
	if g.full.Load() {
		wait = spaceLookAgain
	}
	last := g.looked.Load()
	now := int64(time.Since(g.since))
	if now-last >= int64(wait) && g.looked.CompareAndSwap(last, now) {
		g.look()
	}
	if g.full.Load() {
		return ErrNoSpace
	}
	return nil
}

// wrote is the committer's: it looks when enough was written, or time has passed.
func (g *spaceGuard) wrote(n int64) {
	g.written += n
	now := int64(time.Since(g.since))
	if g.written < spaceLookBytes && now-g.looked.Load() < int64(spaceLookEvery) {
		return
	}
	g.written = 0
	g.looked.Store(now)
	g.look()
}

func (g *spaceGuard) look() {
	if g.reserve < 0 {
		return
	}
	u, err := g.fs.GetDiskUsage(g.dir)
	// A file system that cannot tell is taken to have space.
	full := err == nil && u.AvailBytes < uint64(g.reserve)
	g.mu.Lock() // so that who is told last is told what holds
	defer g.mu.Unlock()
	if g.full.Swap(full) == full || g.on == nil {
		return
	}
	space := DiskSpace{Dir: g.dir, Full: full, Free: u.AvailBytes, Reserve: uint64(g.reserve)}
	if f := guard.Run(func() { g.on(space) }); f != nil {
		g.log.Error("OnSpace did not return", "cause", f, "stack", string(f.Stack))
	}
}

// DiskSpace is told when a store begins to refuse writes for want of space, and when
// it takes them again.
type DiskSpace struct {
	Dir     string
	Full    bool   // writes are refused
	Free    uint64 // bytes; zero if the file system cannot tell
	Reserve uint64 // bytes: Options.ReserveBytes
}
