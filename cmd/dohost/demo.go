package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"time"

	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/docs"
)

// demoCmd runs agents that read a folder, with a fiber for each file, while chaos evicts the agents and SIGKILL
// ends the process. It compares their counts with a count made without them.
type demoCmd struct {
	Dir        string `help:"Folder to count the words of; the project's own documents if empty." type:"path"`
	Data       string `help:"Folder of the store. An interrupted run resumes from it." default:"./dohost-demo" env:"DOHOST_DEMO_DATA"`
	Keep       bool   `help:"Keep the store after a successful run."`
	Kills      int    `help:"Number of times that the process is killed by SIGKILL." default:"3"`
	ChaosEvict string `help:"Mean interval between evictions of an object (200ms), or chance of an eviction per place (0.02). If empty, a chance that fits the size of a step; 0 for none." env:"DOHOST_CHAOS_EVICT"`
	ChaosAt    string `help:"Places where objects are evicted; all if empty." env:"DOHOST_CHAOS_AT"`
	ChaosMode  string `help:"How to evict objects: fence, restart or crash." default:"fence" env:"DOHOST_CHAOS_MODE"`
	ChaosSeed  uint64 `help:"Seed of evictions and kills; zero chooses a random seed." env:"DOHOST_CHAOS_SEED"`
	Worker     string `hidden:"" help:"Run the job: begin or resume."`
}

const (
	demoMergers       = 4
	demoFilesPerAgent = 2                     // files per agent
	demoKeepAlive     = 20 * time.Millisecond // the maximum wait of an interrupted fiber
	demoSteps         = 2000                  // the approximate number of steps of a job
	minPiece          = 16
	maxPiece          = 4 << 10
	maxRate           = 0.02
	rateOfByte        = 0.32 // the chance that fits a step of one byte: longer ones pass more places
	reportPeriod      = 20 * time.Millisecond
)

// Run is the command.
func (c *demoCmd) Run(out io.Writer) error {
	if c.Worker != "" {
		return c.work(os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	lock, err := c.lockFolder()
	if err != nil {
		return err
	}
	return errors.Join(c.run(ctx, out), c.unlockFolder(lock))
}

// run makes or resumes a plan, in a locked folder.
func (c *demoCmd) run(ctx context.Context, out io.Writer) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	s := &supervisor{cmd: c, plan: plan, show: newDisplay(out)}
	result, err := s.run(ctx)
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(out, "\nInterrupted. The data is kept in %s; the same command resumes the run.\n", c.Data)
		return errInterrupted
	}
	if result != nil {
		if err := c.conclude(out, plan, result); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("%w\nThe data is kept in %s; the same command resumes the run.\nReplay: %s", err, c.Data, c.replay(plan))
	}
	if c.Keep {
		fmt.Fprintf(out, "The store is in %s.\n", c.Data)
		return nil
	}
	return c.removeRun()
}

// conclude prints the account and compares the result with a direct count.
func (c *demoCmd) conclude(out io.Writer, plan *demoPlan, r *demoResult) error {
	plan.Account.print(out, plan)
	want, err := countDirectly(c.files(plan))
	if err != nil {
		return err
	}
	if diff := want.compare(r); diff != "" {
		fmt.Fprintf(out, "\nThe result is NOT exact: %s\nReplay: %s\n", diff, c.replay(plan))
		return errInexact
	}
	fmt.Fprintf(out, "\n%d words, %d different, in %d files: the objects and a direct count agree to the last one.\n", want.total, len(want.words), plan.Files)
	return nil
}

var (
	errInexact     = fmt.Errorf("the result is not exact: %w", cli.ErrReported)
	errInterrupted = fmt.Errorf("interrupted: %w", cli.ErrReported)
)

func (c *demoCmd) replay(p *demoPlan) string {
	line := fmt.Sprintf("dohost demo --chaos-seed %d --chaos-evict %s --chaos-mode %s --kills %d", p.Seed, p.Evict, p.Mode, p.Kills)
	if p.At != "" {
		line += " --chaos-at " + p.At
	}
	if p.Dir != "" {
		line += " --dir " + p.Dir
	}
	return line
}

// files returns the text to count.
func (c *demoCmd) files(p *demoPlan) fs.FS {
	if p.Dir == "" {
		return docs.Files
	}
	return os.DirFS(p.Dir)
}
