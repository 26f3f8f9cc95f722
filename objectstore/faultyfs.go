package objectstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// faultyFS adds the counters and faults of an FS to a file system. Methods that it does not override are those of the
// base.
type faultyFS struct {
	vfs.FS
	f *FS
}

// Unwrap keeps Pebble from bypassing the faultyFS.
func (v *faultyFS) Unwrap() vfs.FS { return nil }

func (v *faultyFS) file(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: f, f: v.f, name: name, wal: strings.HasSuffix(name, ".log")}, nil
}

func (v *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := v.f.write("create", name); err != nil {
		return nil, err
	}
	f, err := v.FS.Create(name, c)
	return v.file(f, err, name)
}

// Open opens a file to be read, and counts the bytes read from a log.
func (v *faultyFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := v.FS.Open(name, o...)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &replayedFile{f, &v.f.logRead}, nil
}

func (v *faultyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := v.f.write("open", name); err != nil {
		return nil, err
	}
	f, err := v.FS.OpenReadWrite(name, c, o...)
	return v.file(f, err, name)
}

func (v *faultyFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := v.f.write("reuse", to); err != nil {
		return nil, err
	}
	v.f.crash.RLock()
	defer v.f.crash.RUnlock()
	f, err := v.FS.ReuseForWrite(from, to, c)
	return v.file(f, err, to)
}

func (v *faultyFS) OpenDir(name string) (vfs.File, error) {
	f, err := v.FS.OpenDir(name)
	return v.file(f, err, name)
}

func (v *faultyFS) Link(from, to string) error {
	if err := v.f.write("link", to); err != nil {
		return err
	}
	return v.FS.Link(from, to)
}

func (v *faultyFS) Remove(name string) error {
	if err := v.f.write("remove", name); err != nil {
		return err
	}
	return v.FS.Remove(name)
}

func (v *faultyFS) RemoveAll(name string) error {
	if err := v.f.write("remove", name); err != nil {
		return err
	}
	return v.FS.RemoveAll(name)
}

func (v *faultyFS) Rename(from, to string) error {
	if err := v.f.write("rename", to); err != nil {
		return err
	}
	return v.FS.Rename(from, to)
}

func (v *faultyFS) MkdirAll(name string, perm os.FileMode) error {
	if err := v.f.write("mkdir", name); err != nil {
		return err
	}
	return v.FS.MkdirAll(name, perm)
}

func (v *faultyFS) Lock(name string) (io.Closer, error) {
	v.f.crash.RLock()
	defer v.f.crash.RUnlock()
	lock, err := v.FS.Lock(name)
	if _, mem := v.f.base.(*vfs.MemFS); mem && errors.Is(err, syscall.EAGAIN) {
		return nil, fmt.Errorf("%w: %s", errInUse, name)
	}
	return lock, err
}

func (v *faultyFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	v.f.mu.Lock()
	free := v.f.free
	v.f.mu.Unlock()
	if free != nil {
		return vfs.DiskUsage{AvailBytes: *free, TotalBytes: *free}, nil
	}
	return v.FS.GetDiskUsage(path)
}

// faultyFile is a file that was opened for writing, or a directory.
type faultyFile struct {
	vfs.File
	f    *FS
	name string
	wal  bool
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.f.write("write", f.name); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.f.write("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Sync() error {
	if err := f.syncing(); err != nil {
		return err
	}
	return f.synced(f.File.Sync())
}

func (f *faultyFile) SyncData() error {
	if err := f.syncing(); err != nil {
		return err
	}
	return f.synced(f.File.SyncData())
}

// SyncTo may sync everything, so it counts as a sync.
func (f *faultyFile) SyncTo(length int64) (bool, error) {
	if err := f.syncing(); err != nil {
		return false, err
	}
	all, err := f.File.SyncTo(length)
	return all, f.synced(err)
}

func (f *faultyFile) syncing() error {
	if err := f.f.write("sync", f.name); err != nil {
		return err
	}
	if f.wal {
		return f.f.sync()
	}
	return nil
}

// synced is called with the result of a sync, and returns it.
func (f *faultyFile) synced(err error) error {
	if err == nil && f.wal {
		f.f.synced()
	}
	return err
}

// replayedFile is a log that is read when the store is opened.
type replayedFile struct {
	vfs.File
	n *atomic.Int64
}

func (f *replayedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.n.Add(int64(n))
	return n, err
}
