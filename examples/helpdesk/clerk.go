// Package helpdesk has agents whose inbox is a collection: a Clerk, which answers messages, a Triage, which answers rows
// of a type of its own, and a Room with two agents and a page for its visitors.
package helpdesk

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
	"github.com/dohost/dohost/ledger"
)

// Clerks is the namespace of Clerk objects.
const Clerks dohost.Namespace[Clerk] = "clerk"

// Clerk answers the messages to "clerk" in its collection.
type Clerk struct{ *agent.Agent[struct{}] }

// Messages are the messages and the responses of a Clerk.
var Messages = inbox.Messages("messages", nil)

// ClerkClass returns the class of clerks that answer with a model.
func ClerkClass(m chat.Model) dohost.Class {
	clerk := &inbox.Agent{Name: "clerk", Instructions: "Answer in one sentence.", Model: m}
	return agent.Bind(Clerks,
		func(_ context.Context, a *agent.Agent[struct{}]) (*Clerk, error) { return &Clerk{a}, nil },
		&agent.Handlers[Clerk, struct{}]{Extensions: []dohost.ClassExtension{ledger.Declare(clerk.Kinds()...)}},
		agent.Callable("send", (*Clerk).Send),
		inbox.On(inbox.ForMessages[Clerk](&Messages, clerk)))
}

// Send inserts a message of the user of this object. The clerk answers it in a later event: the response is a row, too.
func (c *Clerk) Send(ctx context.Context, text string) (inbox.Message, error) {
	return inbox.Send(ctx, c.Storage(), &Messages, inbox.Message{To: "clerk", From: "user", Content: text})
}
