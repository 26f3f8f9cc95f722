package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// supervisor runs the job in child processes, kills them, and starts the next.
type supervisor struct {
	cmd  *demoCmd
	plan *demoPlan
	show *display

	killAt []float64 // shares of the bytes, in order
	killed time.Time // when the last process was killed, until the next step

	steps         int             // of the process, at its last progress
	since         time.Time       // time of the last progress
	shownTroubles map[string]bool // the troubles shown since then
}

// run returns the result of the job.
func (s *supervisor) run(ctx context.Context) (*demoResult, error) {
	rng := rand.New(rand.NewPCG(s.plan.Seed, 0))
	for range s.plan.Kills {
		s.killAt = append(s.killAt, 0.05+0.85*rng.Float64())
	}
	slices.Sort(s.killAt)
	s.show.begin(s.plan)
	defer s.show.end()
	for {
		result, err := s.process(ctx)
		if err != nil || result != nil {
			return result, err
		}
	}
}

// process runs one process until it returns the result, is killed, or fails.
func (s *supervisor) process(ctx context.Context) (*demoResult, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	mode := "begin"
	if s.plan.Begun {
		mode = "resume"
	}
	child := exec.Command(self, "demo", "--worker", mode, "--data", s.cmd.Data)
	child.Stderr = os.Stderr
	inOwnGroup(child)
	lines, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Kill() })
	defer stop()
	last, result, killed, err := s.watch(child, lines)
	werr := child.Wait()
	s.plan.Account.add(last)
	if ctx.Err() != nil {
		return nil, s.saved(ctx.Err())
	}
	if killed {
		return nil, s.saved(err)
	}
	if werr != nil {
		// It may have sent the result and failed afterwards.
		return result, s.saved(fmt.Errorf("the worker process failed: %w", werr))
	}
	return result, s.saved(err)
}

func (s *supervisor) saved(err error) error {
	if serr := s.cmd.save(s.plan); err == nil {
		err = serr
	}
	return err
}

// stuckAfter is the time without progress after which the display shows the reason.
const stuckAfter = time.Second

// stuck shows the reasons why no step succeeds, each of them once.
func (s *supervisor) stuck(steps int, why *trouble) {
	if s.since.IsZero() || steps != s.steps {
		s.steps, s.since, s.shownTroubles = steps, time.Now(), map[string]bool{}
	}
	if why == nil || time.Since(s.since) < stuckAfter {
		return
	}
	text := "No step succeeds: " + why.Err
	if why.Full {
		text = fullText(s.cmd.Data) + "; free some space, and the run continues"
	}
	if !s.shownTroubles[text] {
		s.shownTroubles[text] = true
		s.show.note(text)
	}
}

// fullText is the message for a disk with too little space for the store.
func fullText(data string) string {
	return fmt.Sprintf("The store in %s refuses writes, because the disk is almost full", filepath.Join(data, storeFolder))
}

// watch reads reports until the process ends or is killed.
func (s *supervisor) watch(child *exec.Cmd, lines io.Reader) (last *account, result *demoResult, killed bool, err error) {
	last = &account{}
	in := json.NewDecoder(bufio.NewReader(lines))
	for {
		var r report
		if err := in.Decode(&r); err != nil {
			return last, result, killed, nil // Wait returns the reason
		}
		switch {
		case killed:
			continue
		case r.Account != nil:
			last = r.Account
			s.stuck(last.Steps, r.Trouble)
		case r.Step && !s.killed.IsZero():
			s.plan.Account.Recovery = append(s.plan.Account.Recovery, time.Since(s.killed))
			s.killed = time.Time{}
		case r.Begun:
			s.plan.Begun = true
		case r.Result != nil:
			result = r.Result
		}
		share := float64(s.plan.Account.Bytes+last.Bytes) / float64(max(s.plan.Bytes, 1))
		if s.show.terminal || len(s.shownTroubles) == 0 { // else there is no progress
			s.show.progress(share, s.plan, last)
		}
		if s.plan.Begun && s.plan.Killed < len(s.killAt) && share >= s.killAt[s.plan.Killed] {
			killed = true
			s.killed = time.Now()
			s.plan.Killed++
			if err := child.Process.Kill(); err != nil {
				return last, nil, true, err
			}
			s.show.note(fmt.Sprintf("SIGKILL number %d, at %.0f %%", s.plan.Killed, 100*share))
		}
	}
}
