package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/recovery"
)

// waitingAgent is an agent with a fiber that counts its incarnations, and waits.
type waitingAgent struct {
	*agent.Agent[struct{}]
	steps chan<- step // the first of each incarnation, once it is durable
	over  bool        // the fiber has ended
}

// step is the time of a fiber's first step.
type step struct {
	name string
	at   time.Time
}

const (
	waitingAgents dohost.Namespace[waitingAgent] = "waiting-agent"
	waitingKind   agent.FiberKind[int]           = "plodding"
)

func waitingAgentClass(steps chan<- step, over bool) dohost.Class {
	return agent.Bind(waitingAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*waitingAgent, error) {
		return &waitingAgent{a, steps, over}, nil
	}, nil, agent.OnFiber(waitingKind, (*waitingAgent).runFiber, &agent.KindOptions{MaxRetries: 1 << 30}))
}

// runFiber is the fiber. Its checkpoint is the number of incarnations that have run it.
func (p *waitingAgent) runFiber(ctx context.Context, f *agent.Fiber[int]) error {
	at := time.Now()
	if p.over {
		return nil
	}
	if err := f.SaveCheckpoint(ctx, f.Checkpoint()+1); err != nil {
		return err
	}
	p.steps <- step{p.Name(), at}
	return dohost.Await(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// begin starts the fiber, under the agent's name.
func (p *waitingAgent) begin(ctx context.Context, _ int) (int, error) {
	_, err := agent.StartFiber(ctx, p, waitingKind, 0, &agent.FiberOptions{Key: p.Name()})
	return 0, err
}

// touch does nothing.
func (p *waitingAgent) touch(context.Context, int) (int, error) { return 0, nil }

// write counts one, durably, and returns the sum.
func (p *waitingAgent) write(ctx context.Context, _ int) (int, error) {
	n, _, err := dohost.Get[int](ctx, p.Storage(), "n")
	if err != nil {
		return 0, err
	}
	return n + 1, dohost.Put(ctx, p.Storage(), "n", n+1)
}

// waitForEnd waits until the fiber has ended.
func (p *waitingAgent) waitForEnd(ctx context.Context, _ int) (info agent.FiberInfo, err error) {
	info, ok, err := p.Fibers().GetByKey(ctx, p.Name())
	if err == nil && ok {
		info, ok, err = p.Fibers().Wait(ctx, info.ID)
	}
	if err == nil && !ok {
		err = fmt.Errorf("%s has no fiber", p.Name())
	}
	return info, err
}

// resumeRun is a host of agents with fibers that wait, while their incarnations are ended one at a time.
type resumeRun struct {
	*dohost.Host
	dir    string
	steps  chan step
	fences []int // of each agent
	writes []int // likewise
}

func (b *bench) openResuming(n int) (r *resumeRun, err error) {
	r = &resumeRun{steps: make(chan step, n), fences: make([]int, n), writes: make([]int, n)}
	if r.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return r, r.open(false)
}

func (r *resumeRun) open(over bool) (err error) {
	o := &dohost.Options{IdleAfter: -1, Grace: -1} // a fiber that waits would delay Close
	r.Host, err = dohost.Open(r.dir, o, waitingAgentClass(r.steps, over))
	return err
}

// begin starts all fibers, and waits for the first step of each.
func (r *resumeRun) begin(ctx context.Context) error {
	for i := range r.fences {
		if _, err := dohost.Call(ctx, waitingAgents.Get(r, name(i)), (*waitingAgent).begin, 0); err != nil {
			return err
		}
		if _, err := r.step(ctx, name(i)); err != nil {
			return err
		}
	}
	return nil
}

// step waits for the first step of a fiber in an incarnation of the agent named of.
func (r *resumeRun) step(ctx context.Context, of string) (at time.Time, err error) {
	select {
	case s := <-r.steps:
		if s.name != of {
			err = fmt.Errorf("the fiber of %s has taken a step, want %s", s.name, of)
		}
		return s.at, err
	case <-ctx.Done():
		return at, ctx.Err()
	}
}

// end ends an incarnation and calls the agent: took is the time from the fence to the fiber's next step.
func (r *resumeRun) end(ctx context.Context, i int) (took time.Duration, err error) {
	p := waitingAgents.Get(r, name(i))
	began := time.Now()
	if !r.Evict(p.ID(), dohost.EndFence) {
		return 0, fmt.Errorf("%v was not alive", p.ID())
	}
	r.fences[i]++
	if _, err := dohost.Call(ctx, p, (*waitingAgent).touch, 0); err != nil {
		return 0, err
	}
	at, err := r.step(ctx, name(i))
	return at.Sub(began), err
}

// busy ends incarnations of agents that are drawn, each just after a call. That call writes: wrote is its duration, on
// the same disk at the same time.
func (r *resumeRun) busy(ctx context.Context, seed uint64, times int) (took, wrote []time.Duration, err error) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for range times {
		i := draw.IntN(len(r.fences))
		began := time.Now()
		n, err := dohost.Call(ctx, waitingAgents.Get(r, name(i)), (*waitingAgent).write, 0)
		wrote = append(wrote, time.Since(began))
		if r.writes[i]++; err == nil && n != r.writes[i] {
			err = fmt.Errorf("no figure: %s has counted %d writes, want %d", name(i), n, r.writes[i])
		}
		if err != nil {
			return nil, nil, err
		}
		d, err := r.end(ctx, i)
		if err != nil {
			return nil, nil, err
		}
		took = append(took, d)
	}
	return took, wrote, nil
}

// rested ends incarnations that were idle for a while except for the waiting fiber: all rest together, and then each
// is ended once.
func (r *resumeRun) rested(ctx context.Context, b *bench, times int) (took []time.Duration, err error) {
	draw := rand.New(rand.NewPCG(b.seed, 1))
	for len(took) < times {
		b.progress("%d of %d fences at rest", len(took), times)
		time.Sleep(b.rest)
		for _, i := range draw.Perm(len(r.fences))[:min(len(r.fences), times-len(took))] {
			d, err := r.end(ctx, i)
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
	}
	return took, nil
}

// verify opens the host again, without a call, and ends each fiber: the fiber has saved a checkpoint in each
// incarnation, and was interrupted by each fence and by this restart.
func (r *resumeRun) verify(ctx context.Context) error {
	if err := errors.Join(r.Close(), r.open(true)); err != nil {
		return err
	}
	for i, fences := range r.fences {
		info, err := dohost.Call(ctx, waitingAgents.Get(r, name(i)), (*waitingAgent).waitForEnd, 0)
		if err != nil {
			return err
		}
		checkpoint := fmt.Sprint(fences + 1)
		if info.Status != agent.FiberCompleted || info.Attempt != fences+1 || string(info.Checkpoint) != checkpoint {
			return fmt.Errorf("no figure: the fiber of %s is %s after %d interruptions at checkpoint %s; want %d and %s",
				name(i), info.Status, info.Attempt, info.Checkpoint, fences+1, checkpoint)
		}
	}
	return nil
}

// resumedAgents is the number of agents that are fenced.
const resumedAgents = 1000

// resumedFibers measures the time until a fiber continues after a fence.
func resumedFibers(ctx context.Context, b *bench) (err error) {
	n := min(resumedAgents, b.objects)
	r, err := b.openResuming(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.begin(ctx); err != nil {
		return err
	}
	rested, err := r.rested(ctx, b, n*b.rounds)
	if err != nil {
		return err
	}
	busy, wrote, err := r.busy(ctx, b.seed, n*b.rounds)
	if err == nil {
		err = r.verify(ctx)
	}
	if err != nil {
		return err
	}
	c := Curve{
		ID: "P14", What: "eviction recovery of an agent: the share of fibers, in percent, that had resumed within a time",
		X: "%", Y: "µs", LinearX: true, LogY: true,
	}
	slices.Sort(wrote)
	write := recovery.Distribution{Took: wrote}
	note := fmt.Sprintf("the first step does not wait for the disk, since the process has not ended; its outputs do: a durable "+
		"write of the same agents, each just before a fence of P14b, took %s (p50), %s (p99)", duration(write.At(50)), duration(write.At(99)))
	for _, d := range []recovery.Distribution{
		{ID: "P14", Took: rested, What: fmt.Sprintf("fence of an agent mid-fiber, at rest: %d agents whose fibers have waited "+
			"for %v, from the fence, and a call, to the resumed fiber's first step", n, b.rest)},
		{ID: "P14b", Took: busy, What: "the same, busy a moment before: each has written just before its fence"},
	} {
		slices.Sort(d.Took)
		c.Lines = append(c.Lines, b.addDistribution(d, fenceTarget, note))
	}
	b.result.Curves = append(b.result.Curves, c)
	return nil
}
