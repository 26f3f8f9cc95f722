package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/internal/recovery"
)

// benchCmd measures recovery times of objects on the user's machine.
type benchCmd struct {
	Data    string        `help:"Folder on the disk to measure, for a temporary store. If empty, the system's temporary folder, which may be in memory." env:"DOHOST_BENCH_DATA"`
	Seed    uint64        `help:"Seed of the random choices of objects to fence and of the times of kills." default:"1" env:"DOHOST_SEED"`
	Objects int           `help:"Number of objects to fence, one at a time." default:"1000" env:"DOHOST_BENCH_OBJECTS"`
	Fences  int           `help:"Number of fences in each state: at rest, busy and under load." default:"5000" env:"DOHOST_BENCH_FENCES"`
	Workers int           `help:"Number of objects in the middle of a step when their process ends." default:"64" env:"DOHOST_BENCH_WORKERS"`
	Ends    int           `help:"Number of process ends by each of SIGKILL and restart under load; SIGKILL at rest has five times as many." default:"20" env:"DOHOST_BENCH_ENDS"`
	Rest    time.Duration `help:"Idle time of an object before a fence at rest." default:"4s" env:"DOHOST_BENCH_REST"`
	Work    time.Duration `help:"Approximate run time of a process before it is ended." default:"150ms" env:"DOHOST_BENCH_WORK"`
}

// Run is the command.
func (c *benchCmd) Run(out io.Writer) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp(c.Data, "dohost-bench-")
	if err != nil && c.Data != "" {
		return flagError("--data", c.Data, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o := recovery.Options{
		Dir: dir, Seed: c.Seed, Objects: c.Objects, Fences: c.Fences, Workers: c.Workers, Ends: c.Ends, Rest: c.Rest, Work: c.Work,
	}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 { // a terminal
		o.Progress = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "\r\033[K"+format, args...) }
		defer fmt.Fprintln(os.Stderr)
	}
	ds, err := recovery.Run(ctx, o)
	if err != nil {
		return err
	}
	operations, err := recovery.RunOperations(ctx, o)
	if err != nil {
		return err
	}
	ds = append(ds, operations...)
	fmt.Fprintf(out, "Time until work resumes, in %s, seed %d\n\n%s", dir, c.Seed, recovery.Table(ds))
	return nil
}

// benchCommand is the command of benchCmd.
var benchCommand = cli.Command{
	Name: "bench", Help: "Measure how long objects take to resume after an eviction, a SIGKILL and a restart, on this machine.", Value: &benchCmd{},
}
