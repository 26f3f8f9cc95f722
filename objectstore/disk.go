package objectstore

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errInUse reports that another opener holds a lock, in this process or in another.
var errInUse = errors.New("the lock file is in use")

const (
	privateDir  fs.FileMode = 0o700
	privateFile fs.FileMode = 0o600
)

// disk is the machine's file system, with two differences.
//
// Its locks belong to the open file: two names of one file are one lock, and closing
// another descriptor of the file does not release it. On Unix the locks of vfs.Default,
// by fcntl, guarantee neither.
//
// Only their owner can use the files and folders that it creates, those of the engine included, independent of the
// process's umask. Existing folders keep their modes.
type disk struct{ vfs.FS }

var theDisk = disk{vfs.Default}

// Unwrap returns the file system that disk extends.
func (d disk) Unwrap() vfs.FS { return d.FS }

// Lock creates the file name if it is absent, and locks it until the returned
// closer is closed. It does not wait: the error is errInUse or the disk's.
func (d disk) Lock(name string) (io.Closer, error) { return lockFile(name) }

// Create creates a file.
func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return private(f, err, name)
}

// OpenReadWrite opens a file, and creates it if it is missing.
func (d disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, o...)
	return private(f, err, name)
}

// MkdirAll makes a folder and those above it.
func (d disk) MkdirAll(name string, _ fs.FileMode) error { return d.FS.MkdirAll(name, privateDir) }

// private restricts the mode of an opened file to its owner.
func private(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return f, err
	}
	// A file that exists and has another owner is not ours to change.
	if err := os.Chmod(name, privateFile); err != nil && !errors.Is(err, fs.ErrPermission) {
		_ = f.Close() // the first error counts
		return nil, err
	}
	return f, nil
}
