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

// probe is an agent whose fibers take steps outside: each writes a line into a file, which knows
// what really happened, before its checkpoint.
type probe struct {
	*agent.Agent[struct{}]
	file string
}

const (
	probes  dohost.Namespace[probe]   = "probe"
	walking agent.FiberKind[walkPart] = "walking"
)

// walk is what a client asks for.
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
	}, agent.Tune[probe](agent.Options{KeepAlive: 200 * time.Millisecond}),
		agent.Callable("run", (*probe).run), agent.Callable("start", (*probe).start),
		agent.Callable("fibers", (*probe).fibers), agent.Callable("dead", (*probe).dead),
		agent.OnFiber(walking, func(p *probe, ctx context.Context, f *agent.Fiber[walkPart]) error {
			return p.walk(ctx, f.Checkpoint())
		}, nil),
		agent.OnInterrupted((*probe).interrupted))
}

// happened writes a line into the file, and lets clients know.
func (p *probe) happened(format string, args ...any) error {
	f, err := os.OpenFile(p.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Close())
}

// run runs a fiber in a task, as one may do with work that nobody waits for.
func (p *probe) run(ctx context.Context, w walk) (struct{}, error) {
	return struct{}{}, p.Object().Go(ctx, "run", func(ctx context.Context) error {
		_, err := agent.RunFiber(ctx, p, w.Name, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, p.walk(ctx, walkPart{Walk: w})
		})
		return err
	})
}

func (p *probe) start(ctx context.Context, w walk) (agent.Started, error) {
	return agent.StartFiber(ctx, p, walking, walkPart{Walk: w}, &agent.FiberOptions{Key: w.Name})
}

// walk takes the steps that are left, and tells of each checkpoint that is on disk.
func (p *probe) walk(ctx context.Context, at walkPart) error {
	for at.Done < at.Walk.Steps {
		if err := p.happened("step %s %d", at.Walk.Name, at.Done); err != nil {
			return err
		}
		at.Done++
		if err := agent.Stash(ctx, at); err != nil {
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

// interrupted goes on with what was run, except with poison.
func (p *probe) interrupted(ctx context.Context, i *agent.Interrupted) error {
	at := walkPart{Walk: walk{Name: i.Name}}
	if _, err := i.Snapshot(&at); err != nil {
		return err
	}
	if err := p.happened("hook %s %d", i.Name, at.Done); err != nil {
		return err
	}
	switch i.Name {
	case "poison":
		return errors.New("it is poison")
	case "slow": // to be killed in
		if err := dohost.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	_, err := i.Resume(ctx, func(ctx context.Context) error { return p.walk(ctx, at) })
	return err
}

func (p *probe) fibers(ctx context.Context, _ struct{}) ([]agent.FiberInfo, error) {
	return agent.ListFibers(ctx, p, nil)
}

func (p *probe) dead(ctx context.Context, _ struct{}) ([]agent.FiberInfo, error) {
	return agent.DeadFibers(ctx, p, 0)
}
