package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/agenttool"
	"github.com/dohost/dohost/ledger"
)

// An agent tool makes a call of one agent (the caller) a request of another one (the asked agent): a message. Invariants:
//
//   - The key of the message and its request id are a function of the key of the call, which all repetitions of the caller's cycle
//     have. So a repetition finds the message of the first run, and inserts none.
//   - The path is in the message: the agents that wait for each other, from the first to the caller. The asked agent appends itself
//     when it asks in turn. So the path outlives all incarnations, and an agent that is in it is never asked.
//   - The time of the message begins the time limit, and a response counts if its own time is within the limit. So a
//     repetition gets the result of the first run, also after the limit: the response, or the error.
//   - The end of the time limit is the deadline of the message, so the asked agent does not answer when the caller has an error.
//   - The response is stored as processed, with the request id in InReplyTo: it is never work, neither of the caller nor of another agent.
//
// The order in a call: the path is checked; the message is inserted, or found; without an outcome the cycle ends as postponed. See awaitedRow for the
// wake-up. If the tool has no Messages, the cycle itself waits, without the turn.

// searchTime is the least time for the search for a response. A repetition may begin after the time limit, and the response may be
// older.
const searchTime = 5 * time.Second

// AgentTool lets the model of an [Agent] ask another agent, as a tool with an input of its choice: see Agent.Agents. [Agent.Tool]
// returns one with the fields Name, Description and Messages.
//
// A call of the tool inserts a message of a user with a request id, from the calling agent to the asked one. The cycle of the caller then ends, and is
// repeated when there is a response: that counts as no attempt, and the caller answers other messages until then. The result is an object with the text,
// as the response. Each call is one message, also after interruptions of either side: a repeated cycle finds the message of the first one.
//
// The model gets an error if the asked agent has not answered in time; if its message was parked or deleted, or no agent of
// the class has that name; or if the asked agent is already waiting in this chain of requests, or Depth agents are. There is no
// automatic retry of a request. An object that cannot be called, for example because its constructor fails, is called again until the
// end of the time limit. The model gets the text of a [dohost.PublicError]; other errors of the object, and of Insert and Wait, are
// reported as "inbox:error", and the model gets "internal error".
type AgentTool struct {
	// Name is the name of the tool and of the asked agent: the To of its messages. Required.
	Name string
	// Description is for the model.
	Description string
	// Messages is the collection of the asked agent's messages. Required, unless Insert and Wait are set.
	Messages *dohost.Collection[Message]
	// To returns the object of the asked agent. It is called with the turn of the calling agent, and again in a repeated cycle. An error is
	// the result of the call. Nil means the object of the calling agent.
	To func(ctx context.Context, by Ref, input json.RawMessage) (dohost.ID, error)
	// Insert and Wait are for asked agents without Messages, such as an [Inbox] with rows of another type, or an agent of another
	// program. Both are called with the turn of the calling agent, and again in a repeated cycle. Such an agent may have the name of a
	// waiting agent. So a cycle of requests through it is detected only when it reaches Depth, and only if Insert stores the Path.
	//
	// Insert inserts the request unless one with its ID is stored, and returns the stored one. Its Created begins the time limit. An agent that
	// observes the Deadline does not answer in vain; the clock of the calling agent's host sets it.
	Insert func(ctx context.Context, by Ref, m Message) (stored Message, err error)
	// Wait returns the response, which has a Content. It must give up the turn while it waits, and end with ctx. A response without a
	// Created counts, however late.
	Wait func(ctx context.Context, by Ref, asked Message) (Message, error)
	// Parameters is the JSON schema of the input, an object. The content of the message is the member "message", if that is a
	// string, or else the JSON of the input. Nil means an object with a message.
	Parameters json.RawMessage
	// Timeout bounds the time from the message to the response. After it the model receives an error, and the asked agent does not answer any
	// more: the end of the time is the Deadline of the message, unless the request that the caller answers has an earlier one. A response that
	// Wait returns is discarded if it is later. Zero means 120 s; negative means no bound.
	Timeout time.Duration
	// Depth bounds the number of agents that wait for each other, without the last one. Zero means 5, the most.
	Depth int
}

// Tool returns the agent as a tool of other agents in its object. messages is the collection of its messages. Set To if the others are in
// another object.
func (a *Agent) Tool(messages *dohost.Collection[Message]) AgentTool {
	return AgentTool{Name: a.Name, Description: a.Description, Messages: messages}
}

// Address is an agent of an object.
type Address struct {
	Object string `json:"object"` // the [dohost.ID], as a string
	Agent  string `json:"agent"`
}

// String returns the address for a reader.
func (a Address) String() string { return a.Agent + " of " + a.Object }

// check returns the errors in the description.
func (t *AgentTool) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("the agent tool %.64q "+format, append([]any{t.Name}, args...)...))
	}
	switch {
	case t.Messages != nil && (t.Insert != nil || t.Wait != nil):
		wrong("has Messages and one of Insert and Wait: want Messages alone, or the two others")
	case t.Messages != nil:
		if missing := missingIndex(t.Messages); missing != "" {
			wrong("has the collection %q, which has no index %q: want one that Messages returned", t.Messages.Name, missing)
		}
	case t.Insert == nil && t.Wait == nil:
		wrong("needs Messages, the collection of the asked agent, or else Insert, which inserts the request, and Wait, which waits for the response")
	case t.Insert == nil:
		wrong("needs Insert, which inserts the request, since it has no Messages")
	case t.Wait == nil:
		wrong("needs Wait, which waits for the response, since it has no Messages")
	}
	if t.Name == "" {
		wrong("needs a Name")
	}
	if t.Depth < 0 || t.Depth > agenttool.MaxDepth {
		wrong("has the Depth %d: want 1 to %d, or 0 for the default", t.Depth, agenttool.MaxDepth)
	}
	return errors.Join(errs...)
}

// checkKeep returns an error for an agent whose records may end while it waits for another agent.
func (a *Agent) checkKeep() error {
	for i := range a.Agents {
		t := &a.Agents[i]
		if limit := agenttool.Timeout(t.Timeout); a.Keep > 0 && (limit == 0 || limit >= a.Keep) {
			return fmt.Errorf("the field Keep is %v, and the agent tool %.64q may wait as long or longer: want a longer Keep, or zero for no limit", a.Keep, t.Name)
		}
	}
	return nil
}

// tool returns the tool for a worker.
func (t *AgentTool) tool() chat.Tool {
	parameters := t.Parameters
	if parameters == nil {
		parameters = agenttool.Parameters
	}
	tool := chat.NewTool(t.Name, t.Description, t.call, &chat.ToolOptions[json.RawMessage, agenttool.Output]{
		Parameters: parameters, Policy: ledger.PolicyIdempotent, Timeout: -1,
	})
	tool.Unrecorded = true
	return tool
}

// requesterKey is the context key of the requester.
type requesterKey struct{}

// requester is the agent whose cycle runs.
type requester struct {
	ref  Ref
	name string
	path []Address // the agents that wait for each other, from the first to this one
	// deadline is the cycle's deadline. The requests of the agent have no later one.
	deadline time.Time
	call     string // of the rows of the cycle: see agent.Rows.CallID
	place    string // of the cycle
	// The collection of the cycle, and its first message.
	collection, message string
	until               time.Time // the time of the next poll for an outcome, or of the next check of a budget; zero if the cycle waits for none. Owned by the holder of the turn
}

// waiter returns the cycle, for the wake-up.
func (by *requester) waiter() waiter { return waiter{by.ref.Object().ID(), by.call} }

// newRequester returns the agent whose cycle has the pending messages. All messages of a request have the same path,
// unless the program has inserted one with another path: then the longest path counts.
func newRequester(ctx context.Context, of Ref, name, collection string, pending []dohost.Row[Message]) *requester {
	var path []Address
	for _, row := range pending {
		if m := row.Value; m.Request != "" && len(m.Path) > len(path) {
			path = m.Path
		}
	}
	path = append(slices.Clone(path), Address{of.Object().ID().String(), name})
	return &requester{
		ref: of, name: name, path: path, deadline: cycleDeadline(pending), call: of.Rows().CallID(ctx), place: placeOf(ctx),
		collection: collection, message: pending[0].Key,
	}
}

// mayAsk returns an error if the agent must not ask another one. An asked agent without Messages may have the address of another agent,
// which waits for nothing.
func (by *requester) mayAsk(t *AgentTool, to Address) error {
	if err := agenttool.CheckDepth(by.path, cmp.Or(t.Depth, agenttool.MaxDepth)); err != nil || t.Messages == nil {
		return err
	}
	return agenttool.CheckCycle(by.path, to)
}

// call is the function of the tool.
func (t *AgentTool) call(ctx context.Context, input json.RawMessage) (out agenttool.Output, err error) {
	by := ctx.Value(requesterKey{}).(*requester)
	call, _ := chat.CallFrom(ctx)
	object := by.ref.Object().ID()
	if t.To != nil {
		if object, err = t.To(ctx, by.ref, input); err == nil {
			err = object.Validate()
		}
		if err != nil {
			return out, err
		}
	}
	to := Address{object.String(), t.Name}
	if err := by.mayAsk(t, to); err != nil {
		return out, err
	}
	id := agenttool.RequestID(call.Key)
	now := time.Now()
	m := Message{
		ID: id, Role: chat.RoleUser, Content: agenttool.Message(input), From: by.name, To: t.Name, Created: now, Request: id, Path: by.path,
		Deadline: t.deadline(by, now),
	}
	if n := len(m.Content); t.Messages != nil && n > maxContent {
		return out, fmt.Errorf("the agent %v was not asked: the message has %d bytes, the limit is %d", to, n, maxContent)
	}
	r, err := t.ask(ctx, by, object, m)
	_, later := errors.AsType[*agent.PostponeError](err)
	switch {
	case later:
		return out, err
	case errors.Is(err, errLate):
		return out, fmt.Errorf("the agent %v did not answer within %v; its request %s may still have effects", to, agenttool.Timeout(t.Timeout), id)
	case err != nil:
		return out, fmt.Errorf("the agent %v has not answered the request %s: %s", to, id, failureText(ctx, by.ref, object, err))
	}
	return agenttool.Output{Response: r.Content}, nil
}

// deadline returns the deadline of a request of a given time. It is at most the deadline of the asking cycle.
func (t *AgentTool) deadline(by *requester, created time.Time) time.Time {
	limit := agenttool.Timeout(t.Timeout)
	if limit == 0 {
		return by.deadline
	}
	return earlier(created.Add(limit), by.deadline)
}
