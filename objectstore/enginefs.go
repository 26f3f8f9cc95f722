package objectstore

import (
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// flushCategory is how the engine marks the files of flushes.
const flushCategory vfs.DiskWriteCategory = "pebble-memtable-flush"

// engineFS is the file system as the engine sees it. Once background.sealed is set,
// operations that would change the disk do nothing and succeed.
type engineFS struct {
	vfs.FS
	b *background
}

// Unwrap keeps the engine from using the file system below.
func (v *engineFS) Unwrap() vfs.FS { return nil }

func (v *engineFS) sealed() bool { return v.b.sealed.Load() }

// file wraps a file that was opened to be written.
func (v *engineFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &engineFile{f, v.b}, nil
}

// Create makes a file. A flush pauses here if the last one failed.
func (v *engineFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if c == flushCategory {
		v.b.pause(&v.b.flush)
	}
	if v.sealed() {
		return discarded{}, nil
	}
	return v.file(v.FS.Create(name, c))
}

func (v *engineFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if v.sealed() {
		return discarded{}, nil
	}
	return v.file(v.FS.OpenReadWrite(name, c, o...))
}

func (v *engineFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if v.sealed() {
		return discarded{}, nil
	}
	return v.file(v.FS.ReuseForWrite(from, to, c))
}

func (v *engineFS) OpenDir(name string) (vfs.File, error) { return v.file(v.FS.OpenDir(name)) }

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
	b *background
}

func (f *engineFile) Write(p []byte) (int, error) {
	if f.b.sealed.Load() {
		return len(p), nil
	}
	return f.File.Write(p)
}

func (f *engineFile) WriteAt(p []byte, off int64) (int, error) {
	if f.b.sealed.Load() {
		return len(p), nil
	}
	return f.File.WriteAt(p, off)
}

func (f *engineFile) Preallocate(off, length int64) error {
	if f.b.sealed.Load() {
		return nil
	}
	return f.File.Preallocate(off, length)
}

func (f *engineFile) Sync() error {
	if f.b.sealed.Load() {
		return nil
	}
	return f.File.Sync()
}

func (f *engineFile) SyncData() error {
	if f.b.sealed.Load() {
		return nil
	}
	return f.File.SyncData()
}

func (f *engineFile) SyncTo(length int64) (bool, error) {
	if f.b.sealed.Load() {
		return false, nil
	}
	return f.File.SyncTo(length)
}

// discarded is a file without content, which discards all writes.
type discarded struct{ vfs.File }

func (discarded) Close() error                           { return nil }
func (discarded) Write(p []byte) (int, error)            { return len(p), nil }
func (discarded) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discarded) Preallocate(int64, int64) error         { return nil }
func (discarded) Read([]byte) (int, error)               { return 0, fs.ErrNotExist }
func (discarded) ReadAt([]byte, int64) (int, error)      { return 0, fs.ErrNotExist }
func (discarded) Stat() (vfs.FileInfo, error)            { return nil, fs.ErrNotExist }
func (discarded) Sync() error                            { return nil }
func (discarded) SyncData() error                        { return nil }
func (discarded) SyncTo(int64) (bool, error)             { return false, nil }
func (discarded) Prefetch(int64, int64) error            { return nil }
func (discarded) Fd() uintptr                            { return vfs.InvalidFd }
