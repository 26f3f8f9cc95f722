package chat_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// connectMember connects a client to a member.
func connectMember(t *testing.T, h *dohosttest.Host, name, client string) *reader {
	t.Helper()
	r := newReader(h, dohost.ID{Class: "member", Name: name}, client)
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.receiveUntil(t, func(f frame) bool { return f.ProbeID == "probe" })
	return r
}

// texts returns the texts of the last transcript that a client has received.
func (r *reader) texts() (all []string) {
	for _, m := range r.messages {
		text := m.Role + ": "
		for _, p := range m.Parts {
			text += p.Text
		}
		all = append(all, text)
	}
	return all
}

// slowMember is a think function: the member c needs ten seconds.
func slowMember(ctx context.Context, m *member, _ *chat.Reply) error {
	if m.Name() != "c" {
		return nil
	}
	return dohost.Sleep(ctx, 10*time.Second)
}

// TestRequestOfAgentDoesNotEndTheWaitOfAUser asks b, which waits for c, before the request of another agent arrives at b. The message
// of the user continues, with the body of the request of the user, and with the prompt of that request. A newer message of a user
// ends the wait. A client receives no chunks of a continuation of an older message, which it would add to its last message.
func TestRequestOfAgentDoesNotEndTheWaitOfAUser(t *testing.T) {
	for name, ends := range map[string]bool{"a request of an agent": false, "a message of the user": true} {
		t.Run(name, func(t *testing.T) {
			var bodies, prompts []string
			tm := &team{options: chat.AgentToolOptions{Timeout: time.Hour}, after: map[string]time.Duration{"b": 2 * time.Second}}
			tm.think = func(ctx context.Context, m *member, r *chat.Reply) error {
				list, err := r.Messages(ctx, 0)
				if m.Name() == "b" && err == nil {
					bodies = append(bodies, string(r.Body()))
					prompts = append(prompts, list[len(list)-1].PlainText())
					err = dohost.Sleep(ctx, time.Second)
				}
				if err != nil {
					return err
				}
				return slowMember(ctx, m, r)
			}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				r := connectMember(t, h, "b", "r")
				defer r.close()
				r.ask(t.Context(), "one", "c: hi", map[string]any{"key": "user"})
				r.waitEnd(t, "one")
				want := []string{"user: c: hi", "assistant: b heard (c says hi)", "user: x", "assistant: b says x"}
				if ends {
					list, err := r.fetch(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					r.messages = list
					r.ask(t.Context(), "two", "x", nil)
					r.waitEnd(t, "two")
					want[1] = "assistant: "
				} else if err := askMember(t.Context(), h, "a", "b: x"); err != nil {
					t.Fatal(err)
				}
				h.Advance(10 * time.Second) // less than the interval of pings, which the client does not read
				late := connectMember(t, h, "b", "late")
				defer late.close()
				h.Advance(5 * time.Second)
				wantTranscript(t, h, "b", want...)
				if ends || t.Failed() {
					return
				}
				wantTranscript(t, h, "a", "user: b: x", "assistant: a heard (b says x)")
				for _, r := range []*reader{r, late} {
					r.receiveUntil(t, func(f frame) bool { return strings.HasPrefix(f.ID, "cont_") && f.Done })
					r.receiveUntil(t, func(f frame) bool { return f.Type == "cf_agent_chat_messages" })
					wantLines(t, "the client has", r.texts(), want...)
					for id, v := range r.views {
						if strings.HasPrefix(id, "cont_") && v.text != "" {
							t.Errorf("a client has received %q of the continuation %s", v.text, id)
						}
					}
				}
				if len(late.views) != 1 {
					t.Error("the late client has not resumed the continuation")
				}
				wantLines(t, "the bodies are", bodies, `{"key":"user"}`, "", `{"key":"user"}`)
				wantLines(t, "the prompts end with", prompts, "c: hi", "x", "c: hi")
			})
		})
	}
}
