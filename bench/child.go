package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// childEnv is the variable that makes this program a child process with agents, which is killed. It holds the
// childParams of the process.
const childEnv = "DOHOST_BENCH_CHILD"

// childParams are the parameters of such a process.
type childParams struct {
	Work     string        // a key of childWork
	Dir      string        // of the store, and of files that outlive the process
	Fibers   int           // to open, or to recover
	Period   time.Duration // of checkpoints by time
	SaveMode string        // the way to save checkpoints, by its row
	// Profiles is the folder for a CPU profile of the process; none if empty.
	Profiles string
}

// childWork has the functions of such processes. Each runs until it returns or the process is killed, and reports to
// the parent with reports.
var childWork = map[string]func(ctx context.Context, o childParams, reports *json.Encoder) error{
	"sleep":   sleepAll,
	"recover": recoverAll,
	"copy":    copyUntilKilled,
}

// child runs the function of such a process, if this is one, and returns its exit status.
func child(ctx context.Context) (status int, is bool) {
	text, is := os.LookupEnv(childEnv)
	if !is {
		return 0, false
	}
	var o childParams
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = profiled(o.Profiles, o.Work, func() error { return childWork[o.Work](ctx, o, json.NewEncoder(os.Stdout)) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// awaitParent waits until the parent closes the standard input, which ends the process.
func awaitParent() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// process is a running child.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports *json.Decoder
	began   time.Time // before exec
}

func (o childParams) start(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.reports = json.NewDecoder(bufio.NewReader(out))
	p.began = time.Now()
	return p, p.cmd.Start()
}

// kill ends the process as kill -9 does.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if werr := p.cmd.Wait(); werr == nil {
		return errors.Join(err, errors.New("the process ended by itself before it was killed"))
	}
	return err
}

// close asks the process to end, and waits for it.
func (p *process) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
