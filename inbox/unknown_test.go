package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// names returns the entries of agents with these names over the messages.
func names(list ...string) (entries []agent.Entry[desk]) {
	for _, name := range list {
		entries = append(entries, inbox.On(inbox.ForMessages[desk](&messages, &inbox.Agent{Name: name, Model: &answerModel{}})))
	}
	return entries
}

// unknownReports records the reports of unknown names.
type unknownReports struct {
	mu   sync.Mutex
	list []string
}

func (r *unknownReports) options(classes ...dohost.Class) *dohosttest.Options {
	return &dohosttest.Options{Classes: classes, Options: dohost.Options{Listener: dohost.Listener{
		Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			if event == "inbox:unknown" {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.list = append(r.list, fmt.Sprint(attrs))
			}
		},
	}}}
}

// took returns the reports so far, and forgets them.
func (r *unknownReports) took() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, r.list = r.list, nil
	return list
}

// unknownTargets returns all messages of Unknown, from pages of two.
func unknownTargets(ctx context.Context, d *desk) (list []string, err error) {
	for after := dohost.Cursor(""); ; {
		page, err := inbox.Unknown(ctx, d.Storage(), after, 2)
		for _, u := range page {
			list, after = append(list, fmt.Sprintf("%s %s to %.10s", u.Collection, u.Key, u.To)), u.Cursor
		}
		if err != nil || len(page) < 2 {
			return list, err
		}
	}
}

// wantUnknown compares the messages of Unknown.
func wantUnknown(t *testing.T, ctx context.Context, h *dohosttest.Host, want ...string) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		list, err := unknownTargets(ctx, d)
		equal(t, "unknown", list, want...)
		return err
	})
}

// update changes a message.
func update(t *testing.T, ctx context.Context, h *dohosttest.Host, key string, change func(*inbox.Message)) {
	t.Helper()
	inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
		_, err := messages.Update(ctx, d.Storage(), key, func(m *inbox.Message) error { change(m); return nil })
		return err
	})
}

// A message to a name that no agent has is recorded and reported once, until it does not wait for that name any more. Messages to the two agents
// are not.
func TestUnknownTarget(t *testing.T) {
	var reports unknownReports
	long := strings.Repeat("x", 1000)
	dohosttest.Run(t, reports.options(deskClass(names("clerk", "cook")...)), func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		send(t, ctx, h, inbox.Message{ID: "1", To: "bob"}, inbox.Message{ID: "2", To: "cook"}, inbox.Message{ID: "3", To: long},
			inbox.Message{ID: "4", To: "bob"}, inbox.Message{ID: "5", To: "clerk"}, inbox.Message{ID: "6", To: "bob"}, inbox.Message{ID: "7", To: "clerks"})
		wantUnknown(t, ctx, h, "messages 1 to bob", "messages 4 to bob", "messages 6 to bob", "messages 7 to clerks", "messages 3 to xxxxxxxxxx")
		h.Advance(3 * time.Second)
		equal(t, "reports", reports.took(), "[collection=messages row=1 name=bob]", "[collection=messages row=3 name="+long[:256]+"]",
			"[collection=messages row=4 name=bob]", "[collection=messages row=6 name=bob]", "[collection=messages row=7 name=clerks]")
		if n := waiting(t, ctx, h); n != 5 {
			t.Errorf("%d messages wait", n)
		}
		update(t, ctx, h, "1", func(m *inbox.Message) { m.Content = "again" })
		h.EvictAll()
		update(t, ctx, h, "4", func(m *inbox.Message) { m.Content = "again" })
		equal(t, "reports of changes", reports.took())

		update(t, ctx, h, "1", func(m *inbox.Message) { m.To = "clerk" })
		update(t, ctx, h, "3", func(m *inbox.Message) { m.Processed = time.Now() })
		update(t, ctx, h, "4", func(m *inbox.Message) { m.To = "eve" })
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := messages.Delete(ctx, d.Storage(), "7")
			return err
		})
		wantUnknown(t, ctx, h, "messages 6 to bob", "messages 4 to eve")
		h.Advance(3 * time.Second)
		equal(t, "reports of changes", reports.took(), "[collection=messages row=4 name=eve]")
		if n := waiting(t, ctx, h); n != 2 {
			t.Errorf("%d messages wait", n)
		}
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return d.Storage().DeleteAll(ctx) })
		wantUnknown(t, ctx, h)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := inbox.Unknown(ctx, d.Storage(), "", 101)
			if !errors.Is(err, dohost.ErrMisuse) {
				t.Error(err)
			}
			return nil
		})
	})
}

// A write that is rolled back leaves neither a record nor a report.
func TestUnknownTargetRolledBack(t *testing.T) {
	var reports unknownReports
	dohosttest.Run(t, reports.options(deskClass(names("clerk")...)), func(t *testing.T, h *dohosttest.Host) {
		send(t, t.Context(), h, inbox.Message{ID: "1", To: "bob"})
		reports.took()
		refused := errors.New("refused")
		inDesk(t, t.Context(), h, func(ctx context.Context, d *desk) error {
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				_, err := messages.Delete(ctx, d.Storage(), "1")
				_, err2 := inbox.Send(ctx, d.Storage(), &messages, inbox.Message{ID: "2", To: "eve"})
				return errors.Join(err, err2, refused)
			})
			if !errors.Is(err, refused) {
				return err
			}
			return nil
		})
		wantUnknown(t, t.Context(), h, "messages 1 to bob")
		equal(t, "reports", reports.took())
	})
}

// When the class gets an agent of the name, the agent answers the message, and the record is deleted. When another program answers
// messages to the name, the record is deleted alone.
func TestUnknownTargetBecomesKnown(t *testing.T) {
	person := inbox.Elsewhere[desk](func(name string) bool { return strings.HasPrefix(name, "person-") })
	var reports unknownReports
	dohosttest.Run(t, reports.options(deskClass(names("clerk")...)), func(t *testing.T, h *dohosttest.Host) {
		ctx := t.Context()
		list := []inbox.Message{{ID: "1", To: "bob"}, {ID: "2", To: "person-1"}, {ID: "3", To: "bob"}, {ID: "4", To: "person-2"}, {ID: "5", To: "eve"}}
		send(t, ctx, h, list...)
		reports.took()
		if err := h.Restart(deskClass(append(names("clerk", "bob"), person)...)); err != nil {
			t.Fatal(err)
		}
		wantUnknown(t, ctx, h, "messages 5 to eve")
		h.Advance(3 * time.Second)
		if n := waiting(t, ctx, h); n != 3 {
			t.Errorf("%d messages wait, want those to eve and to persons", n)
		}
		send(t, ctx, h, inbox.Message{ID: "6", To: "person-3"}, inbox.Message{ID: "7", To: "persons"})
		wantUnknown(t, ctx, h, "messages 5 to eve", "messages 7 to persons")
		equal(t, "reports", reports.took(), "[collection=messages row=7 name=persons]")
	})
	if _, err := dohost.Open(t.TempDir(), nil, deskClass(inbox.Elsewhere[desk](nil))); err == nil || !strings.Contains(err.Error(), "Elsewhere") {
		t.Error(err)
	}
}

// More messages wait for a name than a wake deletes records of. When the class gets an agent of the name, WaitReply waits for its response to each.
func TestUnknownTargetsThatBecomeKnown(t *testing.T) {
	var reports unknownReports
	dohosttest.Run(t, reports.options(deskClass(names("clerk")...)), func(t *testing.T, h *dohosttest.Host) {
		last := inbox.Message{ID: "z", From: "ada", To: "bob", Request: "r1"}
		list := []inbox.Message{last}
		for i := range 1000 {
			list = append(list, inbox.Message{ID: fmt.Sprintf("m%03d", i), To: "bob"})
		}
		send(t, t.Context(), h, list...)
		if _, err := waitReply(t.Context(), h, last); !errors.Is(err, inbox.ErrNoReply) {
			t.Errorf("before there is an agent: %v", err)
		}
		if err := h.Restart(deskClass(names("clerk", "bob")...)); err != nil {
			t.Fatal(err)
		}
		if m, err := waitReply(t.Context(), h, last); m.InReplyTo != "r1" || err != nil {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// An inbox with functions of its own, over the same collection, takes the messages to its names.
func TestUnknownTargetOfOtherInbox(t *testing.T) {
	in := inbox.ForMessages[desk](&messages, &inbox.Agent{Name: "clerk", Model: &answerModel{}})
	own := &inbox.Inbox[desk, inbox.Message, inbox.Response]{
		Rows: &messages, Pending: "pending", Build: in.Build, Generate: in.Generate, Respond: in.Respond,
		Options: agent.RowsOptions{Prefix: dohost.KeyOf("bob")},
	}
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, inbox.Message{ID: "1", To: "bob"}, inbox.Message{ID: "2", To: "clerk"}, inbox.Message{ID: "3", To: "eve"})
		wantUnknown(t, ctx, h, "messages 3 to eve")
	}, inbox.On(own), inbox.On(in))
}

// Operators see the records: all of them in pages, and the first hundred among the other items of the object.
func TestUnknownTargetForOperators(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		var list []inbox.Message
		for i := range 102 {
			list = append(list, inbox.Message{ID: fmt.Sprintf("m%03d", i), To: "bob"})
		}
		send(t, ctx, h, list...)
		id := dohost.ID{Class: string(desks), Name: "a"}
		count := func(q *dohost.DetailQuery) (n int, last dohost.Resource) {
			for r, err := range h.Host().FindDetails(ctx, id, q) {
				if err != nil {
					t.Fatal(err)
				}
				if r.Kind == "inbox-unknown" {
					n, last = n+1, r
				}
			}
			return n, last
		}
		if n, _ := count(nil); n != 100 {
			t.Errorf("%d records among the items", n)
		}
		n, last := count(&dohost.DetailQuery{Kind: "inbox-unknown"})
		if n != 102 || last.ID != "messages/m101" || last.State != "waiting" || last.Fields["name"] != "bob" || !strings.Contains(last.Text, `"bob"`) {
			t.Errorf("%d records, the last is %+v", n, last)
		}
		_, first := count(&dohost.DetailQuery{Kind: "inbox-unknown", ID: "messages/m099"})
		if n, _ := count(&dohost.DetailQuery{Kind: "inbox-unknown", After: first.Cursor}); n != 2 {
			t.Errorf("%d records after the hundredth", n)
		}
		if n, _ := count(&dohost.DetailQuery{Kind: "fiber"}); n != 0 {
			t.Errorf("%d records among the fibers", n)
		}
		for _, err := range h.Host().FindDetails(ctx, id, &dohost.DetailQuery{Kind: "inbox-unknown", After: "?"}) {
			if argument := (*dohost.ArgumentError)(nil); !errors.As(err, &argument) {
				t.Errorf("a wrong cursor: %v", err)
			}
		}
	}, names("clerk")...)
}

// A write of a message to a known name uses no storage for the records: without an object, each use would panic.
func TestUnknownTargetCostsNothingForKnownNames(t *testing.T) {
	hook := inbox.UnknownHook(&messages, "clerk", "cook")
	var seen []string
	counted := agent.Extend(agent.Extension[desk]{RowWritten: func(ctx context.Context, _ agent.Handle, w *dohost.RowWrite) error {
		if w.Collection == messages.Name {
			seen = append(seen, fmt.Sprintf("%.1s", w.Key))
		}
		return hook(ctx, nil, w)
	}})
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		send(t, ctx, h, append(fromAda("1"), inbox.Message{ID: "2", To: "cook"})...)
		update(t, ctx, h, "1", func(m *inbox.Message) { m.Content = "again" })
		h.Advance(5 * time.Second)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error {
			_, err := messages.Delete(ctx, d.Storage(), "1")
			return err
		})
		slices.Sort(seen)
		equal(t, "writes", seen, "1", "1", "1", "1", "2", "2", "m", "m")
	}, append(names("clerk", "cook"), counted)...)
}
