package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/ledger"
	"github.com/dohost/dohost/objectstore"
)

// team is an object with two agents, each with an inbox: "planner" and "research".
type team struct{ *agent.Agent[struct{}] }

const teams dohost.Namespace[team] = "team"

var inquiries = inbox.Messages("inquiries", nil)

// inquiry is a message of a client to an agent of a team.
type inquiry struct{ To, ID string }

// ask sends a message to an agent of the team, and waits for the response.
func (t *team) ask(ctx context.Context, q inquiry) (string, error) {
	asked, err := inbox.Send(ctx, t.Storage(), &inquiries, inbox.Message{To: q.To, From: "ada", Content: "How large is Bern?", Request: q.ID})
	if err != nil {
		return "", err
	}
	r, err := inbox.WaitReply(ctx, t, &inquiries, asked)
	return r.Content, err
}

// left returns the numbers of the messages that wait, and of all.
func (t *team) left(ctx context.Context) (n [2]int, err error) {
	if n[0], err = inquiries.Count(ctx, t.Storage(), &dohost.Query[inbox.Message]{Index: "pending"}); err != nil {
		return n, err
	}
	n[1], err = inquiries.Count(ctx, t.Storage(), nil)
	return n, err
}

// toolSide is a host with a client that asks a planner, one question after the other.
type toolSide struct {
	*dohost.Host
	fs     *objectstore.FS
	dir    string
	asks   bool   // the planner asks the researcher by an AgentTool; otherwise the client does, before it asks the planner
	object string // of the researcher; the planner is in the object 0
	next   atomic.Int64
}

func (b *bench) openTools(asks bool, object string) (s *toolSide, err error) {
	s = &toolSide{asks: asks, object: object}
	if s.dir, err = b.newDir(); err != nil {
		return nil, err
	}
	return s, s.open()
}

func (s *toolSide) open() (err error) {
	const few = 10 // the conversations remain short
	researcher := &inbox.Agent{Name: "research", Model: yesModel{}, MaxMessages: few}
	planner := &inbox.Agent{Name: "planner", Model: planningModel{}, MaxMessages: few}
	if s.asks {
		tool := researcher.Tool(&inquiries)
		tool.To = func(context.Context, inbox.Ref, json.RawMessage) (dohost.ID, error) {
			return teams.Get(s, s.object).ID(), nil
		}
		planner.Agents = []inbox.AgentTool{tool}
	} else {
		planner.Tools = []chat.Tool{{
			ToolSpec: chat.ToolSpec{Name: "research"}, Policy: ledger.PolicyIdempotent, Unrecorded: true,
			Run: func(context.Context, json.RawMessage) (any, error) { return "yes", nil },
		}}
	}
	s.fs = objectstore.DiskFS()
	s.Host, err = dohost.Open(s.dir, kernel.OnFS(&dohost.Options{IdleAfter: -1}, s.fs), agent.Bind(teams,
		func(_ context.Context, a *agent.Agent[struct{}]) (*team, error) { return &team{a}, nil }, nil,
		inbox.On(inbox.ForMessages[team](&inquiries, planner)), inbox.On(inbox.ForMessages[team](&inquiries, researcher))))
	return err
}

func (s *toolSide) work(ctx context.Context, m *meter) error {
	w := m.worker()
	for over := false; !over; over = w.over() {
		began := time.Now()
		if err := s.one(ctx); err != nil {
			return err
		}
		w.did(began)
	}
	return nil
}

// one asks the planner, and returns when it has answered with the researcher's response.
func (s *toolSide) one(ctx context.Context) error {
	id := strconv.FormatInt(s.next.Add(1), 10)
	if !s.asks {
		if _, err := dohost.Call(ctx, teams.Get(s, s.object), (*team).ask, inquiry{"research", id}); err != nil {
			return err
		}
	}
	text, err := dohost.Call(ctx, teams.Get(s, name(0)), (*team).ask, inquiry{"planner", id})
	if err == nil && !strings.Contains(text, "yes") {
		err = fmt.Errorf("the planner has answered %q, without the response of the researcher", text)
	}
	return err
}

// messagesOfAnswer are those to both agents, and their responses.
const messagesOfAnswer = 4

// verify counts the messages on the disk.
func (s *toolSide) verify(ctx context.Context, done int64) error {
	if err := errors.Join(s.Close(), s.open()); err != nil {
		return err
	}
	objects := map[string]bool{name(0): true, s.object: true}
	var waiting, messages int
	for object := range objects {
		n, err := dohost.CallNoArg(ctx, teams.Get(s, object), (*team).left)
		if err != nil {
			return err
		}
		waiting, messages = waiting+n[0], messages+n[1]
	}
	if waiting > 0 || int64(messages) != messagesOfAnswer*done {
		return fmt.Errorf("%d of %d messages wait, want none of %d", waiting, messages, messagesOfAnswer*done)
	}
	return nil
}

func (s *toolSide) syncs() int64 { return s.fs.Syncs() }

func (s *toolSide) close() error { return s.Close() }

// agentTools measures an agent with an inbox that asks another one by a tool.
func agentTools(ctx context.Context, b *bench) (err error) {
	var sides []named
	for _, c := range []struct {
		name   string
		asks   bool
		object string
	}{{ours, true, name(0)}, {"two objects", true, name(1)}, {"two messages", false, name(0)}} {
		s, err := b.openTools(c.asks, c.object)
		if err != nil {
			return errors.Join(err, closeAll(sides))
		}
		sides = append(sides, named{c.name, s})
	}
	r := Row{ID: "W7", What: "an agent with an inbox asks another one of its object and answers (inbox.AgentTool), one at a time", Unit: "answers/s"}
	if r.Sides, err = b.compare(ctx, sides...); err != nil {
		return fmt.Errorf("W7: %w", err)
	}
	var syncs []string
	for _, f := range r.Sides {
		syncs = append(syncs, fmt.Sprintf("%s %.2f", f.Side, f.Syncs))
	}
	r.Notes = []string{
		"the models answer immediately; p50 and p99 are from the client's message to the response, which is durable",
		"two objects: the other agent is in an object of its own; two messages: the client asks both agents of one object, one after the other, and the tool returns immediately",
		"syncs for each answer: " + strings.Join(syncs, "; "),
	}
	b.add(r)
	return nil
}
