//go:build unix

package main

import (
	"bufio"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestChatCommandSurvivesSIGKILL asks in a terminal, and kills the server in the middle of the answer: the terminal prints
// the complete answer, once.
func TestChatCommandSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	_, whole := answered(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	bin, data := asDohost(t), filepath.Join(t.TempDir(), "data")
	v := serveVictim(t, bin, data, "--listen", at)
	cmd := exec.Command(bin, append([]string{"chat", "--at", at}, strings.Fields(question)...)...)
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
			killed(t, v)
			v = serveVictim(t, bin, data, "--listen", at)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if got := strings.TrimSpace(printed.String()); got != strings.TrimSpace(whole) {
		t.Errorf("got  %q\nwant %q\n%s", got, whole, stderr.String())
	}
	if !strings.Contains(stderr.String(), "coming back") {
		t.Errorf("the server was not gone: %q", stderr.String())
	}
}
