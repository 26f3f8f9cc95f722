//go:build unix

package main

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// forwarder passes connections on to a server. Its address stays the same while servers start and end.
type forwarder struct {
	net.Listener
	server atomic.Pointer[serverProcess] // nil: none
}

func startForwarder(t *testing.T) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{Listener: l}
	t.Cleanup(func() { _ = f.Close() }) // ends accept
	go f.accept()
	return f
}

func (f *forwarder) accept() {
	for {
		down, err := f.Accept()
		if err != nil {
			return
		}
		go f.forward(down)
	}
}

// forward closes the connection when either side does, or when no server is there.
func (f *forwarder) forward(down net.Conn) {
	defer down.Close()
	v := f.server.Load()
	if v == nil {
		return
	}
	up, err := net.Dial("tcp", strings.TrimPrefix(v.objects, "http://"))
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	for to, from := range map[net.Conn]net.Conn{up: down, down: up} {
		both.Go(func() {
			_, _ = io.Copy(to, from) // both ends see it when the connection breaks
			_, _ = up.Close(), down.Close()
		})
	}
	both.Wait()
}

// TestChatCommandSurvivesSIGKILL asks in a terminal, and kills the server in the middle of the answer: the terminal
// prints the complete answer, once.
func TestChatCommandSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	_, whole := answerOverKills(t, nil)
	bin, data := dohostProgram(t), filepath.Join(t.TempDir(), "data")
	v := startProcess(t, bin, data)
	f := startForwarder(t)
	f.server.Store(v)
	cmd := exec.Command(bin, append([]string{"chat", "--at", f.Addr().String()}, strings.Fields(question)...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, or the test has
	var printed strings.Builder
	words := bufio.NewReader(stdout)
	for n := 1; ; n++ {
		word, err := words.ReadString(' ')
		printed.WriteString(word)
		if err != nil {
			break
		}
		if n == 10 {
			f.server.Store(nil) // another process may get its port
			killProcess(t, v)
			v = startProcess(t, bin, data)
			f.server.Store(v)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if got := strings.TrimSpace(printed.String()); got != strings.TrimSpace(whole) {
		t.Errorf("got  %q\nwant %q\n%s", got, whole, stderr.String())
	}
	if !strings.Contains(stderr.String(), "reconnecting") {
		t.Errorf("the server was not gone: %q", stderr.String())
	}
}
