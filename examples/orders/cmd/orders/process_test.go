//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// process is a bank or a server that will be killed.
type process struct {
	cmd *exec.Cmd
	log string // file of its stderr

	ready chan string   // the URLs that it prints first; closed at the end of its output
	news  chan struct{} // has an element if received has grown
	ended chan struct{} // closed at the end of its output

	received, answered atomic.Int64 // requests of charges at this process of the bank
}

var printed = regexp.MustCompile(`^(?:bank|objects|admin) +(http://\S+)$`)

// start starts a program. Its stderr goes to the end of a file.
func start(t *testing.T, log, program string, args ...string) *process {
	t.Helper()
	p := &process{
		cmd: exec.Command(program, args...), log: log,
		ready: make(chan string, 3), news: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p.cmd.Stderr = file
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go p.read(out)
	return p
}

// read reads the output to its end.
func (p *process) read(out io.Reader) {
	defer close(p.ended)
	defer close(p.ready)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if m := printed.FindStringSubmatch(line); m != nil {
			p.ready <- m[1]
			continue
		}
		switch verb, _, _ := strings.Cut(line, " "); verb {
		case "received":
			p.received.Add(1)
			select {
			case p.news <- struct{}{}:
			default:
			}
		case "answered":
			p.answered.Add(1)
		}
	}
}

// url returns the next URL of the process, or an error if the process has ended.
func (p *process) url() (string, error) {
	if url, ok := <-p.ready; ok {
		return url, nil
	}
	log, err := os.ReadFile(p.log)
	return "", fmt.Errorf("%s has ended (%v): %s", filepath.Base(p.cmd.Path), err, log[max(0, len(log)-4000):])
}

// kill ends the process by SIGKILL, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it has ended if this fails
	<-p.ended
	_ = p.cmd.Wait() // "signal: killed"
}

// inFlight returns the number of requests that a bank that has ended had received and not answered.
func (p *process) inFlight() int64 { return p.received.Load() - p.answered.Load() }
