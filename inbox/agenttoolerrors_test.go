package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/inbox"
)

// TestAgentToolWithForgedPath inserts a request with a path that no agent tool makes. Its agent asks no other one, and its model gets a
// short error.
func TestAgentToolWithForgedPath(t *testing.T) {
	for name, path := range map[string][]inbox.Address{
		"many addresses": make([]inbox.Address, 20_000),
		"long addresses": slices.Repeat([]inbox.Address{{Object: strings.Repeat("x", 100_000)}}, 6),
	} {
		t.Run(name, func(t *testing.T) {
			runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				m := inbox.Message{
					ID: "1", From: "ada", To: "a", Role: chat.RoleUser, Content: "b: hi", Request: "r1", Created: time.Now(), Path: path,
				}
				inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return messages.Insert(ctx, d.Storage(), m) })
				h.Advance(10 * time.Second)
				got := replyTo(t, ctx, h, "a", "r1")
				want := fmt.Sprintf("a heard (no agent was asked: %d agents would ask each other, the limit is 5: ", len(path)+1)
				if !strings.HasPrefix(got, want) || len(got) > 15_000 {
					t.Errorf("%d bytes: %.200q", len(got), got)
				}
			}, team(nil, "a", "b")...)
		})
	}
}

// TestAgentToolHidesErrors asks an agent whose constructor fails or panics with a text that no model may get. The host reports it once.
func TestAgentToolHidesErrors(t *testing.T) {
	const secret = "password hunter2"
	for name, c := range map[string]struct {
		fails   func(run int) error // panics or returns an error
		want    string
		reports int64
	}{
		"an error of some constructors": {func(run int) error {
			if run > 2 {
				return nil
			}
			return errors.New(secret)
		}, "a heard (researcher says hi)", 1},
		"an error of all constructors": {func(int) error { return errors.New(secret) }, "did not answer within 30s", 1},
		"a panic of all constructors":  {func(int) error { panic(secret) }, "did not answer within 30s", 1},
		"an error that is a public one": {func(int) error { return &dohost.PublicError{Message: "closed", Err: dohost.ErrNotFound} },
			": closed)", 0},
		"a mistake":      {func(int) error { return fmt.Errorf("%s: %w", secret, dohost.ErrMisuse) }, ": internal error)", 1},
		"no such object": {func(int) error { return fmt.Errorf("%s: %w", secret, dohost.ErrNotFound) }, ": there is no such object)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			const labs dohost.Namespace[lab] = "lab"
			samples := inbox.Messages("samples", nil)
			researcher := &inbox.Agent{Name: "researcher", Model: &relay{name: "researcher"}}
			construct := func(_ context.Context, a *agent.Agent[struct{}]) (*lab, error) { runs++; return &lab{a}, c.fails(runs) }
			labClass := agent.Bind(labs, construct, nil, inbox.On(inbox.ForMessages[lab](&samples, researcher)))
			tool := researcher.Tool(&samples)
			tool.Timeout = 30 * time.Second
			tool.To = func(_ context.Context, by inbox.Ref, _ json.RawMessage) (dohost.ID, error) {
				return labs.Get(by.Object(), "north").ID(), nil
			}
			a := &inbox.Agent{Name: "a", Model: &relay{name: "a"}, Agents: []inbox.AgentTool{tool}}
			var reports atomic.Int64
			o := &dohosttest.Options{Classes: []dohost.Class{labClass, deskClass(inbox.On(inbox.ForMessages[desk](&messages, a)))}}
			o.Options.Listener.Service = func(id dohost.ID, event string, attrs ...slog.Attr) {
				if event == "inbox:error" && id.Name == "a" && strings.Contains(fmt.Sprint(attrs), "lab/north") {
					reports.Add(1)
				}
			}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				askA(t, t.Context(), h, "researcher: hi")
				h.Advance(time.Minute)
				got := replyTo(t, t.Context(), h, "a", "r1")
				if !strings.Contains(got, c.want) || strings.Contains(got, secret) {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
			if n := reports.Load(); n != c.reports {
				t.Errorf("%d reports, want %d", n, c.reports)
			}
		})
	}
}

// TestAgentToolWithLargeMessage has a model that asks with more than 1 MiB.
func TestAgentToolWithLargeMessage(t *testing.T) {
	runDesk(t, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		m := inbox.Message{ID: "1", From: "ada", To: "a", Role: chat.RoleUser, Request: "r1", Created: time.Now()}
		m.Content = "b: " + strings.Repeat("x", 1<<20+1)
		inDesk(t, ctx, h, func(ctx context.Context, d *desk) error { return messages.Insert(ctx, d.Storage(), m) })
		h.Advance(10 * time.Second)
		want := "a heard (the agent b of desk/a was not asked: the message has 1048577 bytes, the limit is 1048576)"
		if got := replyTo(t, ctx, h, "a", "r1"); got != want {
			t.Errorf("%.200q, want %q", got, want)
		}
	}, team(nil, "a", "b")...)
}
