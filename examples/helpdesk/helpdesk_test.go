package helpdesk_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/examples/helpdesk"
	"github.com/dohost/dohost/inbox"
)

// model answers after a second with a function of the last message.
type model func(text string) string

func (m model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		select {
		case <-time.After(time.Second):
			yield(chat.TextDelta("t", m(p.Messages[len(p.Messages)-1].PlainText())), nil)
		case <-ctx.Done():
			yield(chat.Chunk{}, context.Cause(ctx))
		}
	}
}

// TestClerk kills the host while the model answers. The message is answered once, without another call of a client.
func TestClerk(t *testing.T) {
	class := helpdesk.ClerkClass(model(strings.ToUpper))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		send := func(ctx context.Context, c *helpdesk.Clerk) error {
			_, err := c.Send(ctx, "hello")
			return err
		}
		if err := helpdesk.Clerks.Get(h, "eu").Do(t.Context(), send); err != nil {
			t.Fatal(err)
		}
		h.Advance(500 * time.Millisecond)
		h.Kill()
		h.Advance(time.Minute)
		err := helpdesk.Clerks.Get(h, "eu").Do(t.Context(), func(ctx context.Context, c *helpdesk.Clerk) error {
			rows, err := helpdesk.Messages.List(ctx, c.Storage(), &dohost.Query[inbox.Message]{Index: "conversation", Prefix: dohost.KeyOf("clerk")})
			if err == nil && (len(rows) != 2 || rows[1].Value.Content != "HELLO" || rows[1].Value.To != "user") {
				t.Errorf("%+v", rows)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestTriage(t *testing.T) {
	class := helpdesk.TriageClass(model(func(text string) string { return strings.Fields(text)[0] }))
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		do := func(fn func(ctx context.Context, d *helpdesk.Triage) error) {
			if err := helpdesk.Desks.Get(h, "eu").Do(t.Context(), fn); err != nil {
				t.Error(err)
			}
		}
		do(func(ctx context.Context, d *helpdesk.Triage) error {
			for _, v := range []helpdesk.Ticket{{ID: "1", Text: "billing is wrong"}, {ID: "2", Text: "network is down"}} {
				if err := helpdesk.Tickets.Insert(ctx, d.Storage(), v); err != nil {
					return err
				}
			}
			return nil
		})
		h.Advance(5 * time.Second)
		do(func(ctx context.Context, d *helpdesk.Triage) error {
			rows, err := helpdesk.Tickets.List(ctx, d.Storage(), nil)
			if err == nil && (len(rows) != 2 || rows[0].Value.Team != "billing" || rows[1].Value.Team != "network") {
				t.Errorf("%+v", rows)
			}
			return err
		})
	})
}
