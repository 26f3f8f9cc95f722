package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/chat/uimessage"
	"github.com/dohost/dohost/dohosttest"
)

// sizeRecorder is a ResponseWriter that records the largest piece of a response.
type sizeRecorder struct {
	*httptest.ResponseRecorder
	largest int
}

func (p *sizeRecorder) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// A conversation larger than the maximum of unflushed bytes is read in pieces.
func TestGetMessagesOfLongConversation(t *testing.T) {
	t.Parallel()
	runWithHost(t, countingClass(&countingState{}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		const n, size = 250, 20_000
		for from := 0; from < n; from += 125 {
			err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				var list []chat.Message
				for i := from; i < from+125; i++ {
					list = append(list, chat.Text(fmt.Sprint("m", i), chat.RoleUser, fmt.Sprint(i)+strings.Repeat("x", size)))
				}
				return errors.Join(chat.SetMessages(ctx, p, list), p.Idle(ctx))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		w := &sizeRecorder{ResponseRecorder: httptest.NewRecorder()}
		h.Host().ServeObject(w, httptest.NewRequest(http.MethodGet, "/get-messages", nil), testID)
		var got []chat.Message
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || len(got) != n {
			t.Fatalf("%d: %d messages, %v: %.100q", w.Code, len(got), err, w.Body)
		}
		for i, m := range got {
			if !strings.HasPrefix(m.PlainText(), fmt.Sprint(i)+"x") {
				t.Fatalf("message %d is %.20q", i, m.PlainText())
			}
		}
		if most := 256<<10 + 2*size; w.largest > most || w.Body.Len() < n*size {
			t.Errorf("a piece has %d bytes of %d, want at most %d", w.largest, w.Body.Len(), most)
		}
	})
}

// A client cannot enlarge a conversation beyond its limit; it can shrink and clear it.
func TestConversationSize(t *testing.T) {
	c := &countingState{words: 1}
	runWithHost(t, countingClass(c, chat.Options{MaxBytes: 5_000}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		large := func(id string, n int) map[string]any {
			return map[string]any{"id": id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": strings.Repeat("x", n)}}}
		}
		r.ask(ctx, "large", strings.Repeat("x", 5_000), nil)
		if f := r.waitEnd(t, "large"); f.Error != true || !strings.Contains(f.Body, "the limit is 5000") {
			t.Errorf("%+v", f)
		}
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_messages", "messages": []any{large("a", 3_000), large("b", 3_000)}})
		if f := r.receiveUntil(t, func(f frame) bool { return f.Type == "" }); !strings.Contains(fmt.Sprint(f.Error), "the limit is 5000") {
			t.Errorf("%+v", f)
		}
		wantLines(t, "said", storedLines(t, h))
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list := []chat.Message{chat.Text("a", chat.RoleUser, strings.Repeat("x", 6_000)), chat.Text("b", chat.RoleUser, "b"), chat.Text("c", chat.RoleUser, "c")}
			return chat.SetMessages(ctx, p, list)
		})
		if err != nil {
			t.Fatal(err)
		}
		r.receiveUntil(t, func(f frame) bool { return len(f.Messages) == 3 })
		r.messages = r.messages[:2]
		r.ask(ctx, "smaller", "", nil)
		if f := r.waitEnd(t, "smaller"); f.Outcome != "completed" {
			t.Errorf("%+v", f)
		}
		if got := storedLines(t, h); len(got) != 3 || got[2] != "assistant: 1.0" {
			t.Errorf("%.100q", got)
		}
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_clear"})
		r.messages = nil
		r.ask(ctx, "again", "hi", nil)
		if f := r.waitEnd(t, "again"); f.Outcome != "completed" {
			t.Errorf("%+v", f)
		}
		wantLines(t, "said", storedLines(t, h), "user: hi", "assistant: 2.0")
		r.close()
	})
}

// A handler cannot send a chunk that is nested more deeply than MaxNesting.
func TestChunkNestingLimit(t *testing.T) {
	c := &countingState{words: 1, more: func(_ *countingAgent, ctx context.Context, r *chat.Reply, _ int) error {
		for depth, ok := range map[int]bool{uimessage.MaxNesting: true, uimessage.MaxNesting + 1: false} {
			data := json.RawMessage(strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1)) // the chunk is an object
			if err := r.Send(ctx, uimessage.MakeChunk("data-x", "data", data)); (err == nil) != ok {
				t.Errorf("%d levels: %v", depth, err)
			}
		}
		return nil
	}}
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			id, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "hi")}, nil)
			if err == nil {
				_, _, err = chat.Wait(ctx, p, id)
			}
			return err
		})
		if n := c.calls.Load(); n == 0 {
			t.Error("the handler was not called")
		}
	})
}
