package objectstore

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errInUse says that another opener holds a lock, in this process or in another.
var errInUse = errors.New("the lock is held by another opener")

// disk is the machine's file system, with locks that belong to the open file: two
// names of one file are one lock, and closing another descriptor of the file does
// not release it. On Unix the locks of vfs.Default, by fcntl, guarantee neither.
type disk struct{ vfs.FS }

var theDisk = disk{vfs.Default}

// Unwrap returns the file system that disk extends.
func (d disk) Unwrap() vfs.FS { return d.FS }

// Lock creates the file name if it is absent, and locks it until the returned
// closer is closed. It does not wait: the error is errInUse or the disk's.
func (d disk) Lock(name string) (io.Closer, error) { return lockFile(name) }
