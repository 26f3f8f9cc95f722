package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// ticket is a row of an inbox with functions of its own.
type ticket struct {
	ID, Text, Answer string
}

var tickets = dohost.Collection[ticket]{
	Name: "tickets",
	Key:  func(t ticket) string { return t.ID },
	Indexes: []dohost.Index[ticket]{{Name: "open", Of: func(t ticket) dohost.Key {
		if t.Answer != "" {
			return ""
		}
		return dohost.KeyOf(t.ID)
	}}},
}

// ticketInbox returns an inbox that answers each ticket with its text in upper case, after a second.
func ticketInbox() *inbox.Inbox[desk, ticket, string] {
	return &inbox.Inbox[desk, ticket, string]{
		Rows: &tickets, Pending: "open",
		Build: func(_ *desk, _ context.Context, pending []dohost.Row[ticket]) (list []chat.Message, err error) {
			for _, row := range pending {
				list = append(list, chat.Text(row.Key, chat.RoleUser, row.Value.Text))
			}
			return list, nil
		},
		Generate: func(_ *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
			var texts []string
			for _, m := range c.Messages {
				texts = append(texts, m.PlainText())
			}
			return strings.ToUpper(strings.Join(texts, " ")), dohost.Sleep(ctx, time.Second)
		},
		Respond: func(d *desk, ctx context.Context, r string, pending []dohost.Row[ticket]) error {
			for _, row := range pending {
				if _, err := tickets.Update(ctx, d.Storage(), row.Key, func(t *ticket) error { t.Answer = r; return nil }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// open opens tickets in one event.
func open(t *testing.T, ctx context.Context, h *dohosttest.Host, list ...ticket) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		var err error
		for _, v := range list {
			err = errors.Join(err, tickets.Put(ctx, d.Storage(), v))
		}
		return err
	})
}

// answers returns the answers of all tickets.
func answers(t *testing.T, ctx context.Context, h *dohosttest.Host) (list []string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		rows, err := tickets.List(ctx, d.Storage(), nil)
		for _, row := range rows {
			list = append(list, row.Key+":"+row.Value.Answer)
		}
		return err
	})
	return list
}

func TestInbox(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2", Text: "b"})
		h.Advance(2 * time.Second)
		open(t, ctx, h, ticket{ID: "3", Text: "c"})
		h.Advance(2 * time.Second)
		equal(t, "answers", answers(t, ctx, h), "1:A B", "2:A B", "3:C")
	}, inbox.On(ticketInbox()))
}

// TestInboxWithChangedRows changes, deletes and answers rows while the response to them is generated.
func TestInboxWithChangedRows(t *testing.T) {
	var cycles []string
	in := ticketInbox()
	generate := in.Generate
	in.Generate = func(d *desk, ctx context.Context, c *inbox.Cycle[ticket]) (string, error) {
		var texts []string
		for _, row := range c.Pending {
			texts = append(texts, row.Value.Text)
		}
		cycles = append(cycles, strings.Join(texts, " "))
		return generate(d, ctx, c)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2", Text: "b"}, ticket{ID: "3", Text: "c"}, ticket{ID: "4", Text: "d"})
		h.Advance(500 * time.Millisecond)
		open(t, ctx, h, ticket{ID: "1", Text: "changed"}, ticket{ID: "2", Text: "b", Answer: "by hand"})
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := tickets.Delete(ctx, d.Storage(), "3")
			return err
		})
		h.Advance(5 * time.Second)
		equal(t, "answers", answers(t, ctx, h), "1:CHANGED D", "2:by hand", "4:CHANGED D")
		equal(t, "cycles", cycles, "a b c d", "changed d")

		cycles = nil
		open(t, ctx, h, ticket{ID: "5", Text: "e"})
		h.Advance(500 * time.Millisecond)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := tickets.Delete(ctx, d.Storage(), "5")
			return err
		})
		h.Advance(5 * time.Second)
		equal(t, "cycles of a deleted row", cycles, "e")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			left, err := d.Rows().List(ctx, nil)
			if len(left) > 0 {
				t.Errorf("tasks are left: %+v", left)
			}
			return err
		})
	}, inbox.On(in))
}

// TestInboxRespondIsRolledBack has a Respond that fails after a write, one that gives up the turn, and one that leaves its rows.
func TestInboxRespondIsRolledBack(t *testing.T) {
	failures := []func(ctx context.Context) error{
		func(context.Context) error { return errors.New("no paper") },
		func(ctx context.Context) error { return dohost.Sleep(ctx, time.Second) },
		func(context.Context) error { return nil },
	}
	var errs []string
	in := ticketInbox()
	respond := in.Respond
	in.Respond = func(d *desk, ctx context.Context, r string, pending []dohost.Row[ticket]) error {
		n, _, err := dohost.Get[int](ctx, d.Storage(), "responses")
		if err = errors.Join(err, dohost.Put(ctx, d.Storage(), "responses", n+1)); err != nil {
			return err
		}
		if len(errs) < len(failures) {
			return failures[len(errs)](ctx)
		}
		return respond(d, ctx, r, pending)
	}
	in.OnError = func(_ *desk, _ context.Context, err error, _ []dohost.Row[ticket]) { errs = append(errs, err.Error()) }
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"})
		h.Advance(time.Minute)
		equal(t, "answers", answers(t, ctx, h), "1:A")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			if n, _, err := dohost.Get[int](ctx, d.Storage(), "responses"); n != 1 || err != nil {
				t.Errorf("%d responses, %v", n, err)
			}
			return nil
		})
		if len(errs) != 3 || !strings.Contains(errs[0], "respond: no paper") || !strings.Contains(errs[2], `the row "1" is still in the index "open"`) {
			t.Errorf("%q", errs)
		}
	}, inbox.On(in))
}

// TestInboxParksRows has a row that fails each time. It does not affect the others.
func TestInboxParksRows(t *testing.T) {
	in := ticketInbox()
	in.Group = func(v ticket) string { return v.ID }
	calls := 0
	build := in.Build
	in.Build = func(d *desk, ctx context.Context, pending []dohost.Row[ticket]) ([]chat.Message, error) {
		if pending[0].Key == "2" {
			calls++
			return nil, fmt.Errorf("the ticket %s has no text", pending[0].Key)
		}
		return build(d, ctx, pending)
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		open(t, ctx, h, ticket{ID: "1", Text: "a"}, ticket{ID: "2"}, ticket{ID: "3", Text: "c"})
		h.Advance(time.Hour)
		equal(t, "answers", answers(t, ctx, h), "1:A", "2:", "3:C")
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			parked, err := d.Rows().List(ctx, nil)
			if err == nil && (len(parked) != 1 || !slices.Equal(parked[0].Keys, []string{"2"}) || parked[0].Error != "inbox: build: the ticket 2 has no text") {
				t.Errorf("parked: %+v", parked)
			}
			return err
		})
		if calls != 5 {
			t.Errorf("%d calls for a row that fails", calls)
		}
	}, inbox.On(in))
}

func TestInboxMistakes(t *testing.T) {
	for want, change := range map[string]func(in *inbox.Inbox[desk, ticket, string]){
		`an Inbox without Rows`: func(in *inbox.Inbox[desk, ticket, string]) { in.Rows = nil },
		`the Inbox of the collection "tickets" names the index "closed" for its Pending`: func(in *inbox.Inbox[desk, ticket, string]) { in.Pending = "closed" },
		`has no Build`:              func(in *inbox.Inbox[desk, ticket, string]) { in.Build = nil },
		`has no Generate`:           func(in *inbox.Inbox[desk, ticket, string]) { in.Generate = nil },
		`has no Respond`:            func(in *inbox.Inbox[desk, ticket, string]) { in.Respond = nil },
		`has the option Parallel 2`: func(in *inbox.Inbox[desk, ticket, string]) { in.Options.Parallel = 2 },
		`the option Batch is 501`:   func(in *inbox.Inbox[desk, ticket, string]) { in.Options = agent.RowsOptions{Batch: 501} },
	} {
		in := ticketInbox()
		change(in)
		h, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On(in)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			h.Close()
		}
	}
	if _, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.On[desk, ticket, string](nil))); err == nil {
		t.Error("On without an Inbox")
	}
}
