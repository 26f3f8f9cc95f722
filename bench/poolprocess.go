package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/dohost/dohost/cli"
)

// toolEnv is the variable that makes this program the command dohost, if it has arguments, and otherwise the command of a worker.
const toolEnv = "DOHOST_BENCH_TOOL"

// tool runs such a command, if this process is one, and returns its exit status.
func tool(ctx context.Context) (status int, is bool) {
	if os.Getenv(toolEnv) == "" {
		return 0, false
	}
	if len(os.Args) > 1 {
		return (cli.App{}).Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr), true
	}
	if err := runTask(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// runTask is the command of a worker. The text of its task is an address. It connects there, sends its attempt and the process of its
// worker, and returns when the connection ends. The result is the attempt.
func runTask() error {
	address, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", string(address))
	if err != nil {
		return err
	}
	attempt := os.Getenv("DOHOST_ATTEMPT")
	if _, err := fmt.Fprintln(conn, attempt, os.Getppid()); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn) // the end of the connection, or its error
	_, err = fmt.Print(attempt)
	return err
}

// startTool starts dohost with arguments, and with this program as the command of a worker.
func startTool(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append(args, "--", self)...)
	cmd.Env = append(os.Environ(), toolEnv+"=1")
	return cmd, cmd.Start()
}

// endTool ends a process of startTool as an operator does, and waits for its end.
func endTool(cmd *exec.Cmd) error {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = cmd.Wait() // the status of a process that was ended
	return nil
}

// attempt is a command that runs a task.
type attempt struct {
	net.Conn // its end is that of the command
	number   int
	worker   int // the process of the worker
}

// nextAttempt waits until a command runs a task with the address of l.
func nextAttempt(l net.Listener) (a attempt, err error) {
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return a, err
	}
	if a.Conn, err = l.Accept(); err != nil {
		return a, fmt.Errorf("no worker runs the task: %w", err)
	}
	line, err := bufio.NewReader(a.Conn).ReadString('\n')
	if err == nil {
		_, err = fmt.Fscan(strings.NewReader(line), &a.number, &a.worker)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("the command of a worker has sent %q: %w", line, err), a.Close())
	}
	return a, err
}
