package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
)

// colleague is an agent that asks another one, or answers.
type colleague struct {
	*chat.Agent[struct{}]
	side *delegationSide
}

const planners, researchers dohost.Namespace[colleague] = "planner", "researcher"

// replied is the key of the number of answers of a researcher.
const replied = "replied"

// answer answers a request, and counts it in the batch of the answer.
func (c *colleague) answer(ctx context.Context, r *chat.Reply) error {
	n, _, err := dohost.Get[int](ctx, c.Storage(), replied)
	if err == nil {
		err = dohost.Put(ctx, c.Storage(), replied, n+1)
	}
	return errors.Join(err, r.Say(ctx, "134,000"))
}

// plan answers with a call of the tool, and then with its result.
func (c *colleague) plan(ctx context.Context, r *chat.Reply) error {
	return chat.Answer(ctx, r, planningModel{}, &chat.AnswerOptions{Tools: []chat.Tool{c.side.tool}})
}

// planned returns the end of a reply of a planner to its caller, if it has the result of the tool.
func (c *colleague) planned(_ context.Context, r chat.Response) error {
	if r.Message.PlainText() != "" || r.Error != "" {
		if ch, ok := c.side.waiting.Load(c.Name()); ok {
			ch.(chan chat.Response) <- r
		}
	}
	return nil
}

// planningModel calls the tool, and repeats its result.
type planningModel struct{}

// Stream implements [chat.Model].
func (planningModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	c := chat.ToolInput("call", "research", `{"message":"How large is Bern?"}`)
	if len(p.Partial.Parts) > 0 {
		c = chat.TextDelta("t", string(p.Partial.Parts[len(p.Partial.Parts)-1].Member("output")))
	}
	return func(yield func(chat.Chunk, error) bool) { yield(c, nil) }
}

// delegationSide is a host with pairs of a planner and a researcher, each with a caller in a closed loop.
type delegationSide struct {
	*dohost.Host
	fs      *objectstore.FS
	dir     string
	pairs   int
	asks    bool // the planner asks the researcher; otherwise the caller does, before it asks the planner
	tool    chat.Tool
	next    atomic.Int64
	waiting sync.Map // a chan chat.Response for each planner
}

func (b *bench) openDelegation(pairs int, asks bool) (s *delegationSide, err error) {
	s = &delegationSide{pairs: pairs, asks: asks}
	s.tool = chat.AgentTool(researchers, "research", "", nil)
	if !asks {
		s.tool.External, s.tool.Run = nil, func(context.Context, json.RawMessage) (any, error) { return "134,000", nil }
	}
	for i := range pairs {
		s.waiting.Store(name(i), make(chan chat.Response, 1))
	}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *delegationSide) open() (err error) {
	s.fs = objectstore.DiskFS()
	construct := func(_ context.Context, a *chat.Agent[struct{}]) (*colleague, error) { return &colleague{a, s}, nil }
	options := chat.Options{MaxMessages: 10} // the conversations remain short
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs),
		chat.Bind(planners, construct, &chat.Handlers[colleague, struct{}]{Reply: (*colleague).plan, OnResponse: (*colleague).planned, Options: options}),
		chat.Bind(researchers, construct, &chat.Handlers[colleague, struct{}]{Reply: (*colleague).answer, Options: options}))
	return err
}

// ask requests a reply.
func (c *colleague) ask(ctx context.Context, id string) (struct{}, error) {
	_, err := chat.Ask(ctx, c, []chat.Message{chat.Text("u-"+id, chat.RoleUser, "How large is Bern?")}, &chat.AskOptions{ID: id})
	return struct{}{}, err
}

// askAndWait requests a reply, and waits for its end.
func (c *colleague) askAndWait(ctx context.Context, id string) (struct{}, error) {
	if _, err := c.ask(ctx, id); err != nil {
		return struct{}{}, err
	}
	r, _, err := chat.Wait(ctx, c, id)
	if err == nil && r.Status != chat.StatusCompleted {
		err = fmt.Errorf("%s is %s: %s", id, r.Status, r.Error)
	}
	return struct{}{}, err
}

func (s *delegationSide) work(ctx context.Context, m *meter) error {
	return m.each(s.pairs, func(i int, w *worker) error {
		for !w.over() {
			began := time.Now()
			if err := s.one(ctx, i); err != nil {
				return err
			}
			w.did(began)
		}
		return nil
	})
}

// one asks a planner, and returns when it has answered with the researcher's result.
func (s *delegationSide) one(ctx context.Context, pair int) error {
	id := strconv.FormatInt(s.next.Add(1), 10)
	if !s.asks {
		if _, err := dohost.Call(ctx, researchers.Get(s, name(pair)), (*colleague).askAndWait, id); err != nil {
			return err
		}
	}
	ch, _ := s.waiting.Load(name(pair))
	if _, err := dohost.Call(ctx, planners.Get(s, name(pair)), (*colleague).ask, id); err != nil {
		return err
	}
	select {
	case r := <-ch.(chan chat.Response):
		if r.Error != "" {
			return fmt.Errorf("planner %d: %s", pair, r.Error)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// count returns the number of answers of a researcher.
func (c *colleague) count(ctx context.Context) (int, error) {
	n, _, err := dohost.Get[int](ctx, c.Storage(), replied)
	return n, err
}

// verify reads the number of answers of the researchers from the disk.
func (s *delegationSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	var answers int64
	for i := range s.pairs {
		n, err := dohost.CallNoArg(ctx, researchers.Get(s, name(i)), (*colleague).count)
		if err != nil {
			return err
		}
		answers += int64(n)
	}
	if answers != done {
		return fmt.Errorf("the researchers have answered %d times, and the planners %d", answers, done)
	}
	return nil
}

func (s *delegationSide) syncs() int64 { return s.fs.Syncs() }

func (s *delegationSide) close() error { return s.Close() }

// delegation measures an agent that asks another one by a tool, and compares it with the same replies without a tool of another agent.
func delegation(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		id, what string
		pairs    int
	}{
		{"W5", "an agent asks another one and answers (AgentTool), one at a time", 1},
		{"W6", "the same, 64 pairs of agents", 64},
	} {
		asks, err := b.openDelegation(c.pairs, true)
		if err != nil {
			return err
		}
		apart, err := b.openDelegation(c.pairs, false)
		if err != nil {
			return errors.Join(err, asks.close())
		}
		r := Row{ID: c.id, What: c.what, Unit: "answers/s"}
		if r.Sides, err = b.compare(ctx, named{ours, asks}, named{"two replies", apart}); err != nil {
			return fmt.Errorf("%s: %w", c.id, err)
		}
		r.Notes = []string{
			"the models answer immediately: the figure is the cost of the wait for another agent",
			"two replies: the client asks both agents, one after the other, and the tool returns immediately",
			fmt.Sprintf("syncs for each answer: %s %.2f; %s %.2f", ours, r.Sides[0].Syncs, r.Sides[1].Side, r.Sides[1].Syncs),
		}
		b.add(r)
	}
	return nil
}
