package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// outside is a side in a process of a peer. Its allocations are unknown. strace counts its syncs in a round of their
// own, because that slows it down.
type outside struct {
	side
	at tracee
}

// tracee is a process whose syncs strace counts.
type tracee interface {
	// traced returns the tool, the process, and a folder for a file.
	traced() (t *tracer, pid int, dir string)
}

// tracer counts the syncs of processes.
type tracer struct {
	strace string // the tool
	blind  string // the reason if they are not counted
}

func findTracer() (t tracer) {
	var err error
	if t.strace, err = exec.LookPath("strace"); err != nil {
		t.blind = "strace is not installed"
	}
	return t
}

// fact describes the count of the syncs in the results.
func (t *tracer) fact() string {
	if t.blind != "" {
		return "its syncs were not counted: " + t.blind
	}
	return "its syncs were counted by strace in a separate round that is not listed"
}

// traced runs a round and counts its syncs, or does nothing if that is impossible.
func (o outside) traced(ctx context.Context, d time.Duration) (r round, err error) {
	p, pid, dir := o.at.traced()
	if p.blind != "" {
		return round{}, nil
	}
	table := filepath.Join(dir, "strace.txt")
	cmd := exec.CommandContext(ctx, p.strace,
		"-f", "-c", "-e", "trace=fsync,fdatasync", "-o", table, "-p", strconv.Itoa(pid))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return round{}, err
	}
	if err := cmd.Start(); err != nil {
		return round{}, err
	}
	messages := bufio.NewReader(stderr)
	if line, _ := messages.ReadString('\n'); !strings.Contains(line, " attached") {
		p.blind = "strace printed " + strings.TrimSpace(line)
		_ = cmd.Wait() // its output has the error
		return round{}, nil
	}
	r, err = oneRound(ctx, o.side, d)
	err = errors.Join(err, cmd.Process.Signal(os.Interrupt))
	_, _ = io.Copy(io.Discard, messages) // about detaching
	_ = cmd.Wait()                       // it was interrupted
	if err != nil {
		return r, err
	}
	text, err := os.ReadFile(table)
	if err != nil {
		return r, err
	}
	r.syncs, err = countedCalls(string(text))
	return r, err
}

// countedCalls adds up the fourth column of strace's table, in the lines of syncs. There
// is no table if there was no call.
func countedCalls(table string) (n int64, err error) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasSuffix(fields[len(fields)-1], "sync") {
			continue
		}
		calls, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("strace wrote %q: %w", line, err)
		}
		n += calls
	}
	return n, nil
}
