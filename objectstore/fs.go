package objectstore

// FS is a file system for a store: the disk, or memory that can crash. It counts,
// holds and fails what a test asks it to.
type FS struct{}

// NewMemFS returns an empty file system in memory that knows what was synced.
func NewMemFS() *FS { return nil }

// DiskFS returns the disk with counters and faults. Production leaves Options.FS nil.
func DiskFS() *FS { return nil }

// Crash returns what a power cut would leave of a file system in memory: all that
// was synced and, of the rest, unsyncedPercent of the blocks, chosen by seed.
// The original goes on unharmed. On a DiskFS it returns nil.
func (f *FS) Crash(unsyncedPercent int, seed uint64) *FS { return nil }

// Syncs counts the syncs of the write-ahead log since the start.
func (f *FS) Syncs() int64 { return 0 }

// FailSyncs makes every later sync of the write-ahead log fail with err; nil heals.
func (f *FS) FailSyncs(err error) {}

// FailWrites makes every later write of any file fail with err; nil heals.
func (f *FS) FailWrites(err error) {}

// OnWrite calls fn before each operation that changes the file system, with a
// number that counts them from 1. Its error becomes that of the operation.
func (f *FS) OnWrite(fn func(op string, path string, n int64) error) {}

// HoldSyncs blocks syncs of the write-ahead log until release is called.
func (f *FS) HoldSyncs() (release func()) { return func() {} }

// SetFree pretends that so much space is free.
func (f *FS) SetFree(bytes uint64) {}
