//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/pool"
)

// holderListener accepts the connection of a process that a command has started.
type holderListener struct {
	net.Listener
	t *testing.T
}

func listenForHolder(t *testing.T) holderListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return holderListener{l, t}
}

// holder returns the connection of the process.
func (l holderListener) holder() net.Conn {
	l.t.Helper()
	conn, err := l.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	return conn
}

// ended fails the test if the process of a connection does not end.
func ended(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the process remains: %d bytes, %v", n, err)
	}
}

// TestCommandIsEndedWithItsProcesses has a command that succeeds and leaves a process, which holds the output open, and a command that waits for such
// a process when its task is lost.
func TestCommandIsEndedWithItsProcesses(t *testing.T) {
	t.Setenv(taskCommand, "1")
	r := newTaskRunner([]string{os.Args[0]}, io.Discard)
	r.stopTime = 100 * time.Millisecond
	l := listenForHolder(t)
	result, err := r.run(t.Context(), &pool.Task{Text: "leave " + l.Addr().String(), Attempts: 1})
	if string(result) != `"left it"` || err != nil {
		t.Errorf("%s, %v", result, err)
	}
	ended(t, l.holder())

	ctx, cancel := context.WithCancelCause(t.Context())
	lost := errors.New("lost")
	failed := make(chan error, 1)
	go func() {
		_, err := r.run(ctx, &pool.Task{Text: "once " + l.Addr().String(), Attempts: 1})
		failed <- err
	}()
	conn := l.holder()
	cancel(lost)
	if err := <-failed; err != lost {
		t.Error(err)
	}
	ended(t, conn)
}

// TestStatusOfASignal has commands that end with a status, some of them as a shell after a signal has ended its last command.
func TestStatusOfASignal(t *testing.T) {
	t.Setenv(taskCommand, "1")
	r := newTaskRunner([]string{os.Args[0]}, io.Discard)
	for status, uncertain := range map[int]bool{1: false, 127: false, 128: false, 129: true, 137: true, 192: true, 193: false, 255: false} {
		_, err := r.run(t.Context(), &pool.Task{Text: fmt.Sprint("status ", status), Attempts: 1})
		if err == nil || errors.Is(err, pool.ErrUncertain) != uncertain || !strings.Contains(err.Error(), fmt.Sprint("exit status ", status)) {
			t.Errorf("status %d: %v", status, err)
		}
	}
}
