package helpdesk

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/inbox"
)

// Desks is the namespace of Triage objects.
const Desks dohost.Namespace[Triage] = "triage"

// Triage assigns tickets to teams.
type Triage struct{ *agent.Agent[struct{}] }

// Ticket is a row. It waits in the inbox until it has a team.
type Ticket struct {
	ID, Text string
	Team     string
}

// Tickets are the tickets of a Triage, with those that have no team in the index "new".
var Tickets = dohost.Collection[Ticket]{
	Name: "tickets", Key: func(t Ticket) string { return t.ID },
	Indexes: []dohost.Index[Ticket]{{Name: "new", Of: func(t Ticket) dohost.Key {
		if t.Team != "" {
			return ""
		}
		return dohost.KeyOf(t.ID)
	}}},
}

// TriageClass returns the class of desks that assign tickets with a model. Each ticket has a cycle of its own.
func TriageClass(m chat.Model) dohost.Class {
	w := &chat.Worker[[]chat.Message, string]{Name: "triage", Instructions: "Name the team.", Model: m, Durable: true,
		Messages: func(in []chat.Message) []chat.Message { return in }}
	return agent.Bind(Desks,
		func(_ context.Context, a *agent.Agent[struct{}]) (*Triage, error) { return &Triage{a}, nil }, nil,
		inbox.On(&inbox.Inbox[Triage, Ticket, string]{
			Rows: &Tickets, Pending: "new", Group: func(t Ticket) string { return t.ID },
			Build: func(_ *Triage, _ context.Context, pending []dohost.Row[Ticket]) ([]chat.Message, error) {
				return []chat.Message{chat.Text(pending[0].Key, chat.RoleUser, pending[0].Value.Text)}, nil
			},
			Generate: func(d *Triage, ctx context.Context, c *inbox.Cycle[Ticket]) (string, error) {
				return w.Run(ctx, d, c.Messages)
			},
			Respond: func(d *Triage, ctx context.Context, team string, pending []dohost.Row[Ticket]) error {
				_, err := Tickets.Update(ctx, d.Storage(), pending[0].Key, func(t *Ticket) error { t.Team = team; return nil })
				return err
			},
		}))
}
