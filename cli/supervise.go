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

// supervisedEnv says, in the environment of a process, that another one starts it again.
const supervisedEnv = "DOHOST_SUPERVISED"

func isSupervised() bool { return os.Getenv(supervisedEnv) != "" }

// The pauses before a process is started again: they double while processes end soon.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	longLife     = 10 * time.Second
)

// supervisor runs dohost serve in a process of its own, and again when that was killed or has failed.
//
// Signals reach the process as bytes on its standard input, so that one ends with its supervisor: that ends
// the input. A terminal's Ctrl-C goes to both, and the process leaves it to the supervisor.
type supervisor struct {
	std     streams
	args    []string // of the process
	signals chan os.Signal
	told    bool // to end
}

// supervise is dohost serve --supervise.
func (c *serveCmd) supervise(ctx context.Context, std streams) error {
	s := &supervisor{std, os.Args[1:], make(chan os.Signal, 2), false}
	signal.Notify(s.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(s.signals)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begun := time.Now()
		at, err := s.process(ctx)
		if err == nil || s.told || at.objects == "" { // of one that never served the next would be another
			return s.verdict(err)
		}
		if time.Since(begun) > longLife {
			pause = firstPause
		}
		fmt.Fprintf(std.err, "dohost: the process has ended: %v; it is being started again\n", err)
		s.args = slices.Concat(os.Args[1:], c.drawn(at))
		select {
		case <-time.After(pause):
		case <-s.signals:
			return nil
		}
	}
}

// verdict is what the end of the last process means. It has said itself what was wrong, unless it was killed.
func (s *supervisor) verdict(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return ErrReported
	}
	return err
}

// drawn are flags that have the next process listen where this one did, if its ports were drawn.
func (c *serveCmd) drawn(at announced) (args []string) {
	for flag, of := range map[string][2]string{"--listen": {c.Listen, at.objects}, "--admin": {c.Admin, at.admin}} {
		if _, port, err := net.SplitHostPort(of[0]); err == nil && port == "0" && of[1] != "" {
			args = append(args, flag, of[1])
		}
	}
	return args
}

// process runs one to its end, and says where it has listened.
func (s *supervisor) process(ctx context.Context) (announced, error) {
	self, err := os.Executable()
	if err != nil {
		return announced{}, err
	}
	cmd := exec.CommandContext(ctx, self, s.args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), supervisedEnv+"=1")
	out := &announcer{w: s.std.out}
	cmd.Stdout, cmd.Stderr = out, s.std.err
	in, err := cmd.StdinPipe()
	if err != nil {
		return announced{}, err
	}
	if err := cmd.Start(); err != nil {
		return announced{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return out.at, err
		case sig := <-s.signals:
			s.told = true
			_, _ = in.Write([]byte{signalByte(sig)}) // one that has ended needs no signal
		}
	}
}

func signalByte(sig os.Signal) byte {
	if sig == os.Interrupt {
		return 'i'
	}
	return 't'
}

// hearSupervisor turns what comes from a supervisor into signals, until it ends.
func hearSupervisor(in io.Reader, signals chan<- os.Signal) {
	b := make([]byte, 1)
	for {
		var sig os.Signal = syscall.SIGTERM
		n, err := in.Read(b)
		if n == 1 && b[0] == 'i' {
			sig = os.Interrupt
		}
		if n == 1 || err != nil {
			select {
			case signals <- sig:
			default: // there are two already
			}
		}
		if err != nil {
			return
		}
	}
}

// announced is where a process says that it listens.
type announced struct{ objects, admin string }

// announcer passes on what a process prints, and reads where it listens.
type announcer struct {
	w    io.Writer
	line []byte
	at   announced
}

// Write passes on.
func (a *announcer) Write(p []byte) (int, error) {
	a.line = append(a.line, p...)
	if len(a.line) > maxAnnounced && !bytes.Contains(a.line, []byte("\n")) {
		a.line = a.line[:0] // no line that says where it listens is as long
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

// maxAnnounced bounds an unended line of a process, in bytes.
const maxAnnounced = 4 << 10

// address is the address in a URL that a server has printed.
func address(url string) string {
	_, addr, ok := strings.Cut(strings.TrimSpace(url), "://")
	if !ok {
		return strings.TrimSpace(url)
	}
	return addr
}

// killProcess ends this process as a power cut would.
func killProcess() error {
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return p.Kill()
}
