package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// inOwnGroup keeps a terminal's Ctrl-C from the child. The parent handles it.
func inOwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// sharingViolation is the error of Windows for a file that another process has opened exclusively.
const sharingViolation syscall.Errno = 32

// lockDemo locks a file until it is closed, or the process ends.
func lockDemo(name string) (io.Closer, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	const share = 0
	h, err := syscall.CreateFile(path, syscall.GENERIC_READ|syscall.GENERIC_WRITE, share, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		err = errRunning
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(h), name), nil
}

// syncFolder does nothing: Windows makes renames durable by itself, and cannot sync a
// folder.
func syncFolder(string) error { return nil }
