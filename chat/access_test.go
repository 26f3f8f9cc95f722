package chat_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// guardedParrots are parrots that say some words, that a client of the name viewer may only watch, and that refuse requests
// with the query "refused".
func guardedParrots(words int) dohost.Class {
	return chat.Bind(parrots, func(_ context.Context, a *chat.Agent[struct{}]) (*parrot, error) {
		return &parrot{a, &cage{words: words}}, nil
	}, chat.Handlers[parrot]{Reply: (*parrot).reply}, nil,
		agent.Authorize[parrot](func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
			switch q := r.Request.URL.Query(); {
			case q.Has("refused"):
				return dohost.Access{}, dohost.ErrForbidden
			case q.Get("_pk") == "viewer":
				return dohost.Access{Rights: dohost.ReadOnly}, nil
			}
			return dohost.Access{Rights: dohost.ReadWrite}, nil
		}))
}

func isTranscript(f frame) bool { return f.Type == "cf_agent_chat_messages" }

func TestReadOnlyClientsCannotChangeAConversation(t *testing.T) {
	talk(t, guardedParrots(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		writer, viewer := come(t, h, "writer"), come(t, h, "viewer")
		writer.ask(ctx, "one", "go", nil)
		writer.end(t, "one")
		before := said(t, h)
		viewer.ask(ctx, "two", "go", nil)
		if f := viewer.end(t, "two"); f.Outcome != "error" || f.Body != "Connection is readonly" {
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
			viewer.say(ctx, change)
			f := viewer.hears(t, isTranscript)
			if len(f.Messages) != len(before) {
				t.Errorf("after %v the viewer got %d messages, want %d", change["type"], len(f.Messages), len(before))
			}
		}
		if after := said(t, h); !slices.Equal(before, after) {
			t.Errorf("the conversation was %q, and is %q", before, after)
		}
		if list, err := viewer.fetch(ctx); err != nil || len(list) != len(before) {
			t.Errorf("%d messages were fetched, %v", len(list), err)
		}
	})
}

func TestReadOnlyClientsCannotCancelAReply(t *testing.T) {
	talk(t, guardedParrots(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		writer, viewer := come(t, h, "writer"), come(t, h, "viewer")
		writer.ask(ctx, "one", "go", nil)
		writer.begins(t, "one")
		viewer.say(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
		if f := writer.end(t, "one"); f.Outcome != "completed" {
			t.Errorf("the reply ended with %+v", f)
		}
	})
}

func TestTranscriptIsRefusedWithoutAccess(t *testing.T) {
	talk(t, guardedParrots(10), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/get-messages?refused", nil)
		h.Host().ServeObject(w, r, polly)
		there, err := h.Host().Exists(ctx, polly)
		if w.Code != http.StatusForbidden || h.Host().IsLive(polly) || there || err != nil {
			t.Errorf("%d %s, live %t, durable %t, %v", w.Code, w.Body, h.Host().IsLive(polly), there, err)
		}
	})
}
