package randask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/internal/randtest"
)

// askObject is an object with agents that ask each other, and those of other objects. It executes programs.
type askObject struct {
	*agent.Agent[struct{}]
	w           *Observer
	incarnation int
}

const askObjects dohost.Namespace[askObject] = "random-ask"

// objects are the names of the objects.
var objects = []string{"a", "b", "c"}

// names are the agents that K selects. No agent has the last one.
var names = []string{"clerk", "scout", "guide", "envoy", "clerk", "scout", "ghost"}

// place returns the agent and the object that K selects.
func place(k int) (agent, object string) {
	return names[k%len(names)], objects[k/len(names)%len(objects)]
}

// limits are the limits of the tool that asks an agent.
type limits struct {
	timeout time.Duration // zero: none
	depth   int
}

// tools are the limits of the tools, by the name of the asked agent.
var tools = map[string]limits{
	"clerk": {20 * time.Second, 5},
	"scout": {120 * time.Second, 5},
	"guide": {0, 2},
	"envoy": {20 * time.Second, 3}, // with Insert and Wait
	"ghost": {20 * time.Second, 5}, // no agent has the name
}

// options are the options of the agents.
var options = map[string]agent.RowsOptions{
	"clerk": {Batch: 3, Retry: dohost.RetryPolicy{MaxAttempts: 6}},
	"scout": {Batch: 2, Retry: dohost.RetryPolicy{MaxAttempts: 3, BaseDelay: 500 * time.Millisecond, MaxDelay: time.Second}},
	"guide": {},
	"envoy": {Retry: dohost.RetryPolicy{MaxAttempts: 4, BaseDelay: 2 * time.Second}},
}

const (
	callTokens = 100             // of a call of a model
	dayTokens  = 10 * callTokens // of all agents of an object, after which the scout waits for the next day
)

func attemptsOf(name string) int {
	if n := options[name].Retry.MaxAttempts; n > 0 {
		return n
	}
	return 5
}

var (
	feed    = dohost.Feed{Name: "letters", Values: true, Before: true}
	letters = inbox.Messages("letters", &feed)
)

// Class returns the class of the objects.
func Class(w *Observer) dohost.Class {
	var entries []agent.Entry[askObject]
	for _, name := range []string{"clerk", "scout", "guide", "envoy"} {
		a := &inbox.Agent{
			Name: name, Model: &answerer{w}, Agents: agentTools(w), EachSender: name == "guide", MaxMessages: 5, Options: options[name],
		}
		if name == "scout" {
			a.Budget.Day.Tokens = dayTokens
		}
		entries = append(entries, inbox.On(observed(name, inbox.ForMessages[askObject](&letters, a))))
	}
	return agent.Bind(askObjects, func(ctx context.Context, base *agent.Agent[struct{}]) (*askObject, error) {
		o := &askObject{Agent: base, w: w}
		end, err := o.end(ctx)
		if err != nil {
			return nil, err
		}
		o.incarnation = w.wake(o.name(), end)
		return o, nil
	}, nil, entries...)
}

func (o *askObject) name() string { return o.Object().ID().Name }

// end returns the number of the changes of the letters.
func (o *askObject) end(ctx context.Context) (int, error) {
	at, err := feed.End(ctx, o.Storage())
	return int(at.Offset), err
}

// addressOf returns the address of an agent of an object.
func addressOf(object, name string) inbox.Address {
	return inbox.Address{Object: dohost.ID{Class: string(askObjects), Name: object}.String(), Agent: name}
}

// agentTools returns the tools of an agent.
func agentTools(w *Observer) (list []inbox.AgentTool) {
	for _, name := range []string{"clerk", "scout", "guide", "envoy", "ghost"} {
		t := inbox.AgentTool{
			Name: name, Messages: &letters, Timeout: tools[name].timeout, Depth: tools[name].depth,
			Parameters: json.RawMessage(`{"type":"object","required":["message","object"]}`),
			To: func(_ context.Context, by inbox.Ref, input json.RawMessage) (dohost.ID, error) {
				var in struct{ Object string }
				err := json.Unmarshal(input, &in)
				return askObjects.Get(by.Object(), in.Object).ID(), err
			},
		}
		switch name {
		case "guide":
			t.Timeout = -1
		case "scout":
			t.Timeout, t.Depth = 0, 0 // the defaults
		case "envoy":
			t.Messages, t.Insert, t.Wait = nil, insertRemote, waitRemote
		}
		list = append(list, t)
	}
	return list
}

// insertRemote inserts a request as an agent of another program does, which observes no deadline.
func insertRemote(ctx context.Context, by inbox.Ref, m inbox.Message) (stored inbox.Message, err error) {
	m.Deadline = time.Time{}
	err = callRemote(ctx, by, m, func(ctx context.Context, to dohost.Stub[askObject]) (err error) {
		stored, err = dohost.Call(ctx, to, (*askObject).insertOnce, m)
		return err
	})
	return stored, err
}

// waitRemote waits for the response to a request of insertRemote.
func waitRemote(ctx context.Context, by inbox.Ref, asked inbox.Message) (r inbox.Message, err error) {
	err = callRemote(ctx, by, asked, func(ctx context.Context, to dohost.Stub[askObject]) (err error) {
		var out reply
		out, err = dohost.Call(ctx, to, (*askObject).await, asked)
		if r = out.Message; err == nil && out.None {
			err = &dohost.PublicError{Message: inbox.ErrNoReply.Error()}
		}
		return err
	})
	return r, err
}

// callRemote calls the object of a request until the call succeeds.
func callRemote(ctx context.Context, by inbox.Ref, m inbox.Message, call func(context.Context, dohost.Stub[askObject]) error) error {
	t, _ := parse[task](m.Content)
	policy := dohost.RetryPolicy{MaxAttempts: -1, ShouldRetry: dohost.RetryIdempotent}
	return by.Rows().WaitElsewhere(ctx, func(ctx context.Context) error {
		return dohost.Retry(ctx, &policy, func(ctx context.Context) error { return call(ctx, askObjects.Get(by.Object(), t.At)) })
	})
}

func (o *askObject) insertOnce(ctx context.Context, m inbox.Message) (inbox.Message, error) {
	row, stored, err := letters.Get(ctx, o.Storage(), m.ID)
	if err != nil || stored {
		return row.Value, err
	}
	return inbox.Send(ctx, o.Storage(), &letters, m)
}

// reply is the result of a wait; None is an ErrNoReply.
type reply struct {
	Message inbox.Message
	None    bool
}

func (o *askObject) await(ctx context.Context, asked inbox.Message) (reply, error) {
	m, err := inbox.WaitReply(ctx, o, &letters, asked)
	if errors.Is(err, inbox.ErrNoReply) {
		return reply{None: true}, nil
	}
	return reply{Message: m}, err
}

// cycleKey is the context key of the cycle of an execution of the model.
type cycleKey struct{}

// cycle is a cycle of an agent.
type cycle struct {
	object, agent, position string
	deadline                time.Time
	tasks                   []task // of its rows
	end                     int    // of the feed
	prompt                  string // with the position: a repetition with the same prompt has the recorded answers
}

// observed compares the cycles of an inbox with the model.
func observed(name string, in *inbox.Inbox[askObject, inbox.Message, inbox.Response]) *inbox.Inbox[askObject, inbox.Message, inbox.Response] {
	generate := in.Generate
	in.Generate = func(o *askObject, ctx context.Context, c *inbox.Cycle[inbox.Message]) (inbox.Response, error) {
		now, err := o.begin(ctx, name, c)
		if err != nil {
			return inbox.Response{}, err
		}
		return generate(o, context.WithValue(ctx, cycleKey{}, now), c)
	}
	in.OnError = func(o *askObject, ctx context.Context, err error, _ []dohost.Row[inbox.Message]) {
		interrupted := strings.Contains(err.Error(), "had no effect in") // too often
		if !errors.Is(err, errModel) && !randtest.Ended(ctx, err) && !interrupted && !strings.Contains(err.Error(), "the rows have changed") {
			o.w.Faultf("a cycle of %s in %s fails: %v", name, o.name(), err)
		}
	}
	return in
}

// begin checks the rows and the prompt of a cycle.
func (o *askObject) begin(ctx context.Context, name string, c *inbox.Cycle[inbox.Message]) (*cycle, error) {
	now := &cycle{object: o.name(), agent: name, position: dohost.WorkPositionOf(ctx).Name()}
	pending, none := map[string]bool{}, false
	for _, row := range c.Pending {
		m := row.Value
		pending[m.ID] = true
		t, ok := parse[task](m.Content)
		if !ok || !waits(&m) || m.To != name {
			o.w.Faultf("a cycle of %s in %s has the row %s", name, o.name(), text(&m))
		}
		now.tasks = append(now.tasks, t)
		if none = none || m.Request == "" || m.Deadline.IsZero(); m.Deadline.After(now.deadline) {
			now.deadline = m.Deadline
		}
	}
	if none {
		now.deadline = time.Time{}
	}
	now.prompt = now.position
	for _, msg := range c.Messages {
		now.prompt += " " + msg.ID + " " + msg.PlainText()
		if pending[msg.ID] {
			continue
		}
		row, ok, err := letters.Get(ctx, o.Storage(), msg.ID)
		if err != nil {
			return nil, err
		}
		m := row.Value
		if !ok || waits(&m) || m.Expired || (m.To != name || m.InReplyTo != "") && (m.From != name || m.Request != "") {
			o.w.Faultf("the prompt of %s in %s has the message %s, whose row is %s", name, o.name(), msg.ID, text(&m))
		}
	}
	o.w.begins(now)
	var err error
	now.end, err = o.end(ctx)
	return now, err
}

// waits reports whether a row is work of an agent, or is addressed to no agent and waits forever.
func waits(m *inbox.Message) bool {
	return m.To != "" && m.Processed.IsZero() && m.InReplyTo == "" && m.Role != chat.RoleAssistant
}

// text describes a row.
func text(m *inbox.Message) string {
	return fmt.Sprintf("%s: %s %s>%s of %s, processed %s, deadline %s, expired %t, request %q, reply to %q, %s",
		m.ID, m.Role, m.From, m.To, clock(m.Created), clock(m.Processed), clock(m.Deadline), m.Expired, m.Request, m.InReplyTo, m.Content)
}

// clock returns a time in seconds after the beginning of the clock of tests.
func clock(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).String()
}
