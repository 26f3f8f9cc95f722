package socket

import (
	"errors"
	"net"
	"testing"
	"testing/iotest"
)

// TestWireReadsEarlyBytesFirst reads one byte at a time, and several.
func TestWireReadsEarlyBytesFirst(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		_, _ = client.Write([]byte("late"))
		_ = client.Close()
	}()
	w := &wire{Conn: server, early: []byte("early, ")}
	if err := iotest.TestReader(w, []byte("early, late")); err != nil {
		t.Error(err)
	}
}

// TestWireWritesNothingAfterAbort writes to a connection that was aborted.
func TestWireWritesNothingAfterAbort(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	w := &wire{Conn: server}
	w.abort()
	if n, err := w.Write([]byte("text")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if err := w.writeAll([][]byte{[]byte("a"), []byte("b")}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("wrote frames: %v", err)
	}
}
