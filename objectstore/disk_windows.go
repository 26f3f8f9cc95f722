package objectstore

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// sharingViolation is the error of opening a file that is open for itself alone.
const sharingViolation syscall.Errno = 32

// lockFile uses the engine's lock, which opens the file without sharing it.
func lockFile(name string) (io.Closer, error) {
	lock, err := vfs.Default.Lock(name)
	if errors.Is(err, sharingViolation) {
		return nil, fmt.Errorf("%w: %s", errInUse, name)
	}
	return lock, err
}
