//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package objectstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch err {
		case nil:
			return nil
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return fmt.Errorf("%w: %s", errInUse, f.Name())
		default:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
