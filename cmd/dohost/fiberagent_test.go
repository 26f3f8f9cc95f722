//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// fiberAgent is an agent with fibers that have effects outside: each appends a line to a file, the record of the
// truth, before its checkpoint.
type fiberAgent struct {
	*agent.Agent[struct{}]
	file string
}

const (
	fiberAgents   dohost.Namespace[fiberAgent]     = "probe"
	stepsKind     agent.FiberKind[stepsCheckpoint] = "walking"
	startCallback agent.Callback[stepsRequest]     = "march"
)

// stepsRequest is a client's request. Its last step waits until the test releases it: see released.
type stepsRequest struct {
	Name   string
	Steps  int
	PauseM int // milliseconds for each step
}

// stepsCheckpoint is a checkpoint.
type stepsCheckpoint struct {
	Request stepsRequest
	Done    int
}

func fiberAgentClass() dohost.Class {
	return agent.Bind(fiberAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*fiberAgent, error) {
		return &fiberAgent{a, os.Getenv("PROBE_FILE")}, nil
	}, &agent.Handlers[fiberAgent, struct{}]{
		Options:       agent.Options{KeepAlive: 200 * time.Millisecond},
		OnInterrupted: (*fiberAgent).interrupted,
	},
		agent.Callable("run", dohost.NoResult((*fiberAgent).run)), agent.Callable("start", (*fiberAgent).start),
		agent.Callable("fibers", dohost.NoArg((*fiberAgent).fibers)), agent.Callable("dead", dohost.NoArg((*fiberAgent).dead)),
		agent.Callable("schedule", (*fiberAgent).schedule), agent.OnSchedule(startCallback, (*fiberAgent).startScheduled),
		agent.Sub[fiberAgent](fiberAgents), agent.Callable("subs", dohost.NoArg((*fiberAgent).subs)), agent.Callable("drop", (*fiberAgent).drop),
		agent.Callable("destroy", dohost.Bare((*fiberAgent).destroy)), agent.Callable("hold", dohost.Bare((*fiberAgent).holdTurn)),
		agent.OnFiber(stepsKind, func(p *fiberAgent, ctx context.Context, f *agent.Fiber[stepsCheckpoint]) error {
			at := f.Checkpoint()
			if at.Request.Name == "stalled" { // it makes no progress
				return errors.Join(p.record("stalled %d", f.Attempt), dohost.Sleep(ctx, time.Hour))
			}
			return p.runSteps(ctx, at)
		}, nil))
}

// record appends a line to the file, and sends it to clients.
func (p *fiberAgent) record(format string, args ...any) error {
	f, err := os.OpenFile(p.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// waitReleased waits until the test has released the work of a file's processes: see fiberTest.release. Work that the
// test kills waits here, so that it cannot end before the kill.
func waitReleased(ctx context.Context, file string) error {
	for {
		if _, err := os.Stat(file + ".go"); err == nil {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// awaitReleased waits in released with the turn given up.
func (p *fiberAgent) awaitReleased(ctx context.Context) error {
	return dohost.Await(ctx, func(ctx context.Context) error { return waitReleased(ctx, p.file) })
}

// step begins a step of the work.
func (p *fiberAgent) step(ctx context.Context, w stepsRequest, n int) error {
	if n == w.Steps-1 {
		if err := p.awaitReleased(ctx); err != nil {
			return err
		}
	}
	return p.record("step %s %d", w.Name, n)
}

// run runs a fiber in a task, as for work without a waiting caller.
func (p *fiberAgent) run(ctx context.Context, w stepsRequest) error {
	return p.Object().Go(ctx, "run", func(ctx context.Context) error {
		return agent.RunFiber(ctx, p, w.Name, func(ctx context.Context) error {
			return p.runSteps(ctx, stepsCheckpoint{Request: w})
		})
	})
}

func (p *fiberAgent) start(ctx context.Context, w stepsRequest) (agent.Started, error) {
	return agent.StartFiber(ctx, p, stepsKind, stepsCheckpoint{Request: w}, &agent.FiberOptions{Key: w.Name})
}

// runSteps takes the remaining steps, and reports each checkpoint that is on disk.
func (p *fiberAgent) runSteps(ctx context.Context, at stepsCheckpoint) error {
	for at.Done < at.Request.Steps {
		if err := p.step(ctx, at.Request, at.Done); err != nil {
			return err
		}
		at.Done++
		if err := agent.SaveCheckpoint(ctx, at); err != nil {
			return err
		}
		data, err := json.Marshal(at)
		if err != nil {
			return err
		}
		if err := p.Broadcast(ctx, dohost.Frame{Text: true, Data: data}); err != nil {
			return err
		}
		if err := dohost.Sleep(ctx, time.Duration(at.Request.PauseM)*time.Millisecond); err != nil {
			return err
		}
	}
	return p.record("end %s", at.Request.Name)
}

// interrupted resumes fibers of RunFiber, except poison.
func (p *fiberAgent) interrupted(ctx context.Context, i *agent.InterruptedRun) error {
	at := stepsCheckpoint{Request: stepsRequest{Name: i.Name}}
	if _, err := i.Checkpoint(&at); err != nil {
		return err
	}
	if err := p.record("hook %s %d", i.Name, at.Done); err != nil {
		return err
	}
	switch i.Name {
	case "poison":
		return errors.New("it is poison")
	case "stuck": // the first time
		if i.Attempt == 0 {
			err := dohost.Sleep(ctx, time.Hour)
			return errors.Join(err, p.record("left %s: %v", i.Name, context.Cause(ctx)))
		}
	case "slow": // to be killed in
		if err := p.awaitReleased(ctx); err != nil {
			return err
		}
	}
	_, err := i.Resume(ctx, func(ctx context.Context) error { return p.runSteps(ctx, at) })
	return err
}

func (p *fiberAgent) fibers(ctx context.Context) ([]agent.FiberInfo, error) {
	return p.Fibers().List(ctx, nil)
}

func (p *fiberAgent) dead(ctx context.Context) ([]agent.FiberInfo, error) {
	return p.Fibers().List(ctx, &agent.FiberQuery{Status: []agent.FiberStatus{agent.FiberDead}})
}

// schedule starts the work immediately, without a checkpoint.
func (p *fiberAgent) schedule(ctx context.Context, w stepsRequest) (string, error) {
	return agent.Schedule(ctx, p, agent.After(0), startCallback, w, nil)
}

func (p *fiberAgent) startScheduled(ctx context.Context, w stepsRequest) error {
	for step := range w.Steps {
		err := p.step(ctx, w, step)
		if err := errors.Join(err, dohost.Sleep(ctx, time.Duration(w.PauseM)*time.Millisecond)); err != nil {
			return err
		}
	}
	return p.record("end %s", w.Name)
}

func (p *fiberAgent) subs(ctx context.Context) ([]agent.SubInfo, error) {
	return p.SubAgents().List(ctx, "")
}

func (p *fiberAgent) drop(ctx context.Context, name string) (existed bool, err error) {
	return p.SubAgents().Delete(ctx, string(fiberAgents), name)
}

func (p *fiberAgent) destroy(ctx context.Context) error {
	return p.Destroy(ctx)
}

// holdTurn keeps the turn, so that the agent handles no other event in this process.
func (p *fiberAgent) holdTurn(ctx context.Context) error {
	err := p.record("hold")
	<-ctx.Done()
	return err
}
