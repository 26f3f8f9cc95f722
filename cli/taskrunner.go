package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost/pool"
)

// taskRunner runs a command for each task.
//
// The command has a process group, so that processes that it has started end with it: another attempt may begin as soon as this attempt is over.
// The group is killed in three places, since each can fail alone: here, when the command ends; by the kernel, on Linux and for the command only, when
// the worker ends; and by the daemon, which reads the group file after the end of its worker.
type taskRunner struct {
	command  []string
	err      io.Writer
	stopTime time.Duration // between SIGTERM and SIGKILL
	group    *groupFile
}

// newTaskRunner returns a runner of a command, which writes the command's standard error to err.
func newTaskRunner(command []string, err io.Writer) *taskRunner {
	return &taskRunner{command: command, err: err, stopTime: stopTime, group: inheritedGroupFile()}
}

// run runs the command for a task. A status other than 0 fails the attempt.
func (r *taskRunner) run(ctx context.Context, task *pool.Task) (json.RawMessage, error) {
	cmd := exec.CommandContext(ctx, r.command[0], r.command[1:]...)
	cmd.Env = append(os.Environ(), "DOHOST_TASK="+task.ID, "DOHOST_ROLE="+task.Role, fmt.Sprint("DOHOST_ATTEMPT=", task.Attempts), "DOHOST_KEY="+task.Key)
	cmd.Stdin = strings.NewReader(task.Text)
	out, lines := &boundedBuffer{limit: maxOutput}, &progressLines{ctx: ctx, out: r.err}
	cmd.Stdout, cmd.Stderr = out, lines
	stopped := false
	cmd.Cancel = func() error { // not after the end of the command
		err := terminateGroup(cmd.Process)
		stopped = err == nil
		return err
	}
	cmd.WaitDelay = r.stopTime
	err := r.wait(cmd)
	switch {
	case stopped:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // a process that the command has left holds its output open
	case err != nil:
		return nil, failure(err, lines.last())
	}
	if out.full {
		return nil, fmt.Errorf("the command has written more than %d bytes: %w", maxOutput, pool.ErrNoRetry)
	}
	if text := bytes.TrimSpace(out.text.Bytes()); len(text) > 0 && json.Valid(text) {
		return text, nil
	}
	var result bytes.Buffer
	encoder := json.NewEncoder(&result)
	encoder.SetEscapeHTML(false)                         // the result would be longer than the pool allows
	text := strings.TrimRight(out.text.String(), "\r\n") // as the command substitution of a shell
	err = encoder.Encode(strings.ToValidUTF8(text, "\uFFFD"))
	return bytes.TrimSpace(result.Bytes()), err
}

// failure returns the error of a command that has failed, with its last line of standard error. A command that a signal has ended may have had
// effects. A shell reports such a command with the status 128 plus the number of the signal.
func failure(err error, line string) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok && (!e.Exited() || e.ExitCode() > 128 && e.ExitCode() <= 128+maxSignal) {
		err = fmt.Errorf("%w: %w", pool.ErrUncertain, err)
	}
	if line == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, line)
}

// wait runs a command in a process group, and kills the group.
func (r *taskRunner) wait(cmd *exec.Cmd) error {
	runtime.LockOSThread() // for endWithProcess
	defer runtime.UnlockOSThread()
	inGroup(cmd)
	endWithProcess(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	r.group.set(cmd.Process.Pid)
	err := cmd.Wait()
	killGroup(cmd.Process.Pid)
	r.group.set(0)
	return err
}

// maxSignal is the largest number of a signal.
const maxSignal = 64

// boundedBuffer keeps the first bytes that are written to it. It has no other methods of a buffer, which io.Copy would call.
type boundedBuffer struct {
	text  bytes.Buffer
	limit int
	full  bool
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	space := b.limit - b.text.Len()
	b.full = b.full || len(p) > space
	b.text.Write(p[:min(len(p), space)])
	return len(p), nil
}

// progressLines reports lines as progress of a task, and passes them on.
type progressLines struct {
	ctx context.Context
	out io.Writer

	mu   sync.Mutex // guards the fields below: a command whose output outlives it may still write
	line []byte
	full string // the last complete line
}

// maxLine bounds a line of progress in bytes.
const maxLine = 1024

func (l *progressLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range p {
		if c != '\n' {
			if len(l.line) < maxLine {
				l.line = append(l.line, c)
			}
			continue
		}
		if text := strings.TrimSpace(strings.ToValidUTF8(string(l.line), "\uFFFD")); text != "" {
			l.full = text
			pool.Progress(l.ctx, text)
		}
		l.line = l.line[:0]
	}
	_, _ = l.out.Write(p) // a terminal may be closed
	return len(p), nil
}

// last returns the last complete line.
func (l *progressLines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}
