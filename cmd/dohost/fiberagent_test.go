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

// probe is an agent with fibers that have effects outside: each appends a line to a file, the record of the
// truth, before its checkpoint.
type probe struct {
	*agent.Agent[struct{}]
	file string
}

const (
	probes  dohost.Namespace[probe]   = "probe"
	walking agent.FiberKind[walkPart] = "walking"
	march   agent.Callback[walk]      = "march"
)

// walk is a client's request. Its last step waits until the test releases it: see released.
type walk struct {
	Name   string
	Steps  int
	PauseM int // milliseconds for each step
}

// walkPart is a checkpoint.
type walkPart struct {
	Walk walk
	Done int
}

func probing() dohost.Class {
	return agent.Bind(probes, func(_ context.Context, a *agent.Agent[struct{}]) (*probe, error) {
		return &probe{a, os.Getenv("PROBE_FILE")}, nil
	}, &agent.Handlers[probe, struct{}]{
		Options:       agent.Options{KeepAlive: 200 * time.Millisecond},
		OnInterrupted: (*probe).interrupted,
	},
		agent.Callable("run", dohost.NoResult((*probe).run)), agent.Callable("start", (*probe).start),
		agent.Callable("fibers", dohost.NoArg((*probe).fibers)), agent.Callable("dead", dohost.NoArg((*probe).dead)),
		agent.Callable("schedule", (*probe).schedule), agent.OnSchedule(march, (*probe).march),
		agent.Sub[probe](probes), agent.Callable("subs", dohost.NoArg((*probe).subs)), agent.Callable("drop", (*probe).drop),
		agent.Callable("destroy", dohost.Bare((*probe).destroy)), agent.Callable("hold", dohost.Bare((*probe).hold)),
		agent.OnFiber(walking, func(p *probe, ctx context.Context, f *agent.Fiber[walkPart]) error {
			at := f.Checkpoint()
			if at.Walk.Name == "stalled" { // it makes no progress
				return errors.Join(p.happened("stalled %d", f.Attempt), dohost.Sleep(ctx, time.Hour))
			}
			return p.walk(ctx, at)
		}, nil))
}

// happened appends a line to the file, and sends it to clients.
func (p *probe) happened(format string, args ...any) error {
	f, err := os.OpenFile(p.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// released waits until the test has released the work of a file's processes: see patient.release. Work that the test
// kills waits here, so that it cannot end before the kill.
func released(ctx context.Context, file string) error {
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

// held waits in released with the turn given up.
func (p *probe) held(ctx context.Context) error {
	return dohost.Await(ctx, func(ctx context.Context) error { return released(ctx, p.file) })
}

// step begins a step of a walk.
func (p *probe) step(ctx context.Context, w walk, n int) error {
	if n == w.Steps-1 {
		if err := p.held(ctx); err != nil {
			return err
		}
	}
	return p.happened("step %s %d", w.Name, n)
}

// run runs a fiber in a task, as for work without a waiting caller.
func (p *probe) run(ctx context.Context, w walk) error {
	return p.Object().Go(ctx, "run", func(ctx context.Context) error {
		return agent.RunFiber(ctx, p, w.Name, func(ctx context.Context) error {
			return p.walk(ctx, walkPart{Walk: w})
		})
	})
}

func (p *probe) start(ctx context.Context, w walk) (agent.Started, error) {
	return agent.StartFiber(ctx, p, walking, walkPart{Walk: w}, &agent.FiberOptions{Key: w.Name})
}

// walk takes the remaining steps, and reports each checkpoint that is on disk.
func (p *probe) walk(ctx context.Context, at walkPart) error {
	for at.Done < at.Walk.Steps {
		if err := p.step(ctx, at.Walk, at.Done); err != nil {
			return err
		}
		at.Done++
		if err := agent.SaveCheckpoint(ctx, at); err != nil {
			return err
		}
		told, err := json.Marshal(at)
		if err != nil {
			return err
		}
		if err := p.Broadcast(ctx, dohost.Frame{Text: true, Data: told}); err != nil {
			return err
		}
		if err := dohost.Sleep(ctx, time.Duration(at.Walk.PauseM)*time.Millisecond); err != nil {
			return err
		}
	}
	return p.happened("end %s", at.Walk.Name)
}

// interrupted resumes fibers of RunFiber, except poison.
func (p *probe) interrupted(ctx context.Context, i *agent.Interrupted) error {
	at := walkPart{Walk: walk{Name: i.Name}}
	if _, err := i.Checkpoint(&at); err != nil {
		return err
	}
	if err := p.happened("hook %s %d", i.Name, at.Done); err != nil {
		return err
	}
	switch i.Name {
	case "poison":
		return errors.New("it is poison")
	case "stuck": // the first time
		if i.Attempt == 0 {
			err := dohost.Sleep(ctx, time.Hour)
			return errors.Join(err, p.happened("left %s: %v", i.Name, context.Cause(ctx)))
		}
	case "slow": // to be killed in
		if err := p.held(ctx); err != nil {
			return err
		}
	}
	_, err := i.Resume(ctx, func(ctx context.Context) error { return p.walk(ctx, at) })
	return err
}

func (p *probe) fibers(ctx context.Context) ([]agent.FiberInfo, error) {
	return p.Fibers().List(ctx, nil)
}

func (p *probe) dead(ctx context.Context) ([]agent.FiberInfo, error) {
	return p.Fibers().ListDead(ctx, 0)
}

// schedule starts a walk immediately, without a checkpoint.
func (p *probe) schedule(ctx context.Context, w walk) (string, error) {
	return agent.Schedule(ctx, p, agent.After(0), march, w, nil)
}

func (p *probe) march(ctx context.Context, w walk) error {
	for step := range w.Steps {
		err := p.step(ctx, w, step)
		if err := errors.Join(err, dohost.Sleep(ctx, time.Duration(w.PauseM)*time.Millisecond)); err != nil {
			return err
		}
	}
	return p.happened("end %s", w.Name)
}

func (p *probe) subs(ctx context.Context) ([]agent.SubInfo, error) {
	return p.SubAgents().List(ctx, "")
}

func (p *probe) drop(ctx context.Context, name string) (existed bool, err error) {
	return p.SubAgents().Delete(ctx, string(probes), name)
}

func (p *probe) destroy(ctx context.Context) error {
	return p.Destroy(ctx)
}

// hold keeps the turn, so that the probe handles no other event in this process.
func (p *probe) hold(ctx context.Context) error {
	err := p.happened("hold")
	<-ctx.Done()
	return err
}
