package chat_test

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
)

// interrupts sends a request, and ends n incarnations. after is the number of words that the client reads before each end.
func interrupts(t *testing.T, h *dohosttest.Host, n int, after int) *reader {
	t.Helper()
	r := connectIdle(t, h, "r")
	r.ask(t.Context(), "one", "count", nil)
	for range n {
		for range after {
			r.waitBegin(t, "one")
		}
		h.Evict(testID, dohost.EndFence)
		for r.ws != nil {
			if _, _, err := r.receive(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// The rules of Recovery, for replies that are interrupted repeatedly.
func TestRecoveryRules(t *testing.T) {
	const sorry = "The assistant was interrupted and could not recover. Please try again."
	cases := map[string]struct {
		rules chat.Recovery
		cuts  int // each after a word
		words int
		fails string
	}{
		"three times":          {chat.Recovery{}, 3, 10, ""},
		"three times, counted": {chat.Recovery{CountAllAttempts: true}, 3, 10, ""},
		"six times":            {chat.Recovery{}, 6, 10, ""},
		"six times, counted":   {chat.Recovery{CountAllAttempts: true}, 6, 6, sorry},
		"off":                  {chat.Recovery{Off: true}, 1, 1, sorry},
		"too much work":        {chat.Recovery{MaxChunks: 2, FailureMessage: "no more"}, 5, 4, "no more"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			runWithHost(t, countingClass(&countingState{words: 10}, chat.Options{Recovery: c.rules}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := newReader(h, testID, "r")
				if err := r.connect(ctx); err != nil {
					t.Fatal(err)
				}
				r.ask(ctx, "one", "count", nil)
				seen := 0
				for cut := 0; !r.ended["one"].Done; {
					f, connected, err := r.receive(ctx)
					if err != nil {
						t.Fatal(err)
					}
					if !connected {
						if err := r.connect(ctx); err != nil {
							t.Fatal(err)
						}
					}
					if v := r.views["one"]; f.Type == "cf_agent_use_chat_response" && !f.Replay && v != nil && len(v.text) > seen && cut < c.cuts {
						seen = len(v.text)
						cut++
						h.Evict(testID, dohost.EndFence)
					}
				}
				end := r.ended["one"]
				if body := end.Body; body != c.fails || (end.Error == true) != (c.fails != "") {
					t.Errorf("%+v", end)
				}
				lines := storedLines(t, h)
				if err := checkCounted(strings.TrimPrefix(lines[1], "assistant: "), c.words); err != nil {
					t.Error(err)
				}
				r.ask(ctx, "two", "count", nil)
				if f := r.waitEnd(t, "two"); f.Outcome != "completed" {
					t.Errorf("the next one: %+v", f)
				}
				r.close()
			})
		})
	}
}

// A reply without chunks is tried six times, however its incarnations end.
func TestReplyWithoutChunksIsTriedSixTimes(t *testing.T) {
	c := &countingState{words: 1}
	c.more = func(*countingAgent, context.Context, *chat.Reply, int) error { panic("out of memory") }
	runWithHost(t, countingClass(c, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := newReader(h, testID, "r")
		if err := r.connect(ctx); err != nil {
			t.Fatal(err)
		}
		r.ask(ctx, "one", "count", nil)
		if err := r.until(ctx, func() bool { return r.ended["one"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		wantLines(t, "said", storedLines(t, h), "user: count")
		if n := c.calls.Load(); n != 6 || r.ended["one"].Error != true {
			t.Errorf("%d calls, %+v", n, r.ended["one"])
		}
		r.close()
	})
}

// TestRecoveryHookDecisions has an OnRecovery that gets the reply so far and the saved checkpoint, and decides.
func TestRecoveryHookDecisions(t *testing.T) {
	cases := map[string]struct {
		d    chat.RecoveryAction
		err  error
		want string
		as   string
	}{
		"go on":     {chat.RecoveryResume, nil, "assistant: 1.0 1.1 2.2 2.3", "completed"},
		"stop":      {chat.RecoveryStop, nil, "assistant: 1.0 1.1", "aborted"},
		"drop":      {chat.RecoveryRestart, nil, "assistant: 2.0 2.1 2.2 2.3", "completed"},
		"drop all":  {chat.RecoveryDiscard, nil, "", "aborted"},
		"it failed": {chat.RecoveryStop, errors.New("hm"), "assistant: 1.0 1.1 2.2 2.3", "completed"},
	}
	for name, d := range cases {
		t.Run(name, func(t *testing.T) {
			var cuts []string
			c := &countingState{words: 4}
			c.more = func(_ *countingAgent, ctx context.Context, r *chat.Reply, i int) error {
				return r.SaveCheckpoint(ctx, i)
			}
			class := countingClassOf(c, &handlers{Reply: (*countingAgent).reply,
				OnRecovery: func(_ *countingAgent, _ context.Context, cut *chat.InterruptedReply) (chat.RecoveryAction, error) {
					var n int
					_, err := cut.Checkpoint(&n)
					cuts = append(cuts, fmt.Sprintf("%s %d %q %d", cut.ID, cut.Attempt, cut.Partial.PlainText(), n))
					return d.d, errors.Join(err, d.err)
				}})
			runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := interrupts(t, h, 1, 2)
				r.views = map[string]*view{} // dropped text disappears
				for !r.ended["one"].Done {
					if _, _, err := r.receive(ctx); err != nil && d.d != chat.RecoveryRestart && d.d != chat.RecoveryDiscard {
						t.Fatal(err)
					}
				}
				if f := r.ended["one"]; f.Outcome != d.as {
					t.Errorf("%+v", f)
				}
				want := []string{"user: count"}
				if d.want != "" {
					want = append(want, d.want)
				}
				wantLines(t, "said", storedLines(t, h), want...)
				wantLines(t, "the hook", cuts, `one 1 "1.0 1.1 " 1`)
				r.close()
			})
		})
	}
}

// A handler without a chunk for too long is interrupted, and called again.
func TestStall(t *testing.T) {
	c := &countingState{words: 3}
	c.more = func(_ *countingAgent, ctx context.Context, _ *chat.Reply, i int) error {
		if i == 1 && c.calls.Load() < 3 {
			return dohost.Sleep(ctx, time.Hour)
		}
		return nil
	}
	runWithHost(t, countingClass(c, chat.Options{Stall: time.Minute}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		begun := time.Now()
		r.ask(ctx, "one", "count", nil)
		r.waitEnd(t, "one")
		wantLines(t, "said", storedLines(t, h), "user: count", "assistant: 1.0 3.1 3.2")
		if d := time.Since(begun).Round(time.Second); d != 2*time.Minute {
			t.Errorf("that took %v", d)
		}
		if n := slices.Index(r.log, "cf_agent_chat_recovering"); n < 0 {
			t.Errorf("%q", r.log)
		}
		r.close()
	})
}

// A program sends a request, waits for the answer, and requests a continuation.
func TestAskWaitAndContinue(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 2}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			id, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "count")}, &chat.AskOptions{ID: "mine", Body: 7})
			if err != nil {
				return err
			}
			if again, err := chat.Ask(ctx, p, nil, &chat.AskOptions{ID: "mine"}); err != nil || again != id {
				return fmt.Errorf("%q, %w", again, err)
			}
			answer, ok, err := chat.Wait(ctx, p, id)
			if err != nil || !ok || answer.Status != chat.StatusCompleted || answer.Message.PlainText() != "1.0 1.1 " {
				t.Errorf("%+v, %t, %v", answer, ok, err)
			}
			p.counting.words = 4
			more, err := chat.Continue(ctx, p, nil)
			if err != nil {
				return err
			}
			answer, _, err = chat.Wait(ctx, p, more)
			if err != nil || !answer.Continues || answer.Message.PlainText() != "1.0 1.1 2.2 2.3 " {
				t.Errorf("%+v, %v", answer, err)
			}
			if _, ok, err := chat.Wait(ctx, p, "nothing"); ok || err != nil {
				t.Errorf("%t, %v", ok, err)
			}
			if _, err := chat.Ask(ctx, p, []chat.Message{{ID: "x"}}, nil); err == nil {
				t.Error("a message without a role is asked")
			}
			if err := chat.Clear(ctx, p); err != nil {
				return err
			}
			skipped, err := chat.Continue(ctx, p, nil)
			if err != nil {
				return err
			}
			if answer, _, err = chat.Wait(ctx, p, skipped); answer.Status != chat.StatusSkipped {
				t.Errorf("%+v", answer)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r.close()
	})
}

func TestPolicies(t *testing.T) {
	cases := map[chat.Policy][]string{
		"":                  {"user: a", "assistant: 1.0", "user: b", "assistant: 2.0", "user: c", "assistant: 3.0"},
		chat.PolicyQueue:    {"user: a", "assistant: 1.0", "user: b", "assistant: 2.0", "user: c", "assistant: 3.0"},
		chat.PolicyLatest:   {"user: a", "assistant: 1.0", "user: b", "user: c", "assistant: 2.0"},
		chat.PolicyMerge:    {"user: a", "assistant: 1.0", "user: b\n\nc", "assistant: 2.0"},
		chat.PolicyDrop:     {"user: a", "assistant: 1.0"},
		chat.PolicyDebounce: {"user: a", "user: b", "user: c", "assistant: 1.0"},
	}
	for p, want := range cases {
		t.Run(string(p), func(t *testing.T) {
			runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{Policy: p}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				r := connectIdle(t, h, "r")
				for _, id := range []string{"a", "b", "c"} {
					r.ask(ctx, id, id, nil)
				}
				for _, id := range []string{"a", "b", "c"} {
					r.waitEnd(t, id)
				}
				wantLines(t, "said", storedLines(t, h), want...)
				r.close()
			})
		})
	}
}

// A client that waits for a queued reply is notified when the reply is stopped before it begins.
func TestReplyStoppedBeforeStartNotifiesClient(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{Policy: chat.PolicyDebounce, Debounce: time.Minute}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_stream_resume_request", "probeId": "again"})
		if f := r.receiveUntil(t, func(f frame) bool { return f.ProbeID == "again" }); f.Type != "cf_agent_stream_pending" || f.ID != "one" {
			t.Errorf("%+v", f)
		}
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_chat_request_cancel", "id": "one"})
		r.waitEnd(t, "one")
		if f := r.receiveUntil(t, func(f frame) bool { return f.Type != "cf_agent_chat_messages" }); f.Type != "cf_agent_stream_resume_none" {
			t.Errorf("%+v", f)
		}
		r.close()
	})
}

func TestMaxMessages(t *testing.T) {
	runWithHost(t, countingClass(&countingState{words: 1}, chat.Options{MaxMessages: 3}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		for _, id := range []string{"a", "b", "c"} {
			r.ask(ctx, id, id, nil)
			r.waitEnd(t, id)
		}
		wantLines(t, "said", storedLines(t, h), "assistant: 2.0", "user: c", "assistant: 3.0")
		r.close()
	})
}

// Open returns the errors in a class, before the first reply.
func TestBindMistakesAreErrorsOfOpen(t *testing.T) {
	reply := (*countingAgent).reply
	for want, class := range map[string]dohost.Class{
		"Handlers.Reply is nil":     countingClassOf(&countingState{}, nil),
		"Stall is negative":         countingClassOf(&countingState{}, &handlers{Reply: reply, Options: chat.Options{Stall: -1}}),
		"MaxMessages is negative":   countingClassOf(&countingState{}, &handlers{Options: chat.Options{MaxMessages: -1}}),
		`Policy is "newest"`:        countingClassOf(&countingState{}, &handlers{Reply: reply, Options: chat.Options{Policy: "newest"}}),
		"Options.KeepAlive is -1ns": countingClassOf(&countingState{}, &handlers{Agent: agent.Handlers[countingAgent, struct{}]{Options: agent.Options{KeepAlive: -1}}}),
		"Bind without a constructor": chat.Bind(countingAgents, (func(context.Context, *chat.Agent[struct{}]) (*countingAgent, error))(nil),
			&handlers{Reply: reply}),
	} {
		if _, err := dohost.Open(t.TempDir(), nil, class); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A call of the handler whose model was cut off counts once for MaxAttempts.
func TestReplyCountsTruncatedAnswersOnce(t *testing.T) {
	var attempts []int
	c := &countingState{words: 1}
	c.more = func(_ *countingAgent, _ context.Context, r *chat.Reply, _ int) error {
		attempts = append(attempts, r.Attempt)
		return &chat.ModelError{Truncated: true, Message: "cut off"}
	}
	o := chat.Options{Recovery: chat.Recovery{MaxAttempts: 2}}
	runWithHost(t, countingClass(c, o), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		if err := r.until(ctx, func() bool { return r.ended["one"].Done }, nil); err != nil {
			t.Fatal(err)
		}
		r.close()
		if got := fmt.Sprint(attempts); got != "[0 1 2]" {
			t.Errorf("the attempts %s, want [0 1 2]", got)
		}
		wantInspected(t, h, "request", "request one error: 3 runs, "+
			`": cut off" map[idle:0 recoveries:2 runs:3]`)
	})
}

// truncatedOnce is a handler whose model is cut off in its first call.
func truncatedOnce(ctx context.Context, r *chat.Reply, calls *[]string) error {
	*calls = append(*calls, fmt.Sprint(r.ID, " ", r.Attempt))
	if len(*calls) == 1 {
		return &chat.ModelError{Truncated: true, Message: "cut off"}
	}
	return r.Say(ctx, "x")
}

// askAndWait asks from the program, calls during half a second later, and returns the statuses of the requests.
func askAndWait(t *testing.T, h *dohosttest.Host, during func(), ids ...string) (statuses []string) {
	t.Helper()
	p := countingAgents.Get(h, testID.Name)
	err := p.Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
		for _, id := range ids {
			if _, err := chat.Ask(ctx, p, []chat.Message{chat.Text(id, chat.RoleUser, id)}, &chat.AskOptions{ID: id}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Advance(500 * time.Millisecond)
	during()
	h.Advance(time.Minute)
	err = p.Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
		for _, id := range ids {
			r, ok, err := chat.Wait(ctx, p, id)
			if err != nil || !ok {
				return fmt.Errorf("%s: known %t, %w", id, ok, err)
			}
			statuses = append(statuses, fmt.Sprintf("%s %s %s", id, r.Status, r.Error))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return statuses
}

// The end of an incarnation while a reply waits after a cut-off answer is no second attempt.
func TestReplyChargesOneAttemptForTruncatedAnswerAndEviction(t *testing.T) {
	var calls []string
	class := countingClassOf(&countingState{}, &handlers{
		Reply:   func(_ *countingAgent, ctx context.Context, r *chat.Reply) error { return truncatedOnce(ctx, r, &calls) },
		Options: chat.Options{Recovery: chat.Recovery{MaxAttempts: 1}},
	})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		got := askAndWait(t, h, func() { h.Evict(testID, dohost.EndFence) }, "one")
		if all := fmt.Sprint(calls, got); all != "[one 0 one 1] [one completed ]" {
			t.Error(all)
		}
	})
}

// A stop that is rolled back leaves a reply that has not begun: its first call is not a recovery.
func TestReplyBeginsAfterFailedCancel(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("off %t", off), func(t *testing.T) {
			var calls []string
			class := countingClassOf(&countingState{}, &handlers{
				Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
					calls = append(calls, fmt.Sprint(r.ID, " ", r.Attempt))
					return r.Say(ctx, r.ID)
				},
				Options: chat.Options{Recovery: chat.Recovery{Off: off}},
			})
			o := &dohosttest.Options{Classes: []dohost.Class{class}, Options: dohost.Options{MaxEvents: 5}}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				p := countingAgents.Get(h, testID.Name)
				err := p.Do(t.Context(), func(ctx context.Context, p *countingAgent) error {
					for _, id := range []string{"one", "two"} {
						if _, err := chat.Ask(ctx, p, []chat.Message{chat.Text(id, chat.RoleUser, id)}, &chat.AskOptions{ID: id}); err != nil {
							return err
						}
					}
					for {
						err := p.Object().Go(ctx, "fill", func(ctx context.Context) error { return dohost.Sleep(ctx, 10*time.Second) })
						if errors.Is(err, dohost.ErrOverloaded) {
							break
						} else if err != nil {
							return err
						}
					}
					if _, err := chat.Cancel(ctx, p, "one"); !errors.Is(err, dohost.ErrOverloaded) { // the next reply has no task
						return fmt.Errorf("Cancel: %v, want an overloaded object", err)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				h.Advance(time.Minute)
				got := askAndWait(t, h, func() {}, "one", "two")
				if all := fmt.Sprint(calls, got); all != "[one 0 two 0] [one completed  two completed ]" {
					t.Error(all)
				}
			})
		})
	}
}

// A reply that ends with a call for a client is complete, also if its model was then cut off and a bound is exceeded.
func TestReplyThatIsTruncatedWaitsForClient(t *testing.T) {
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			if r.Attempt > 0 {
				for i := range 6 {
					if err := r.Say(ctx, fmt.Sprint(i, " ")); err != nil {
						return err
					}
				}
				if err := sendChunks(ctx, r, map[string]any{"type": "tool-input-available", "toolCallId": "c", "toolName": "ask", "input": 7}); err != nil {
					return err
				}
			}
			return &chat.ModelError{Truncated: true, Message: "cut off"}
		},
		Options: chat.Options{Recovery: chat.Recovery{MaxChunks: 2, FailureMessage: "no more"}},
	})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", map[string]any{"clientTools": []any{map[string]any{"name": "ask"}}})
		if f := r.waitEnd(t, "one"); f.Outcome != string(chat.StatusCompleted) {
			t.Errorf("%v %q", f.Outcome, f.Body)
		}
		r.close()
	})
}

// Clients get FailureMessage when a bound is exceeded after a cut-off answer; the program gets the model's error.
func TestReplyThatIsTruncatedIsGivenUpWithFailureMessage(t *testing.T) {
	class := countingClassOf(&countingState{}, &handlers{
		Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
			for i := range 4 {
				if err := r.Say(ctx, fmt.Sprint(i, " ")); err != nil {
					return err
				}
			}
			return &chat.ModelError{Truncated: true, Message: "cut off"}
		},
		Options: chat.Options{Recovery: chat.Recovery{MaxChunks: 2, FailureMessage: "no more"}},
	})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "count", nil)
		if f := r.waitEnd(t, "one"); f.Body != "no more" {
			t.Errorf("%q", f.Body)
		}
		r.close()
		if got := inspected(t, h, "request"); len(got) != 1 || !strings.Contains(got[0], `": cut off"`) {
			t.Errorf("%q", got)
		}
	})
}

// An OnResponse that ends its incarnation is called six times.
func TestOnResponseThatPanicsIsBounded(t *testing.T) {
	n := 0
	class := countingClassOf(&countingState{words: 1}, &handlers{
		Reply:      (*countingAgent).reply,
		OnResponse: func(*countingAgent, context.Context, chat.Response) error { n++; panic("out of memory") },
	})
	runWithHost(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		got := askAndWait(t, h, func() { h.Advance(time.Hour) }, "one")
		if fmt.Sprint(got) != "[one completed ]" || n != 6 {
			t.Errorf("%v after %d calls of OnResponse", got, n)
		}
	})
}
