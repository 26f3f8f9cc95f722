package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cli"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/simtest"
)

// simCmd runs the project's own workloads in virtual time, with random endings.
type simCmd struct {
	Seed       uint64  `help:"The first seed; zero chooses a random seed." env:"DOHOST_SEED"`
	Minutes    float64 `help:"Duration in minutes of real time." default:"1" env:"DOHOST_MINUTES"`
	Runs       int     `help:"Number of runs; zero for as many as fit into --minutes." env:"DOHOST_RUNS"`
	Workload   string  `help:"The workload to run; all in turn if empty." env:"DOHOST_WORKLOAD"`
	ChaosEvict float64 `help:"Chance of an interruption at each place. Far above the default, all seven attempts of an alarm may be interrupted, after which the host parks it; some workloads then report its missing effects." default:"0.02" env:"DOHOST_CHAOS_EVICT"`
	ChaosAt    string  `help:"Places where incarnations are ended; all if empty." env:"DOHOST_CHAOS_AT"`
	ChaosMode  string  `help:"How to end incarnations: fence, restart (the whole host, by power cut or SIGKILL) or crash; all if empty." env:"DOHOST_CHAOS_MODE"`
}

// Run is the command.
func (c *simCmd) Run(out io.Writer) error {
	s, err := c.plan(out)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s.ctx = ctx
	// A bubble of virtual time needs a *testing.T, which only the testing package makes.
	os.Args = os.Args[:1]
	flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	testing.Init()
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "sim", F: func(t *testing.T) { os.Exit(s.run(t)) }}}, nil, nil)
	return nil // not reached: Main ends the process
}

// sim is a running simulation.
type sim struct {
	c         *simCmd
	out       io.Writer
	ctx       context.Context
	workloads []simtest.Workload
	places    []dohost.Place
	kinds     []dohost.EndMode

	begun, reported time.Time
	runs            int
	endings         int
	steps           int
	virtual         time.Duration
}

// plan makes a simulation from the flags, or returns the error of an invalid flag.
func (c *simCmd) plan(out io.Writer) (*sim, error) {
	s := &sim{c: c, out: out, workloads: simtest.Scenarios()}
	chaos, err := dohost.ParseChaos(fmt.Sprint(c.ChaosEvict), c.ChaosAt, c.ChaosMode, c.Seed)
	if err != nil {
		return nil, err
	}
	if c.Minutes <= 0 || c.Minutes != c.Minutes || c.Runs < 0 {
		return nil, fmt.Errorf("--minutes %v, --runs %d: want more than 0 minutes, and 0 or more runs", c.Minutes, c.Runs)
	}
	s.places = chaos.Places
	switch {
	case c.ChaosMode == "":
	case chaos.Mode == dohost.EndRestart:
		s.kinds = []dohost.EndMode{dohost.EndPowerCut, dohost.EndKill}
	default:
		s.kinds = []dohost.EndMode{chaos.Mode}
	}
	if c.Workload != "" {
		var names []string
		for _, w := range s.workloads {
			names = append(names, w.Name)
		}
		at := slices.Index(names, c.Workload)
		if at < 0 {
			return nil, fmt.Errorf("--workload %q: want one of %s", c.Workload, strings.Join(names, ", "))
		}
		s.workloads = s.workloads[at : at+1]
	}
	if c.Seed == 0 {
		c.Seed = 1 + rand.Uint64N(1e6)
	}
	return s, nil
}

// run runs all workloads with one seed after the other, and returns the exit status.
func (s *sim) run(t *testing.T) int {
	s.begun = time.Now()
	s.reported = s.begun
	fmt.Fprintf(s.out, "%d workloads in virtual time, from seed %d, for %v; Ctrl-C ends it.\n", len(s.workloads), s.c.Seed, s.limit())
	for seed := s.c.Seed; ; seed++ {
		for _, w := range s.workloads {
			if s.over() {
				when := "Done"
				if s.ctx.Err() != nil {
					when = "Interrupted"
				}
				s.printProgress(when)
				if s.runs == 0 {
					fmt.Fprintln(s.out, "There was no time for a run.")
					return 1
				}
				fmt.Fprintln(s.out, "Every check of every run passed.")
				return 0
			}
			if err := s.runOnce(t, w, seed); err != nil {
				text := err.Error()
				if f, ok := errors.AsType[*dohosttest.Failure](err); ok {
					text = f.Text() // without its replay line, which is for go test
				}
				fmt.Fprintf(s.out, "\n%s: seed %d: %s\nreplay: dohost sim --workload %s --seed %d --runs 1%s\n",
					w.Name, seed, strings.TrimSpace(text), w.Name, seed, s.c.flags())
				return 1
			}
			if time.Since(s.reported) > time.Second {
				s.reported = time.Now()
				s.printProgress(fmt.Sprintf("%4.0f s", time.Since(s.begun).Seconds()))
			}
		}
	}
}

func (s *sim) limit() time.Duration { return time.Duration(s.c.Minutes * float64(time.Minute)) }

func (s *sim) over() bool {
	return s.ctx.Err() != nil || time.Since(s.begun) > s.limit() || s.c.Runs > 0 && s.runs >= s.c.Runs
}

// runOnce runs a workload once.
func (s *sim) runOnce(t *testing.T, w simtest.Workload, seed uint64) error {
	sim := dohosttest.Simulation{Scenario: w.New(), Chance: s.c.ChaosEvict, Endings: s.kinds}
	if sim.Chance == 0 {
		sim.Chance = -1
	}
	if s.places != nil {
		sim.Places = s.places
	}
	done, err := sim.Try(t, seed)
	s.runs++
	s.endings += done.Endings
	s.steps += done.Steps
	s.virtual += done.Time
	return err
}

// flags returns the flags that a replay needs in addition.
func (c *simCmd) flags() string {
	text := fmt.Sprintf(" --chaos-evict %v", c.ChaosEvict)
	if c.ChaosAt != "" {
		text += " --chaos-at " + c.ChaosAt
	}
	if c.ChaosMode != "" {
		text += " --chaos-mode " + c.ChaosMode
	}
	return text
}

func (s *sim) printProgress(when string) {
	fmt.Fprintf(s.out, "%s: %d runs, %d interruptions, %d steps, %v of virtual time\n",
		when, s.runs, s.endings, s.steps, s.virtual.Round(time.Second))
}

var simCommand = cli.Command{
	Name: "sim", Help: "Run workloads in virtual time, end incarnations at random, and check that nothing was lost.", Value: &simCmd{},
}
