package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/internal/agenttool"
	"github.com/dohost/dohost/ledger"
)

// An agent tool makes a call of one agent (the caller) a request of another one (the asked agent). Invariants:
//
//   - The id of the request is a function of the call's key. The key is random, and the row of the call has it before the
//     first run. So all runs and repetitions ask for the same request, and the asked agent accepts the first.
//   - The batch that hands the call over starts the fiber that sends the request. The fiber ends when the asked agent has stored
//     the request, or when the call has ended.
//   - The asked agent has the return address in one place: in the row of the open request; in a row of the message, while calls
//     of the message wait after the end of a reply; in the fiber that delivers the answer. Each move is one batch. So the end
//     of the reply and the intent to deliver its answer are one batch.
//   - The caller accepts the first completion of a call. So the delivery may be repeated.
//   - A message with a row that has an address is continued when its calls have ended, regardless of newer messages. So each
//     request gets an answer, even if the agent gets further requests while it waits.
//
// askprocedures.go has the messages between the agents.
//
// No event waits for the answer: not on the caller, whose reply has ended, nor on the asked agent, whose reply is a fiber.

// AgentToolOptions tunes [AgentTool] and [SubAgentTool]. A nil *AgentToolOptions, and the zero AgentToolOptions, mean the
// defaults.
type AgentToolOptions struct {
	// To returns the name of the agent that a call asks. It is called with the turn of the calling agent, and again if that
	// agent is interrupted. An error is the result of the call. Nil means the name of the calling agent; a sub-agent then gets
	// an error, since its name is not unique. For SubAgentTool nil means that each call gets its own sub-agent. AgentTool does
	// not ask objects with names that begin with "sub/", which are sub-agents.
	To func(ctx context.Context, input json.RawMessage) (name string, err error)
	// Parameters is the JSON schema of the input, an object. The message for the agent is the member "message", if that is a
	// string, or else the JSON of the input. Nil means an object with a message.
	Parameters json.RawMessage
	// Timeout bounds the time from the start of the call to the answer. After it the model receives an error, and the answer
	// is discarded. The agent continues its reply. Zero means 120 s; negative means no bound.
	Timeout time.Duration
	// Depth bounds the number of agents that ask each other in a chain, not counting the last. Zero means 5; more than 5,
	// and less than 0, are errors of [Answer].
	Depth int
	// Private hides the progress of the asked agent from the clients of the calling agent: see docs/delegation.md. They see the
	// call and its result.
	Private bool
}

// AgentTool returns a tool that lets a model ask another chat agent, on this host or, in a cluster, on another. The input is an
// object with a message, which becomes a user message at that agent. The result is an object with the text of its reply, as the
// response. A call is an [External] call: its reply ends, and continues with the answer. Each call is one request at the agent,
// even after interruptions of either side, and the caller waits without an event, a turn or a connection. If the agent's reply
// waits for its own calls, it answers when it has continued and ended, even if newer messages follow it.
//
// The result is an error if the agent fails, is stopped, or refuses the request (OnAsked of [Handlers]); if it has not
// answered after Timeout; if its class or its name does not exist; if it is already one of the agents that ask each other, or
// Depth of them ask each other. There is no automatic retry. A stop of the caller's reply cancels the request.
//
// [Answer] returns an error for options that are not valid. The fields of the returned Tool may be changed, except Run,
// Policy and External.
func AgentTool[O any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], name, description string, o *AgentToolOptions) Tool {
	return agentTool(name, description, o, func(_ context.Context, k *conversation, _ *Call, to string) (dohost.ID, error) {
		id := dohost.ID{Class: string(ns), Name: cmp.Or(to, k.base.Name())}
		switch {
		case to == "" && k.object().ID().Name != k.base.Name(): // the sub-agents of all users may have the same name
			return id, errors.New("the tool of a sub-agent needs the option To: its own name is not unique")
		case strings.HasPrefix(to, "sub/"):
			return id, fmt.Errorf("%.100q is the name of a sub-agent, which only its parent may ask (SubAgentTool)", to)
		}
		return id, id.Validate()
	})
}

// SubAgentTool is [AgentTool] for a sub-agent of the calling agent, whose class needs an [agent.Sub] entry for ns. A call
// creates the sub-agent unless it exists. The sub-agent is kept: see [agent.SubAgents.Delete].
func SubAgentTool[O any, P interface {
	*O
	Ref
}](ns dohost.Namespace[O], name, description string, o *AgentToolOptions) Tool {
	return agentTool(name, description, o, func(ctx context.Context, k *conversation, c *Call, to string) (dohost.ID, error) {
		stub, err := agent.SubAgent(ctx, k.base, ns, cmp.Or(to, agenttool.RequestID(c.Key)))
		if err != nil {
			return dohost.ID{}, err
		}
		return stub.ID(), nil
	})
}

// agentOf returns the agent that a call asks. to is the result of AgentToolOptions.To, or empty.
type agentOf func(ctx context.Context, k *conversation, c *Call, to string) (dohost.ID, error)

func agentTool(name, description string, o *AgentToolOptions, target agentOf) Tool {
	var own AgentToolOptions
	if o != nil {
		own = *o
	}
	own.Depth = cmp.Or(own.Depth, agenttool.MaxDepth)
	own.Timeout = agenttool.Timeout(own.Timeout) // 0, no limit, is the same for External
	if own.Parameters == nil {
		own.Parameters = agenttool.Parameters
	}
	t := NewTool(name, description, func(context.Context, json.RawMessage) (any, error) { return nil, nil }, &ToolOptions[json.RawMessage, any]{
		Policy: ledger.PolicyIdempotent, External: &External{Within: own.Timeout}, Parameters: own.Parameters,
	})
	if own.Depth < 0 || own.Depth > agenttool.MaxDepth {
		t.err = fmt.Errorf("the Depth is %d: want 1 to %d, or 0 for the default", own.Depth, agenttool.MaxDepth)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (any, error) {
		of, ok := ctx.Value(callContextKey{}).(callContext)
		if !ok || of.l == nil {
			return nil, ledger.NoEffect(errors.New("the Run of an agent tool is for calls of Answer"))
		}
		to := ""
		if own.To != nil {
			var err error
			if to, err = own.To(ctx, input); err == nil && to == "" {
				err = errors.New("the function To returned no name")
			}
			if err != nil {
				return nil, ledger.NoEffect(err)
			}
		}
		return nil, of.l.ask(ctx, &of.call, &ask{
			target: target, to: to, text: agenttool.Message(input), depth: own.Depth, within: own.Timeout, hidden: own.Private,
		})
	}
	return t
}

// Asked is the origin of a request that a call of another agent made: see [AgentTool].
type Asked struct {
	Request  string      // id of the request
	From     dohost.ID   // the agent that asks
	Path     []dohost.ID // the agents that ask each other, from the first to From
	Deadline time.Time   // the end of the wait of From; zero if there is none
}

// Asked returns the origin of the request. ok is false unless another agent asked, with an [AgentTool].
func (r *Reply) Asked() (a Asked, ok bool) {
	from := r.l.row.Asked
	if from == nil {
		return a, false
	}
	return from.public(), true
}
