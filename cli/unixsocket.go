package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// unixPrefix begins the address of a listener that is a Unix domain socket.
const unixPrefix = "unix:"

func isUnix(addr string) bool { return strings.HasPrefix(addr, unixPrefix) }

func unixPath(addr string) string { return strings.TrimPrefix(addr, unixPrefix) }

// listenUnix listens on a Unix domain socket that only its owner can open. The socket gets its mode in a folder that
// no other user can enter, and then its name, so another user can never connect. It replaces the socket of a
// process that has ended.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("%s is not a socket", path)
		}
		var d net.Dialer
		if c, err := d.DialContext(ctx, "unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("a process listens on %s", path), c.Close())
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".admin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	private := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", private)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(private, 0o600), os.Rename(private, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &unixListener{l, path}, nil
}

// unixListener removes its socket when it is closed.
type unixListener struct {
	net.Listener
	path string
}

// Addr is the address of the socket.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

// Close closes the listener and removes the socket.
func (l *unixListener) Close() error {
	err := l.Listener.Close()
	if err != nil { // it was closed before, and another process may own the name now
		return err
	}
	return os.Remove(l.path)
}
