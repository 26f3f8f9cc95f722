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

// idler is an agent with a state and no work.
type idler struct {
	*agent.Agent[idlerState]
	calls int // of this incarnation
}

type idlerState struct {
	Title string `json:"title"`
}

const idlers dohost.Namespace[idler] = "idler"

var idlerClass = agent.Bind(idlers, func(_ context.Context, a *agent.Agent[idlerState]) (*idler, error) {
	return &idler{Agent: a}, nil
}, &agent.Handlers[idler, idlerState]{Initial: &idlerState{"untitled"}})

// touch reads the state, which the object's first call has written, and counts in memory.
func (i *idler) touch(ctx context.Context, _ int) (int, error) {
	s, err := i.State(ctx)
	if err == nil && s.Title != "untitled" {
		err = fmt.Errorf("the state of %v is %v", i.ID(), s)
	}
	i.calls++
	return i.calls, err
}

// fewAgents is the number of live agents in the first of the rows.
const fewAgents = 10_000

// idleAgents measures the cost of an idle live agent, as objectMemory does for objects.
func idleAgents(ctx context.Context, b *bench) error {
	few := min(fewAgents, b.objects)
	if err := b.idleAgents(ctx, "P7a", few); err != nil || few == b.objects {
		return err
	}
	return b.idleAgents(ctx, "P7b", b.objects)
}

func (b *bench) idleAgents(ctx context.Context, id string, n int) (err error) {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	h, err := dohost.Open(dir, &dohost.Options{IdleAfter: time.Hour}, idlerClass)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	c, err := b.measureLive(ctx, &population{h, func(i int) dohost.ID { return idlers.Get(h, name(i)).ID() },
		func(ctx context.Context, i int) (int, error) {
			return dohost.Call(ctx, idlers.Get(h, name(i)), (*idler).touch, 0)
		}}, n)
	if err != nil {
		return err
	}
	const most = 1536
	r := c.row(id, "agent", n, unsafe.Sizeof(idler{}), most)
	r.Notes = append(r.Notes, "the agent itself, which the struct embeds by its address, is part of it",
		fmt.Sprintf("a full collection with all of them takes %.0f ms", median(c.collections)))
	b.add(r)
	return nil
}
