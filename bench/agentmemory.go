package main

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// idleAgent is an agent with a state and no work.
type idleAgent struct {
	*agent.Agent[idleAgentState]
	calls int // of this incarnation
}

type idleAgentState struct {
	Title string `json:"title"`
}

const idleAgents dohost.Namespace[idleAgent] = "idle-agent"

var idleAgentClass = agent.Bind(idleAgents, func(_ context.Context, a *agent.Agent[idleAgentState]) (*idleAgent, error) {
	return &idleAgent{Agent: a}, nil
}, &agent.Handlers[idleAgent, idleAgentState]{Initial: &idleAgentState{"untitled"}})

// touch reads the state, which the object's first call has written, and counts in memory.
func (i *idleAgent) touch(ctx context.Context, _ int) (int, error) {
	s, err := i.State(ctx)
	if err == nil && s.Title != "untitled" {
		err = fmt.Errorf("the state of %v is %v", i.ID(), s)
	}
	i.calls++
	return i.calls, err
}

// fewAgents is the number of live agents in the first of the rows.
const fewAgents = 10_000

// agentMemory measures the cost of an idle live agent, as objectMemory does for objects.
func agentMemory(ctx context.Context, b *bench) error {
	few := min(fewAgents, b.objects)
	if err := b.agentMemory(ctx, "P7a", few); err != nil || few == b.objects {
		return err
	}
	return b.agentMemory(ctx, "P7b", b.objects)
}

func (b *bench) agentMemory(ctx context.Context, id string, n int) error {
	c, err := b.liveCost(ctx, n, idleAgentClass, idlePopulation)
	if err != nil {
		return err
	}
	const most = 1536
	r := c.row(id, "agent", n, unsafe.Sizeof(idleAgent{}), most)
	r.Notes = append(r.Notes, "the agent itself, which the struct embeds by its address, is part of it",
		fmt.Sprintf("a full collection with all of them takes %.0f ms", median(c.collections)))
	b.add(r)
	return nil
}

// idlePopulation is a host with idle agents.
func idlePopulation(h *dohost.Host) *population {
	return &population{h, func(i int) dohost.ID { return idleAgents.Get(h, name(i)).ID() },
		func(ctx context.Context, i int) (int, error) {
			return dohost.Call(ctx, idleAgents.Get(h, name(i)), (*idleAgent).touch, 0)
		}}
}

// liveCost measures n live agents of a class, in a host of their own.
func (b *bench) liveCost(ctx context.Context, n int, c dohost.Class, of func(*dohost.Host) *population) (each *cost, err error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	h, err := dohost.Open(dir, &dohost.Options{IdleAfter: time.Hour}, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	return b.measureLive(ctx, of(h), n)
}
