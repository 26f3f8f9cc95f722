package objectstore

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a file system for a store: the disk, or memory that can crash. It counts, delays and fails operations as a
// test demands. All methods may be called from any goroutine.
type FS struct {
	base vfs.FS

	logRead atomic.Int64 // see LogRead

	// crash excludes a clone while an operation of the memory file system takes its lock for reading twice: the clone
	// would wait for the first and the second for the clone.
	crash sync.RWMutex

	mu         sync.Mutex // guards the rest; not held during I/O or a callback
	syncs      int64
	writes     int64
	failSyncs  error
	failWrites error
	onWrite    func(op string, path string, n int64) error
	onSynced   func()
	held       chan struct{} // closed on release; nil unless syncs are held
	free       *uint64       // nil: as base reports
}

// NewMemFS returns an empty file system in memory that tracks synced data.
func NewMemFS() *FS { return &FS{base: vfs.NewCrashableMem()} }

// DiskFS returns the disk with counters and faults. Production leaves Options.FS nil.
func DiskFS() *FS { return &FS{base: theDisk} }

// Crash returns the state that a power cut would leave of a file system in memory: all synced data and
// unsyncedPercent of the other blocks, chosen by seed. The original is not affected, and the copy has no faults. On a
// DiskFS it returns nil.
func (f *FS) Crash(unsyncedPercent int, seed uint64) *FS {
	mem, ok := f.base.(*vfs.MemFS)
	if !ok {
		return nil
	}
	f.crash.Lock()
	defer f.crash.Unlock()
	return &FS{base: mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: unsyncedPercent,
		RNG:                 rand.New(rand.NewPCG(seed, seed)),
	})}
}

// Syncs counts the syncs of the write-ahead log since the start.
func (f *FS) Syncs() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncs
}

// LogRead counts the bytes that were read from write-ahead logs: opening a store that
// was not closed replays them.
func (f *FS) LogRead() int64 { return f.logRead.Load() }

// FailSyncs makes every later sync of the write-ahead log fail with err; nil ends that.
func (f *FS) FailSyncs(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failSyncs = err
}

// FailWrites makes every later operation that changes the file system fail with err; nil ends that.
func (f *FS) FailWrites(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failWrites = err
}

// OnWrite calls fn before each operation that changes the file system, syncs included, with the number of the operation, from 1. An
// error of fn becomes the error of the operation. FailWrites takes precedence. Calls of fn may be concurrent.
func (f *FS) OnWrite(fn func(op string, path string, n int64) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onWrite, f.writes = fn, 0
}

// OnSynced calls fn after each successful sync of the write-ahead log, before the sync returns to the store. Calls of fn may be
// concurrent.
func (f *FS) OnSynced(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onSynced = fn
}

// HoldSyncs blocks syncs of the write-ahead log until release is called. A blocked sync counts when it resumes.
func (f *FS) HoldSyncs() (release func()) {
	held := make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.held == held {
			f.held = nil
		}
		close(held)
	})
}

// SetFree sets the number of free bytes that the file system reports.
func (f *FS) SetFree(bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = &bytes
}

// write is called before an operation that changes the file system.
func (f *FS) write(op, path string) error {
	f.mu.Lock()
	f.writes++
	n, fn, err := f.writes, f.onWrite, f.failWrites
	f.mu.Unlock()
	if err == nil && fn != nil {
		err = fn(op, path, n)
	}
	return err
}

// sync is called before a sync of the write-ahead log.
func (f *FS) sync() error {
	f.mu.Lock()
	held := f.held
	f.mu.Unlock()
	if held != nil {
		<-held
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	return f.failSyncs
}

// synced is called after a sync of the write-ahead log.
func (f *FS) synced() {
	f.mu.Lock()
	fn := f.onSynced
	f.mu.Unlock()
	if fn != nil {
		fn()
	}
}
