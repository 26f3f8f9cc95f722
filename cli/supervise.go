package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// supervisedEnv marks, in the environment of a process, that a supervisor restarts it.
const supervisedEnv = "DOHOST_SUPERVISED"

func isSupervised() bool { return os.Getenv(supervisedEnv) != "" }

// The pauses before a process is started again: they double while processes end early.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	stableAfter  = 10 * time.Second
)

// supervisor runs dohost serve in a process of its own, and restarts it after a kill or a failure.
//
// Signals reach the process as bytes on its standard input. The end of the supervisor ends that input, and so the
// process. A terminal's Ctrl-C reaches both processes, and only the supervisor handles it.
type supervisor struct {
	std       stdio
	args      []string // of the process
	signals   chan os.Signal
	forwarded bool // a signal was passed on
}

// supervise is dohost serve --supervise.
func (c *serveCmd) supervise(ctx context.Context, std stdio) error {
	s := &supervisor{std, os.Args[1:], make(chan os.Signal, 2), false}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(s.signals)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		at, err := s.process(ctx)
		if err == nil || s.forwarded || at.objects == "" { // a process that never served would fail again
			return s.exitError(err)
		}
		if time.Since(begun) > stableAfter {
			pause = firstPause
		}
		fmt.Fprintf(std.err, "dohost: the server process has ended: %v; starting it again\n", err)
		s.args = slices.Concat(os.Args[1:], c.fixedPorts(at))
		select {
		case <-time.After(pause):
		case <-s.signals:
			return nil
		}
	}
}

// exitError returns the supervisor's error. A process that has exited by itself has reported its own error.
func (s *supervisor) exitError(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return ErrReported
	}
	return err
}

// fixedPorts returns flags with the ports of this process for the next one, if the system chose the ports.
func (c *serveCmd) fixedPorts(at addresses) (args []string) {
	for flag, of := range map[string][2]string{"--listen": {c.Listen, at.objects}, "--admin": {c.Admin, at.admin}} {
		if _, port, err := net.SplitHostPort(of[0]); err == nil && port == "0" && of[1] != "" {
			args = append(args, flag, of[1])
		}
	}
	return args
}

// process runs one process to its end, and returns its addresses.
func (s *supervisor) process(ctx context.Context) (addresses, error) {
	self, err := os.Executable()
	if err != nil {
		return addresses{}, err
	}
	cmd := exec.CommandContext(ctx, self, s.args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), supervisedEnv+"=1")
	out := &addressReader{w: s.std.out}
	cmd.Stdout, cmd.Stderr = out, s.std.err
	in, err := cmd.StdinPipe()
	if err != nil {
		return addresses{}, err
	}
	if err := cmd.Start(); err != nil {
		return addresses{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return out.at, err
		case sig := <-s.signals:
			s.forwarded = true
			_, _ = in.Write([]byte{signalByte(sig)}) // it may have ended
		}
	}
}

func signalByte(sig os.Signal) byte {
	if sig == os.Interrupt {
		return 'i'
	}
	return 't'
}

// readSignals turns a supervisor's bytes into signals, until the input ends.
func readSignals(in io.Reader, deliver func(os.Signal)) {
	b := make([]byte, 1)
	for {
		var sig os.Signal = syscall.SIGTERM
		n, err := in.Read(b)
		if n == 1 && b[0] == 'i' {
			sig = os.Interrupt
		}
		if n == 1 || err != nil {
			deliver(sig)
		}
		if err != nil {
			return
		}
	}
}

// addresses is the addresses of a process.
type addresses struct{ objects, admin string }

// addressReader passes the output of a process on, and reads its addresses from it.
type addressReader struct {
	w    io.Writer
	line []byte
	at   addresses
}

// Write passes the output on.
func (a *addressReader) Write(p []byte) (int, error) {
	a.line = append(a.line, p...)
	if len(a.line) > maxAddressLine && !bytes.Contains(a.line, []byte("\n")) {
		a.line = a.line[:0] // a line with an address is shorter
	}
	for {
		line, rest, ok := bytes.Cut(a.line, []byte("\n"))
		if !ok {
			break
		}
		switch kind, url, _ := strings.Cut(string(line), " "); kind {
		case "objects":
			a.at.objects = address(url)
		case "admin":
			a.at.admin = address(url)
		}
		a.line = rest
	}
	return a.w.Write(p)
}

// maxAddressLine bounds the kept part of a line that has not ended, in bytes.
const maxAddressLine = 4 << 10

// address is the address in a URL that a server has printed.
func address(url string) string {
	_, addr, ok := strings.Cut(strings.TrimSpace(url), "://")
	if !ok {
		return strings.TrimSpace(url)
	}
	return addr
}

// killProcess ends this process as SIGKILL does.
func killProcess() error {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return p.Kill()
}
