package chat

import (
	"context"

	"github.com/dohost/dohost/agent"
)

// Handlers are the functions and the properties of a class of chat agents of type O with a state S. All fields but Reply
// are optional.
type Handlers[O, S any] struct {
	// Reply answers a request. It is called with the turn, and releases the turn while it waits for a model. If the
	// incarnation ends before Reply has returned, a later incarnation calls it again: see [Reply.Partial]. An error ends
	// the reply, keeps the chunks sent so far, and is reported to the clients. Nil is an error of [dohost.Open].
	Reply func(*O, context.Context, *Reply) error
	// OnRecovery decides whether and how an interrupted reply resumes. If it fails, the reply resumes.
	OnRecovery func(*O, context.Context, *InterruptedReply) (RecoveryAction, error)
	// OnResponse is called after a reply has ended; a request that ended before its reply began gets no call. If the
	// incarnation ends before OnResponse returns, a later incarnation calls it again, at most 5 times. The next request is
	// answered concurrently.
	OnResponse func(*O, context.Context, Response) error
	// OnAsked decides about a request of another agent (see [AgentTool]) before it is stored. An error refuses the request, and the
	// model of the other agent receives its text. The agent may call OnAsked more than once for a request: after an interruption, and
	// concurrently, at most four times, if it takes longer than a minute and the request comes from another host. The host does not
	// call Authorize for such requests.
	OnAsked func(*O, context.Context, Asked) error
	// OnCall is called when a tool call gets its first state and whenever the state changes: with CallRunning when a run begins, and
	// with CallCompleted and Output, or with another final state and Error, when the call ends. It is called in the transaction of
	// the change: its writes and the state are one commit, so a counter that it maintains is exact. It must not give up the turn, and
	// must not change the conversation: both fail with [dohost.ErrMisuse]. An error is reported, and rolls back only the writes of
	// OnCall; on a full disk the change waits. A kept late result leads to another call of OnCall with the state CallUnknown: see
	// Late of [Call]. A call that is deleted with its message gets no final state. The calls of a [Worker] have no states.
	OnCall func(*O, context.Context, Call) error
	// Sanitize transforms a message before it is stored. It runs after the built-in sanitizing: see docs/chat.md.
	Sanitize func(*O, Message) Message
	// Options tunes the conversations.
	Options Options
	// Agent has the handlers of any agent. The agent calls them for requests and frames outside of the conversation, and for fibers
	// other than replies.
	Agent agent.Handlers[O, S]
}
