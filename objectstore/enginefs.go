package objectstore

import (
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// flushCategory is how the engine marks the files of flushes.
const flushCategory vfs.DiskWriteCategory = "pebble-memtable-flush"

// engineFS is the file system as the engine sees it. Once it is sealed, operations that would change the disk do nothing
// and succeed; after a failure of the log, tables are still written: see background.
//
// The engine panics when it cannot close its log file or create the next one, with a mutex in a state that turns the
// panic into a fatal error of the process. So after Open engineFS hides the errors of log files from the engine. The first
// one seals it, and the committer checks for it before it acknowledges a record.
type engineFS struct {
	vfs.FS
	dir string // of the database; a backup writes files of the same kinds elsewhere
	b   *background
}

// Unwrap keeps the engine from using the file system below.
func (v *engineFS) Unwrap() vfs.FS { return nil }

func (v *engineFS) sealed() bool { return v.b.sealed.Load() }

// file wraps a file that was opened to be written.
func (v *engineFS) file(name string, f vfs.File, err error) (vfs.File, error) {
	k := v.kindOf(name)
	if err = v.b.check(k, err); err != nil {
		return nil, err
	}
	if f == nil {
		return discarded{}, nil
	}
	return &engineFile{f, v.b, k}, nil
}

// fileKind decides how the errors of a file are treated.
type fileKind uint8

const (
	otherFile fileKind = iota
	logFile
	tableFile
)

func (v *engineFS) kindOf(name string) fileKind {
	switch {
	case v.PathDir(name) != v.dir:
		return otherFile
	case strings.HasSuffix(name, ".log"):
		return logFile
	case strings.HasSuffix(name, ".sst"):
		return tableFile
	}
	return otherFile
}

// Create makes a file. A flush pauses here if the last one failed.
func (v *engineFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c == flushCategory {
		v.b.pause(&v.b.flush)
	}
	if v.b.discards(v.kindOf(name)) {
		return discarded{}, nil
	}
	f, err := v.FS.Create(name, c)
	return v.file(name, f, err)
}

func (v *engineFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if v.sealed() {
		return discarded{}, nil
	}
	f, err := v.FS.OpenReadWrite(name, c, o...)
	return v.file(name, f, err)
}

func (v *engineFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if v.sealed() {
		return discarded{}, nil
	}
	f, err := v.FS.ReuseForWrite(from, to, c)
	return v.file(to, f, err)
}

func (v *engineFS) OpenDir(name string) (vfs.File, error) {
	f, err := v.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &engineFile{f, v.b, otherFile}, nil
}

func (v *engineFS) Link(from, to string) error {
	if v.sealed() {
		return nil
	}
	return v.FS.Link(from, to)
}

func (v *engineFS) Remove(name string) error {
	if v.sealed() {
		return nil
	}
	return v.FS.Remove(name)
}

func (v *engineFS) RemoveAll(name string) error {
	if v.sealed() {
		return nil
	}
	return v.FS.RemoveAll(name)
}

func (v *engineFS) Rename(from, to string) error {
	if v.sealed() {
		return nil
	}
	return v.FS.Rename(from, to)
}

func (v *engineFS) MkdirAll(name string, perm os.FileMode) error {
	if v.sealed() {
		return nil
	}
	return v.FS.MkdirAll(name, perm)
}

// GetDiskUsage returns no error except that the file system cannot report its usage: the engine would report others
// as failures of its work.
func (v *engineFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	u, err := v.FS.GetDiskUsage(path)
	if err != nil {
		err = vfs.ErrUnsupported
	}
	return u, err
}

// engineFile is a file that was opened to be written, or a directory.
type engineFile struct {
	vfs.File
	b    *background
	kind fileKind
}

// do runs an operation that changes the disk.
func (f *engineFile) do(op func() error) error {
	if f.b.discards(f.kind) {
		return nil
	}
	return f.b.check(f.kind, op())
}

func (f *engineFile) Write(p []byte) (n int, err error) {
	err = f.do(func() error { n, err = f.File.Write(p); return err })
	if err == nil {
		n = len(p)
	}
	return n, err
}

func (f *engineFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.do(func() error { n, err = f.File.WriteAt(p, off); return err })
	if err == nil {
		n = len(p)
	}
	return n, err
}

// Preallocate does not seal: the engine ignores its errors.
func (f *engineFile) Preallocate(off, length int64) error {
	if f.b.sealed.Load() {
		return nil
	}
	return f.File.Preallocate(off, length)
}

func (f *engineFile) Sync() error { return f.do(f.File.Sync) }

func (f *engineFile) SyncData() error { return f.do(f.File.SyncData) }

func (f *engineFile) SyncTo(length int64) (all bool, err error) {
	err = f.do(func() error { all, err = f.File.SyncTo(length); return err })
	return all, err
}

// Stat is called of a log file that is used again.
func (f *engineFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err == nil {
		return info, nil
	}
	return noInfo{}, f.b.check(f.kind, err)
}

func (f *engineFile) Close() error { return f.b.check(f.kind, f.File.Close()) }

// discarded is a file without content, which discards all writes.
type discarded struct{ vfs.File }

func (discarded) Close() error                           { return nil }
func (discarded) Write(p []byte) (int, error)            { return len(p), nil }
func (discarded) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discarded) Preallocate(int64, int64) error         { return nil }
func (discarded) Read([]byte) (int, error)               { return 0, fs.ErrNotExist }
func (discarded) ReadAt([]byte, int64) (int, error)      { return 0, fs.ErrNotExist }
func (discarded) Stat() (vfs.FileInfo, error)            { return noInfo{}, nil }
func (discarded) Sync() error                            { return nil }
func (discarded) SyncData() error                        { return nil }
func (discarded) SyncTo(int64) (bool, error)             { return false, nil }
func (discarded) Prefetch(int64, int64) error            { return nil }
func (discarded) Fd() uintptr                            { return vfs.InvalidFd }

// noInfo describes a discarded file.
type noInfo struct{}

func (noInfo) Name() string           { return "" }
func (noInfo) Size() int64            { return 0 }
func (noInfo) Mode() fs.FileMode      { return 0 }
func (noInfo) ModTime() time.Time     { return time.Time{} }
func (noInfo) IsDir() bool            { return false }
func (noInfo) Sys() any               { return nil }
func (noInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
