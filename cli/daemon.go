package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/dohost/dohost/pool"
)

// daemonCmd starts and restarts the worker of a role.
type daemonCmd struct {
	poolFlags
	Role    string   `required:"" help:"Role of the worker."`
	Name    string   `help:"Name of the worker, for people. Default: the name of the machine."`
	Worker  bool     `help:"The command is a worker itself, which joins the pool at the URL DOHOST_POOL with the connection DOHOST_CONN. It ends after SIGTERM, and when its standard input ends."`
	Command []string `arg:"" passthrough:"" help:"Program and arguments, after --, as for dohost work."`
}

// workerStopTime is the time between SIGTERM and SIGKILL for a worker: its command has stopTime, and then the worker calls the pool.
const workerStopTime = stopTime + 15*time.Second

// Run is the command.
func (c *daemonCmd) Run(ctx context.Context, std stdio) error {
	client, command, err := c.program(std.err, c.Command)
	if err != nil {
		return err
	}
	if !c.Worker {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// A value that begins with "-" is read only with "=".
		args := []string{self, "work", "--managed", "--at=" + c.At, "--pool=" + c.Pool, "--role=" + c.Role, "--name=" + c.Name}
		if c.TokenFile != "" {
			args = append(args, "--token-file="+c.TokenFile)
		}
		command = slices.Concat(args, []string{"--"}, command)
	}
	return untilSignal(ctx, func(ctx context.Context) error {
		d := &daemon{url: client.URL, command: command, own: !c.Worker, std: std}
		return pool.Manage(ctx, client, &pool.ManageOptions{Role: c.Role}, d.run)
	})
}

// untilSignal runs fn with a context that ends with the first SIGINT or SIGTERM, which is no error. The second one ends the process.
func untilSignal(parent context.Context, fn func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := fn(ctx)
	if ctx.Err() != nil && parent.Err() == nil {
		return nil
	}
	return err
}

// daemon runs workers as processes.
type daemon struct {
	url     string
	command []string
	own     bool // the worker is dohost work
	std     stdio
}

// run runs a worker until it ends, and stops it when ctx ends. Then it kills the process groups of the worker and of the worker's command, so
// the command of a killed worker does not run concurrently with the command of the next worker. The worker's standard input ends with this
// process.
func (d *daemon) run(ctx context.Context, p pool.Process) error {
	cmd := exec.CommandContext(ctx, d.command[0], d.command[1:]...)
	cmd.Env = append(os.Environ(), "DOHOST_POOL="+d.url, "DOHOST_ROLE="+p.Role, connEnv+"="+p.Conn)
	cmd.Stdout, cmd.Stderr = d.std.out, d.std.err
	inGroup(cmd)
	group, err := newGroupFile()
	if err != nil {
		return err
	}
	defer group.Close() // nothing of it is needed
	if d.own {
		group.inherit(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel = func() error {
		_ = in.Close() // it is open
		return terminate(cmd.Process)
	}
	cmd.WaitDelay = workerStopTime
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(d.std.err, "dohost: no worker of the role %s can be started: %v\n", p.Role, err)
		return err
	}
	fmt.Fprintf(d.std.err, "dohost: the worker %d of the role %s has started: %s\n", cmd.Process.Pid, p.Role, printable(p.Reason))
	err = cmd.Wait()
	killGroup(cmd.Process.Pid)
	killGroup(group.get())
	text := "status 0"
	switch {
	case ctx.Err() != nil:
		text = "stopped"
	case err != nil:
		text = err.Error()
	}
	fmt.Fprintf(d.std.err, "dohost: the worker %d of the role %s has ended: %s\n", cmd.Process.Pid, p.Role, text)
	return err
}
