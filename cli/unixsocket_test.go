//go:build unix

package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnixListenerIsPrivateAndReplacesStaleSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "dohost") // a socket's path is at most about 100 bytes long
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "admin.sock")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 || l.Addr().String() != path {
		t.Errorf("mode %v, %v, address %s", info.Mode(), err, l.Addr())
	}
	if _, err := listenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "a process listens on") {
		t.Errorf("a second listener: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
