package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// poolFlags are the flags of the commands that call a pool.
type poolFlags struct {
	At        string `env:"DOHOST_AT" default:"127.0.0.1:8787" placeholder:"ADDR" help:"Address of the running host for clients: host:port or a URL (${default})."`
	Pool      string `required:"" help:"Name of the pool."`
	TokenFile string `env:"DOHOST_TOKEN_FILE" placeholder:"FILE" help:"Present the first token of this file."`
}

// client returns a client of the pool, which reports outages of the host to out.
func (f *poolFlags) client(out io.Writer) (*pool.Client, error) {
	if err := checkFilled("--at", "DOHOST_AT", f.At); err != nil {
		return nil, err
	}
	id := dohost.ID{Class: string(pool.Pools), Name: f.Pool}
	if err := id.Validate(); err != nil {
		return nil, fmt.Errorf("--pool: %w", err)
	}
	at := f.At
	if !strings.Contains(at, "://") {
		at = "http://" + at
	}
	c := &pool.Client{URL: strings.TrimSuffix(at, "/") + "/objects/" + id.Class + "/" + dohost.URLName(id.Name), Header: http.Header{}, HTTP: newOutage(out, f.At)}
	return c, authorize(c.Header, "--token-file", f.TokenFile)
}

// noHost adds the address of the host to the error of a request that no host has answered.
func (f *poolFlags) noHost(err error) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("no host answers at %s: %w", f.At, err)
	}
	return err
}

// program returns a client of the pool, and the program and the arguments of a command line, which may begin with "--".
func (f *poolFlags) program(out io.Writer, command []string) (*pool.Client, []string, error) {
	client, err := f.client(out)
	if err != nil {
		return nil, nil, err
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return nil, nil, errors.New("want a command after --")
	}
	_, err = exec.LookPath(command[0])
	return client, command, err
}

// postCmd posts a task.
type postCmd struct {
	poolFlags
	Role string `required:"" help:"Role of the workers that the task is for."`
	Key  string `help:"Post the task once: another post with the key has no effect. With a key, the command repeats its request while no host answers."`
	Wait bool   `help:"Wait until the task has ended, and print its result."`
	Text string `arg:"" help:"The task: the standard input of its worker's command."`
}

// taskPause is the time between two polls of a task.
const taskPause = 250 * time.Millisecond

// Run is the command.
func (c *postCmd) Run(ctx context.Context, std stdio) error {
	client, err := c.client(std.err)
	if err != nil {
		return err
	}
	task, err := client.Post(ctx, pool.NewTask{Role: c.Role, Text: c.Text, Key: c.Key})
	if err != nil {
		return c.noHost(err)
	}
	if !c.Wait {
		_, err = fmt.Fprintln(std.out, printable(task.ID))
		return err
	}
	for task.Status != pool.StatusDone && task.Status != pool.StatusFailed {
		if err := dohost.Sleep(ctx, taskPause); err != nil {
			return err
		}
		if task, err = client.Task(ctx, task.ID); err != nil {
			return c.noHost(err)
		}
	}
	if task.Status == pool.StatusFailed {
		return fmt.Errorf("task %s has failed: %s", task.ID, printable(task.Reason))
	}
	_, err = fmt.Fprintf(std.out, "%s\n", escapeJSON(task.Result))
	return err
}

// workCmd is a worker of a pool that runs a command for each task.
type workCmd struct {
	poolFlags
	Role    string   `required:"" help:"Role of the worker."`
	Name    string   `help:"Name of the worker, for people. Default: the name of the machine."`
	Managed bool     `hidden:"" help:"The worker is a process of dohost daemon: it has the connection DOHOST_CONN, and ends when its standard input does."`
	Command []string `arg:"" passthrough:"" help:"Program and arguments, after --. The text of the task is its standard input. Its standard output, JSON or text, is the result, and each line of its standard error is progress."`
}

const (
	// maxOutput bounds the standard output of a command in bytes.
	maxOutput = 64 << 10
	// stopTime is the time between SIGTERM and SIGKILL for a command whose task is over.
	stopTime = 10 * time.Second
)

// Run is the command.
func (c *workCmd) Run(ctx context.Context, std stdio) error {
	client, command, err := c.program(std.err, c.Command)
	if err != nil {
		return err
	}
	o := &pool.WorkOptions{Role: c.Role, Name: c.Name}
	if o.Name == "" {
		o.Name, _ = os.Hostname() // a worker without a name is possible
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		if c.Managed {
			o.Conn = os.Getenv(connEnv)
			var end context.CancelCauseFunc
			ctx, end = context.WithCancelCause(ctx)
			defer end(nil)
			go func() {
				_, _ = io.Copy(io.Discard, std.in)
				end(errDaemonEnded)
			}()
		}
		return pool.Work(ctx, client, o, (newTaskRunner(command, std.err)).run)
	})
}

// connEnv is the variable of a worker's environment that has its connection.
const connEnv = "DOHOST_CONN"

var errDaemonEnded = errors.New("the daemon has ended")
