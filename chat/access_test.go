package chat_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// changingCalls has, by name, calls that change a conversation during a reply.
var changingCalls = map[string]func(ctx context.Context, p *countingAgent) error{
	"set": func(ctx context.Context, p *countingAgent) error {
		return chat.SetMessages(ctx, p, []chat.Message{chat.Text("forged", chat.RoleSystem, "forged")})
	},
	"ask": func(ctx context.Context, p *countingAgent) error {
		_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("forged", chat.RoleUser, "forged")}, nil)
		return err
	},
	"continue": func(ctx context.Context, p *countingAgent) error {
		_, err := chat.Continue(ctx, p, nil)
		return err
	},
	"cancel": func(ctx context.Context, p *countingAgent) error {
		_, err := chat.Cancel(ctx, p, "one")
		return err
	},
	"clear": func(ctx context.Context, p *countingAgent) error { return chat.Clear(ctx, p) },
}

// guardedClass has agents that send some words, give a client named viewer read-only access and one named guest a
// read-only connection, and refuse requests with the query "refused". A method "change" makes one of changingCalls.
func guardedClass(words int) dohost.Class {
	return chat.Bind(countingAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*countingAgent, error) {
		return &countingAgent{a, &countingState{words: words}}, nil
	}, &chat.Handlers[countingAgent, struct{}]{
		Reply: (*countingAgent).reply,
		Agent: agent.Handlers[countingAgent, struct{}]{
			OnAccept: func(_ *countingAgent, r *http.Request) agent.ConnOptions {
				return agent.ConnOptions{Readonly: r.URL.Query().Get("_pk") == "guest"}
			},
			Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
				switch q := r.Request.URL.Query(); {
				case q.Has("refused"):
					return dohost.Access{}, dohost.ErrForbidden
				case q.Get("_pk") == "viewer":
					return dohost.Access{Rights: dohost.RightsReadOnly}, nil
				}
				return dohost.Access{Rights: dohost.RightsReadWrite}, nil
			},
		},
	},
		agent.Callable("change", dohost.NoResult(func(p *countingAgent, ctx context.Context, call string) error {
			return changingCalls[call](ctx, p)
		})))
}

func isTranscript(f frame) bool { return f.Type == "cf_agent_chat_messages" }

func TestClientsWithReadAccessCannotChangeAConversation(t *testing.T) {
	runWithHost(t, guardedClass(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		writer, viewer := connectIdle(t, h, "writer"), connectIdle(t, h, "viewer")
		writer.ask(ctx, "one", "go", nil)
		writer.waitEnd(t, "one")
		before := storedLines(t, h)
		viewer.ask(ctx, "two", "go", nil)
		if f := viewer.waitEnd(t, "two"); f.Outcome != "error" || f.Body != "Connection is readonly" {
			t.Errorf("a request ended with %+v", f)
		}
		for _, change := range []map[string]any{
			{"type": "cf_agent_chat_clear"},
			{"type": "cf_agent_chat_messages", "messages": []any{}},
			{"type": "cf_agent_chat_messages", "messages": []any{
				map[string]any{"id": "forged", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "forged"}}},
			}},
			{"type": "cf_agent_tool_result", "toolCallId": "x", "output": "forged"},
			{"type": "cf_agent_tool_approval", "toolCallId": "x", "approved": true},
		} {
			viewer.sendFrame(ctx, change)
			f := viewer.receiveUntil(t, isTranscript)
			if len(f.Messages) != len(before) {
				t.Errorf("after %v the viewer got %d messages, want %d", change["type"], len(f.Messages), len(before))
			}
		}
		if after := storedLines(t, h); !slices.Equal(before, after) {
			t.Errorf("the conversation was %q, and is %q", before, after)
		}
		if list, err := viewer.fetch(ctx); err != nil || len(list) != len(before) {
			t.Errorf("%d messages were fetched, %v", len(list), err)
		}
	})
}

// TestMethodsForReadAccessDoNotChangeAConversation calls methods over a connection and over HTTP during a reply.
func TestMethodsForReadAccessDoNotChangeAConversation(t *testing.T) {
	call := func(ctx context.Context, h *dohosttest.Host, query, method string) error {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+query, nil)
		ctx, err := h.Host().AuthorizeCall(r, testID, "change")
		if err == nil {
			_, err = h.Host().Invoke(ctx, testID, "change", []byte(`"`+method+`"`))
		}
		return err
	}
	runWithHost(t, guardedClass(20), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		writer, viewer, guest := connectIdle(t, h, "writer"), connectIdle(t, h, "viewer"), connectIdle(t, h, "guest")
		writer.ask(ctx, "one", "go", nil)
		writer.waitBegin(t, "one")
		for _, method := range slices.Sorted(maps.Keys(changingCalls)) {
			if err := call(ctx, h, "?_pk=viewer", method); !errors.Is(err, dohost.ErrForbidden) {
				t.Errorf("%s over HTTP: %v", method, err)
			}
			for _, r := range []*reader{viewer, guest} {
				r.sendFrame(ctx, map[string]any{"type": "rpc", "id": method, "method": "change", "args": []any{method}})
				if f := r.receiveUntil(t, func(f frame) bool { return f.Type == "rpc" }); f.Error != "Connection is readonly" {
					t.Errorf("%s over the connection of the %s: %+v", method, r.name, f)
				}
			}
		}
		if f := writer.waitEnd(t, "one"); f.Outcome != "completed" {
			t.Errorf("the reply ended with %+v", f)
		}
		if got := storedLines(t, h); len(got) != 2 {
			t.Errorf("the conversation is %q", got)
		}
		for _, method := range slices.Sorted(maps.Keys(changingCalls)) {
			if err := call(ctx, h, "?_pk=writer", method); err != nil {
				t.Errorf("%s by a client that may write: %v", method, err)
			}
		}
	})
}

func TestClientsWithReadAccessCannotCancelAReply(t *testing.T) {
	runWithHost(t, guardedClass(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		writer, viewer := connectIdle(t, h, "writer"), connectIdle(t, h, "viewer")
		writer.ask(ctx, "one", "go", nil)
		writer.waitBegin(t, "one")
		viewer.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
		if f := writer.waitEnd(t, "one"); f.Outcome != "completed" {
			t.Errorf("the reply ended with %+v", f)
		}
	})
}

func TestTranscriptIsRefusedWithoutAccess(t *testing.T) {
	runWithHost(t, guardedClass(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/get-messages?refused", nil)
		h.Host().ServeObject(w, r, testID)
		there, err := h.Host().Exists(ctx, testID)
		if w.Code != http.StatusForbidden || h.Host().IsLive(testID) || there || err != nil {
			t.Errorf("%d %s, live %t, durable %t, %v", w.Code, w.Body, h.Host().IsLive(testID), there, err)
		}
	})
}
