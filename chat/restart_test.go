package chat_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// The body and the client tools of the last request survive the end of the process. They apply to a reply that resumes
// afterwards, to a continuation after a tool result that arrives afterwards, and to requests of the program.
func TestRequestBodyAndToolsSurviveTheProcess(t *testing.T) {
	ends := map[string]func(*dohosttest.Host) error{
		"restart":   func(h *dohosttest.Host) error { return h.Restart() },
		"kill":      func(h *dohosttest.Host) error { h.Kill(); return nil },
		"power cut": func(h *dohosttest.Host) error { h.Crash(); return nil },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			var got []string
			class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
				got = append(got, fmt.Sprintf("%s %s", r.Body(), r.Tools()))
				m := r.Partial()
				switch {
				case len(got) == 1:
					if err := r.Say(ctx, "wait "); err != nil {
						return err
					}
					return dohost.Sleep(ctx, time.Hour)
				case len(m.Parts) == 0 || hasOutput(m):
					return r.Say(ctx, "done")
				}
				return r.Send(ctx, chunk("tool-input-available", map[string]any{"toolCallId": "call", "toolName": "ask", "input": 1}))
			}})
			runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := connectIdle(t, h, "r")
				over := func() {
					h.Advance(time.Second) // all writes are durable
					if err := end(h); err != nil {
						t.Fatal(err)
					}
					for r.ws != nil {
						if _, _, err := r.receive(ctx); err != nil {
							t.Fatal(err)
						}
					}
					if err := r.connect(ctx); err != nil {
						t.Fatal(err)
					}
				}
				r.ask(ctx, "one", "ask me", map[string]any{"clientTools": []any{map[string]any{"name": "ask"}}, "city": "Bern"})
				over()
				r.waitEnd(t, "one")
				over()
				r.sendFrame(ctx, map[string]any{
					"type": "cf_agent_tool_result", "toolCallId": "call", "toolName": "ask", "output": "yes", "autoContinue": true,
				})
				r.receiveUntil(t, func(f frame) bool { return f.Done && f.ID != "one" })
				over()
				err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
					id, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "again")}, nil)
					if err != nil {
						return err
					}
					_, _, err = chat.Wait(ctx, p, id)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				r.close()
				const each = `{"city":"Bern"} [{"name":"ask"}]`
				wantLines(t, "body and tools", got, each, each, each, each)
			})
		})
	}
}

// TestRequestIsKnownUntilItsResultIsCollected repeats a request of the program after hours without a Wait, and after one.
func TestRequestIsKnownUntilItsResultIsCollected(t *testing.T) {
	c := &countingState{words: 1}
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		do := func(f func(context.Context, *countingAgent) error) {
			t.Helper()
			if err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error { return f(ctx, p) }); err != nil {
				t.Fatal(err)
			}
			h.Advance(time.Second)
		}
		ask := func(id string) {
			t.Helper()
			do(func(ctx context.Context, p *countingAgent) error {
				_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u-"+id, chat.RoleUser, "count")}, &chat.AskOptions{ID: id})
				return err
			})
		}
		wait := func(id string, known bool) {
			t.Helper()
			do(func(ctx context.Context, p *countingAgent) error {
				r, ok, err := chat.Wait(ctx, p, id)
				if ok != known || known && r.Message.PlainText() != "1.0 " {
					t.Errorf("%s: %t, %+v", id, ok, r)
				}
				return err
			})
		}
		later := func(d time.Duration) { // the end of a request deletes those that are not known any more
			h.Advance(d)
			ask("")
		}
		ask("job")
		later(6 * time.Hour)
		if ask("job"); c.calls.Load() != 2 {
			t.Errorf("%d calls, want 2: job was answered again before its result was collected", c.calls.Load())
		}
		wait("job", true)
		later(9 * time.Minute)
		wait("job", true)
		later(2 * time.Minute)
		wait("job", false)
		ask("never")
		later(6 * 24 * time.Hour)
		if ask("never"); c.calls.Load() != 6 {
			t.Errorf("%d calls, want 6", c.calls.Load())
		}
		later(25 * time.Hour)
		wait("never", false)
	})
}
