package chat_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// runWithHost runs a test with a host of countingAgents.
func runWithHost(t *testing.T, class dohost.Class, f func(t *testing.T, ctx context.Context, h *dohosttest.Host)) {
	t.Helper()
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
		f(t, t.Context(), h)
	})
}

// connectIdle connects a client that has nothing to resume.
func connectIdle(t *testing.T, h *dohosttest.Host, name string) *reader {
	t.Helper()
	r := newReader(h, testID, name)
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.receiveUntil(t, func(f frame) bool { return f.ProbeID == "probe" })
	return r
}

// receiveUntil receives frames until one is wanted, and returns it.
func (r *reader) receiveUntil(t *testing.T, wanted func(frame) bool) frame {
	t.Helper()
	for {
		f, connected, err := r.receive(t.Context())
		if err != nil || !connected {
			t.Fatalf("%s: %v, connected %t", r.name, err, connected)
		}
		if wanted(f) {
			return f
		}
	}
}

func (r *reader) waitEnd(t *testing.T, request string) frame {
	t.Helper()
	if f, ok := r.ended[request]; ok {
		return f
	}
	return r.receiveUntil(t, func(f frame) bool { return f.Done && f.ID == request })
}

func (r *reader) waitBegin(t *testing.T, request string) {
	t.Helper()
	r.receiveUntil(t, func(f frame) bool { return f.ID == request && strings.Contains(f.Body, "text-delta") })
}

// storedLines returns the stored conversation, a message per line.
func storedLines(t *testing.T, h *dohosttest.Host) (lines []string) {
	t.Helper()
	err := countingAgents.Get(h, testID.Name).Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 0)
		for _, m := range list {
			lines = append(lines, string(m.Role)+": "+strings.TrimSpace(m.PlainText()))
		}
		return errors.Join(err, p.Idle(ctx))
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func TestCancel(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 5}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
		r.ask(ctx, "one", "count", nil)
		r.ask(ctx, "two", "count", nil)
		r.waitBegin(t, "one")
		r.waitBegin(t, "one")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "two"})
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "nothing"})
		if f := r.waitEnd(t, "two"); f.Outcome != "aborted" || f.Error == true {
			t.Errorf("%+v", f)
		}
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
		if f := other.waitEnd(t, "one"); f.Outcome != "aborted" || f.Error == true || f.Body != "" {
			t.Errorf("%+v", f)
		}
		h.Advance(time.Second)
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 1.0 1.1", "user: count")
		r.close()
		other.close()
	})
}

func TestClear(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 5}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
		r.ask(ctx, "one", "count", nil)
		r.ask(ctx, "two", "count", nil)
		r.waitBegin(t, "one")
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_clear"})
		other.receiveUntil(t, func(f frame) bool { return f.Type == "cf_agent_chat_clear" })
		h.Advance(time.Second)
		wantLines(t, "said", storedLines(t, h))
		if slices.Contains(r.log, "cf_agent_chat_clear") || r.waitEnd(t, "two").Outcome != "aborted" {
			t.Errorf("%q", r.log)
		}
		r.messages = nil
		r.ask(ctx, "three", "count", nil)
		r.waitEnd(t, "three")
		wantLines(t, "said afterwards", storedLines(t, h), "user: count", "assistant: 2.0 2.1 2.2 2.3 2.4")
		r.close()
		other.close()
	})
}

func TestRegenerate(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 2}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
		r.ask(ctx, "one", "count", nil)
		other.waitEnd(t, "one")
		first := other.messages[1].ID
		r.messages = other.messages[:1]
		r.ask(ctx, "two", "", map[string]any{"trigger": "regenerate-message"})
		other.waitEnd(t, "two")
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 2.0 2.1")
		if len(other.messages) != 2 || other.messages[1].ID == first {
			t.Errorf("%+v", other.messages)
		}
		r.close()
		other.close()
	})
}

// The sender of an invalid request receives the error.
func TestRequestErrorIsSentToItsSender(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		for id, bad := range map[string]map[string]any{
			"get":     {"method": "GET", "body": "{}"},
			"empty":   {"method": "POST", "body": ""},
			"broken":  {"method": "POST", "body": "{"},
			"list":    {"method": "POST", "body": `{"messages":[{"id":"x"}]}`},
			"role":    {"method": "POST", "body": `{"messages":[{"id":"x","role":"robot","parts":[]}]}`},
			"trigger": {"method": "POST", "body": `{"trigger":"pull` + strings.Repeat("x", 1<<20) + `"}`},
			"tools":   {"method": "POST", "body": `{"messages":[],"clientTools":1}`},
			"large":   {"method": "POST", "body": fmt.Sprintf(`{"messages":[{"id":"x","role":"user","parts":[{"type":"file","url":%q}]}]}`, strings.Repeat("x", 3<<20))},
		} {
			r.sendFrame(ctx, map[string]any{"type": "cf_agent_use_chat_request", "id": id, "init": bad})
			if f := r.waitEnd(t, id); f.Error != true || f.Outcome != "error" || f.Body == "" || len(f.Body) > 200 {
				t.Errorf("%s: %.300v", id, f)
			}
		}
		for _, f := range []map[string]any{
			{"type": "cf_agent_chat_messages", "messages": 1},
			{"type": "cf_agent_tool_result", "toolCallId": "nobody's", "output": 1},
			{"type": "cf_agent_stream_resume_ack", "id": "nothing"},
			{"type": "cf_agent_chat_request_cancel"},
		} {
			r.sendFrame(ctx, f)
		}
		if f := r.receiveUntil(t, func(f frame) bool { return f.Type == "" }); f.Error != `chat: no tool call has the id "nobody's"` {
			t.Errorf("%+v", f)
		}
		r.ask(ctx, "one", strings.Repeat("count", 600_000), nil)
		r.waitEnd(t, "one")
		got := storedLines(t, h)
		if len(got) != 2 || len(got[0]) > 2000 || got[1] != "assistant: 1.0" {
			t.Errorf("%.100q", got)
		}
		r.close()
	})
}

// A client that was disconnected at the end of a reply sees the end when it reconnects.
func TestReconnectAfterTheEndOfReply(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 3}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		if err := r.ws.CloseNow(); err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		r.ws = nil
		if err := r.connect(ctx); err != nil {
			t.Fatal(err)
		}
		none := r.receiveUntil(t, func(f frame) bool { return f.ProbeID == "probe" })
		if none.Reason != "idle" || len(r.messages) != 2 || r.messages[1].text() != "1.0 1.1 1.2 " {
			t.Errorf("%+v, %+v", none, r.messages)
		}
		r.close()
	})
}

// A client that was disconnected when a reply failed gets the transcript when it reconnects.
func TestReconnectAfterTheFailureOfReply(t *testing.T) {
	c := &countingState{words: 3}
	c.more = func(_ *countingAgent, _ context.Context, _ *chat.Reply, i int) error {
		if i == 2 {
			return errors.New("the model is out")
		}
		return nil
	}
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		if err := r.ws.CloseNow(); err != nil {
			t.Fatal(err)
		}
		h.Advance(5 * time.Second)
		r.ws = nil
		if err := r.connect(ctx); err != nil {
			t.Fatal(err)
		}
		r.waitEnd(t, "one")
		if len(r.messages) != 2 || r.messages[1].text() != "1.0 1.1 " {
			t.Errorf("%+v", r.messages)
		}
		r.close()
	})
}

// A client whose message became one with waiting ones gets that message. Otherwise its next request would store them again.
func TestSenderGetsJoinedMessage(t *testing.T) {
	class := countingClass(&countingState{words: 3}, chat.Options{Policy: chat.PolicyMerge})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "a", nil)
		r.waitBegin(t, "one")
		r.ask(ctx, "two", "b", nil)
		r.ask(ctx, "three", "c", nil)
		r.waitEnd(t, "three")
		if n := len(r.messages); n == 0 || !slices.ContainsFunc(r.messages, func(m page) bool { return m.text() == "b\n\nc" }) {
			t.Errorf("%+v", r.messages)
		}
		r.close()
	})
}

// A client that deletes the conversation during the reply to another client gets no transcript of the time before.
func TestClearDuringReplyToAnotherClient(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 3}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
		r.ask(ctx, "one", "count", nil)
		other.waitBegin(t, "one")
		other.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_clear"})
		other.messages = nil
		other.waitEnd(t, "one")
		h.Advance(time.Second)
		other.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "later"})
		other.receiveUntil(t, func(f frame) bool { return f.ProbeID == "later" })
		if len(other.messages) != 0 {
			t.Errorf("after the deletion it has %+v", other.messages)
		}
		r.close()
		other.close()
	})
}

// A client that connects during a reply receives the replay, then the live chunks. Before it asks for the replay it
// receives no chunks.
func TestReplayToClientThatConnectsDuringReply(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 4}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		late := newReader(h, testID, "late")
		if err := late.connect(ctx); err != nil {
			t.Fatal(err)
		}
		late.waitEnd(t, "one")
		if len(late.messages) != 2 {
			t.Errorf("before the end it was shown %d messages", len(late.messages))
		}
		r.waitEnd(t, "one")
		if err := checkCounted(late.views["one"].text, 4); err != nil {
			t.Error(err)
		}
		if late.log[0] != "cf_agent_stream_resuming" || late.log[1] != "cf_agent_identity" {
			t.Errorf("%q", late.log)
		}
		r.close()
		late.close()
	})
}

// A client's copy of the running reply is shorter than the server's.
func TestRequestWithShorterCopyOfRunningReply(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 3}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r, other := connectIdle(t, h, "r"), connectIdle(t, h, "other")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		v := r.views["one"]
		r.messages = append(other.messages, page{ID: v.message, Role: "assistant"})
		r.messages[len(r.messages)-1].Parts = append(r.messages[len(r.messages)-1].Parts, part{Type: "text", Text: v.text})
		r.ask(ctx, "two", "again", nil)
		other.receiveUntil(t, func(f frame) bool { return len(f.Messages) == 2 })
		if other.messages[1].ID != "user-two" {
			t.Errorf("%+v", other.messages)
		}
		r.waitEnd(t, "two")
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 1.0 1.1 1.2", "user: again", "assistant: 2.0 2.1 2.2")
		r.close()
		other.close()
	})
}

// A reply is replayed once per connection, however often the client asks. A client that asks for an ended reply during
// another one does not receive its end, because it received that before, and would take it for the end of the other.
func TestReplayIsSentOncePerConnection(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 6}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "zero", "count", nil)
		r.waitEnd(t, "zero")
		r.ask(ctx, "one", "count", nil)
		r.waitBegin(t, "one")
		late := newReader(h, testID, "late")
		if err := late.connect(ctx); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"zero", "one", "one"} {
			late.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_ack", "id": id})
		}
		shown, zero := 0, 0
		late.receiveUntil(t, func(f frame) bool {
			if f.ReplayComplete {
				shown++
			}
			if f.ID == "zero" {
				zero++
			}
			return f.Done && f.ID == "one"
		})
		if shown != 1 || zero != 0 {
			t.Errorf("it was shown %d times, with %d frames of the ended reply", shown, zero)
		}
		r.waitEnd(t, "one")
		r.close()
		late.close()
	})
}

func TestGetMessages(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		get := func() string {
			w := httptest.NewRecorder()
			h.Host().ServeObject(w, httptest.NewRequest(http.MethodGet, "/get-messages", nil), testID)
			return strings.TrimSpace(w.Body.String())
		}
		if got := get(); got != "[]" {
			t.Error(got)
		}
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", map[string]any{"extra": 1})
		r.waitEnd(t, "one")
		if got := get(); !strings.HasPrefix(got, `[{"id":"user-one","parts":[{"text":"count","type":"text"}],"role":"user"},{"id":"msg_`) {
			t.Error(got)
		}
		r.close()
	})
}

// TestFailureTextsAreHiddenFromClients checks replies that fail with texts for the program, and not for clients.
func TestFailureTextsAreHiddenFromClients(t *testing.T) {
	failures := []error{
		errors.New("dial 10.0.0.5: Hunter2"),
		&chat.ModelError{Provider: "openai", Status: 429, Message: "org-Hunter2 is over its quota", RetryAfter: time.Second},
	}
	c := &countingState{words: 3}
	c.more = func(*countingAgent, context.Context, *chat.Reply, int) error { return failures[c.calls.Load()-1] }
	var program []string
	class := countingClassOf(c, &handlers{Reply: (*countingAgent).reply,
		OnResponse: func(_ *countingAgent, _ context.Context, r chat.Response) error {
			program = append(program, r.Error)
			return nil
		}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		defer r.close()
		for i, want := range []string{"internal error 0", "openai: 429 Too Many Requests (try again after 1s)"} {
			id := fmt.Sprint("request-", i)
			r.ask(ctx, id, "count", nil)
			if f := r.waitEnd(t, id); f.Error != true || !strings.HasPrefix(f.Body, want) || strings.Contains(f.Body, "Hunter2") {
				t.Errorf("%+v, want %q", f, want)
			}
		}
		for i, text := range program {
			if text != failures[i].Error() {
				t.Errorf("the program got %q, want %q", text, failures[i])
			}
		}
		if len(program) != len(failures) {
			t.Errorf("the program got %q", program)
		}
	})
}

// A handler that fails ends its reply. Clients that ask later get the failure, until there is another request.
func TestReplyThatFailsIsReportedToLaterClients(t *testing.T) {
	c := &countingState{words: 3}
	c.more = func(_ *countingAgent, _ context.Context, _ *chat.Reply, i int) error {
		if i == 2 && c.calls.Load() == 1 {
			return &dohost.PublicError{Message: "the model is out"}
		}
		return nil
	}
	var responses []chat.Response
	class := countingClassOf(c, &handlers{Reply: (*countingAgent).reply,
		OnResponse: func(_ *countingAgent, _ context.Context, r chat.Response) error {
			responses = append(responses, r)
			return nil
		}})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		if f := r.waitEnd(t, "one"); f.Error != true || f.Body != "the model is out" || f.Outcome != "error" {
			t.Errorf("%+v", f)
		}
		late := newReader(h, testID, "late")
		if err := late.connect(ctx); err != nil {
			t.Fatal(err)
		}
		if f := late.waitEnd(t, "one"); f.Error != true || !f.Replay || f.Body != "the model is out" {
			t.Errorf("%+v", f)
		}
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 1.0 1.1")
		r.ask(ctx, "two", "count", nil)
		late.waitBegin(t, "two") // it receives the chunks live, although it has asked for the failed reply
		late.waitEnd(t, "two")
		late.close()
		r.waitEnd(t, "two")
		if late = connectIdle(t, h, "late"); slices.Contains(late.log, "cf_agent_stream_resuming") {
			t.Errorf("%q", late.log)
		}
		if len(responses) != 2 || responses[0].Status != chat.StatusFailed || responses[0].Error != "the model is out" ||
			responses[0].Message.PlainText() != "1.0 1.1 " || responses[1].Status != chat.StatusCompleted {
			t.Errorf("%+v", responses)
		}
		r.close()
		late.close()
	})
}
