package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// inboxAgent is an agent with an inbox.
type inboxAgent struct {
	*agent.Agent[struct{}]
	calls int // of this incarnation
}

const inboxAgents dohost.Namespace[inboxAgent] = "clerk"

var letters = inbox.Messages("letters", nil)

// yesModel answers immediately.
type yesModel struct{}

// Stream yields the answer.
func (yesModel) Stream(context.Context, *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) { yield(chat.TextDelta("t", "yes"), nil) }
}

// inboxClass returns the class of agents with an inbox, of the agent "clerk".
func inboxClass() dohost.Class {
	return agent.Bind(inboxAgents, func(_ context.Context, a *agent.Agent[struct{}]) (*inboxAgent, error) {
		return &inboxAgent{Agent: a}, nil
	}, nil,
		inbox.On(inbox.ForMessages[inboxAgent](&letters, &inbox.Agent{Name: "clerk", Model: yesModel{}})))
}

// touch counts in memory.
func (c *inboxAgent) touch(context.Context, int) (int, error) {
	c.calls++
	return c.calls, nil
}

// send sends a message to the agent, unless it has one with that id.
func (c *inboxAgent) send(ctx context.Context, id string) (struct{}, error) {
	_, known, err := letters.Get(ctx, c.Storage(), id)
	if err == nil && !known {
		_, err = inbox.Send(ctx, c.Storage(), &letters, inbox.Message{ID: id, To: "clerk", From: "ada", Content: "may I?"})
	}
	return struct{}{}, err
}

// left returns the numbers of the messages that wait, and of all.
func (c *inboxAgent) left(ctx context.Context, _ int) (n [2]int, err error) {
	if n[0], err = letters.Count(ctx, c.Storage(), &dohost.Query[inbox.Message]{Index: "pending"}); err != nil {
		return n, err
	}
	n[1], err = letters.Count(ctx, c.Storage(), nil)
	return n, err
}

// answered sends a message to the i-th agent and waits until the agent has answered. The agent has that many messages then, the answers
// included.
func answered(ctx context.Context, h *dohost.Host, i int, id string, messages int) error {
	stub := inboxAgents.Get(h, name(i))
	if _, err := dohost.Call(ctx, stub, (*inboxAgent).send, id); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; {
		n, err := dohost.Call(ctx, stub, (*inboxAgent).left, 0)
		switch {
		case err != nil:
			return err
		case n == [2]int{0, messages}:
			return nil
		case n[1] > messages:
			return fmt.Errorf("%v has %d messages, want %d", stub.ID(), n[1], messages)
		case time.Now().After(end):
			return fmt.Errorf("of the messages of %v %d of %d wait, want none of %d", stub.ID(), n[0], n[1], messages)
		}
		if err := dohost.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// idleInboxes measures agents with an inbox that has nothing to do: their memory, and their wakes.
func idleInboxes(ctx context.Context, b *bench) error {
	n := min(fewAgents, b.objects)
	return errors.Join(b.inboxMemory(ctx, n), b.inboxWakes(ctx, n))
}

// inboxMemory compares the memory of a live agent with an inbox with that of one whose inbox was never used, and with plain agents.
func (b *bench) inboxMemory(ctx context.Context, n int) error {
	r := Row{
		ID: "I1", What: fmt.Sprintf("memory of an idle live agent with an inbox that has answered a message, of %d", n), Unit: "B in addition to the user's struct",
		Notes: []string{
			"never used: with an inbox that has had no message; no inbox: an agent with a state, as in P7a",
			"1,000 of them had answered before they left memory once, and have not answered since",
			"no inbox, a limit of time: the same after a call with a context.WithTimeout, as the cycles of an inbox have: the incarnation's context stays in memory",
		},
	}
	for _, s := range []struct {
		name  string
		class dohost.Class
		self  uintptr
		of    func(h *dohost.Host) *population
	}{
		{ours, inboxClass(), unsafe.Sizeof(inboxAgent{}), func(h *dohost.Host) *population {
			return inboxPopulation(h, func(ctx context.Context, i int) error { return answered(ctx, h, i, "first", 2) })
		}},
		{"never used", inboxClass(), unsafe.Sizeof(inboxAgent{}), func(h *dohost.Host) *population {
			return inboxPopulation(h, func(context.Context, int) error { return nil })
		}},
		{"no inbox", idleAgentClass, unsafe.Sizeof(idleAgent{}), idlePopulation},
		{"no inbox, a limit of time", idleAgentClass, unsafe.Sizeof(idleAgent{}), func(h *dohost.Host) *population {
			p := idlePopulation(h)
			p.touch = func(ctx context.Context, i int) (int, error) {
				return dohost.Call(ctx, idleAgents.Get(h, name(i)), (*idleAgent).touchInTime, 0)
			}
			return p
		}},
	} {
		c, err := b.liveCost(ctx, n, s.class, s.of)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.name == ours {
			r.Notes = append(r.Notes, fmt.Sprintf("%d goroutines more with all of them live, and %d files more", c.goroutines, c.files))
		}
		each := c.each - float64(s.self)
		r.Sides = append(r.Sides, Figure{Side: s.name, Value: each, Rounds: []float64{each}, Checked: int64(n)})
	}
	b.add(r)
	return nil
}

// touchInTime is touch with a limit of time.
func (i *idleAgent) touchInTime(ctx context.Context, n int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return i.touch(ctx, n)
}

// inboxPopulation is a host with agents that have an inbox. before is called before each touch.
func inboxPopulation(h *dohost.Host, before func(ctx context.Context, i int) error) *population {
	return &population{h, func(i int) dohost.ID { return inboxAgents.Get(h, name(i)).ID() }, func(ctx context.Context, i int) (int, error) {
		if err := before(ctx, i); err != nil {
			return 0, err
		}
		return dohost.Call(ctx, inboxAgents.Get(h, name(i)), (*inboxAgent).touch, 0)
	}}
}

// inboxHost is a host with agents that have an inbox.
type inboxHost struct {
	*dohost.Host
	fs *objectstore.FS
}

func (b *bench) openInboxes(o *dohost.Options) (*inboxHost, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	if o == nil {
		o = &dohost.Options{}
	}
	fs := objectstore.DiskFS()
	h, err := dohost.Open(dir, kernel.OnFS(o, fs), inboxClass())
	return &inboxHost{h, fs}, err
}

// inboxWakes counts the wakes of agents whose inbox has nothing to do, and that have left memory.
func (b *bench) inboxWakes(ctx context.Context, n int) (err error) {
	var wakes atomic.Int64
	c, err := b.openInboxes(&dohost.Options{
		IdleAfter: b.rest / 4, Listener: dohost.Listener{Waking: func(dohost.ID, dohost.Epoch) { wakes.Add(1) }},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	h, fs := c.Host, c.fs
	if err := fillBy(b, 0, n, func(i int) error { return answered(ctx, h, i, "first", 2) }); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); h.LiveCount() > 0; {
		if time.Now().After(end) {
			return fmt.Errorf("%d agents are in memory a minute after they were called", h.LiveCount())
		}
		if err := dohost.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	before, syncs, d := wakes.Load(), fs.Syncs(), time.Duration(b.rounds)*b.duration
	if err := dohost.Sleep(ctx, d); err != nil {
		return err
	}
	woken, synced := wakes.Load()-before, fs.Syncs()-syncs
	alarms, err := countAlarms(ctx, h, string(inboxAgents))
	if err != nil {
		return err
	}
	const sample = 100
	if err := fillBy(b, 0, sample, func(i int) error { return answered(ctx, h, i, "second", 4) }); err != nil {
		return err
	}
	hours := float64(n) * d.Hours()
	b.add(Row{
		ID: "I2", What: fmt.Sprintf("wakes of an agent with an inbox that has nothing to do, of %d that have left memory", n), Unit: "wakes/hour",
		Sides: []Figure{{Side: ours, Value: float64(woken) / hours, Checked: sample}},
		Notes: []string{
			fmt.Sprintf("%d wakes, and %d syncs of the log, in %s hours of agents: all of them for %s", woken, synced, number(hours), duration(d)),
			fmt.Sprintf("%d alarms are stored, so no agent would wake later", alarms),
			fmt.Sprintf("afterwards %d of the agents answer a message each", sample),
		},
	})
	return nil
}

// countAlarms counts the alarms of a class on the disk, up to 1,000.
func countAlarms(ctx context.Context, h *dohost.Host, class string) (int, error) {
	sn, err := kernel.OfHost(h).Store().Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	defer sn.Close()
	found, _, err := sn.Alarms(class, objectstore.AlarmPos{}, 1000)
	return len(found), err
}
