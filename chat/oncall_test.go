package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// onCallClass is toolClass with OnCall.
func onCallClass(m chat.Model, tools []chat.Tool, onCall func(*countingAgent, context.Context, chat.Call) error) dohost.Class {
	return countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: tools})
	}, OnCall: onCall})
}

// TestOnCall compares the states that OnCall gets, in their order, with the results.
func TestOnCall(t *testing.T) {
	key := ""
	fails := func(err error) chat.Tool {
		return chat.Tool{Run: func(context.Context, json.RawMessage) (any, error) { return nil, err }}
	}
	approved := func(then chat.Tool) chat.Tool { then.Approve = &chat.Approval{Within: time.Hour}; return then }
	decide := func(approve bool) func(context.Context, *countingAgent) error {
		return func(ctx context.Context, p *countingAgent) error {
			return chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0", Approve: approve})
		}
	}
	finish := func(c chat.Completion) func(context.Context, *countingAgent) error {
		return func(ctx context.Context, p *countingAgent) error {
			c.Key = key
			_, err := chat.Complete(ctx, p, &c)
			return err
		}
	}
	ran := 0
	for name, c := range map[string]struct {
		tool chat.Tool
		then func(context.Context, *countingAgent) error
		want []string
	}{
		"result":            {sleeper("a", time.Second, false), nil, []string{"pending", "running", `completed "a"`}},
		"no effect":         {fails(ledger.NoEffect(errors.New("no"))), nil, []string{"pending", "running", "failed no"}},
		"error":             {fails(errors.New("no answer")), nil, []string{"pending", "running", "unknown no answer"}},
		"approved":          {approved(sleeper("a", 0, false)), decide(true), []string{"pending", "approval", "pending", "running", `completed "a"`}},
		"refused":           {approved(sleeper("a", 0, false)), decide(false), []string{"pending", "approval", "denied"}},
		"not decided":       {approved(sleeper("a", 0, false)), nil, []string{"pending", "approval", "expired The approval expired before a decision."}},
		"external":          {externalTool(&key, chat.External{}), finish(chat.Completion{Output: json.RawMessage(`{"n":1}`)}), []string{"pending", "running", "external", `completed {"n":1}`}},
		"external, error":   {externalTool(&key, chat.External{}), finish(chat.Completion{Error: "no stock"}), []string{"pending", "running", "external", "failed no stock"}},
		"external, late":    {externalTool(&key, chat.External{Within: time.Hour}), nil, []string{"pending", "running", "external", "unknown The call was not completed in time. Whether it took effect is not known."}},
		"asynchronous":      {externalTool(&key, chat.External{Async: true}), finish(chat.Completion{Output: json.RawMessage(`7`)}), []string{"pending", "running", "external", "completed 7"}},
		"asynchronous, bad": {externalTool(&key, chat.External{Async: true}), finish(chat.Completion{Error: "gone"}), []string{"pending", "running", "external", "failed gone"}},
		"of no tool":        {chat.Tool{}, nil, []string{"pending", `failed there is no tool "a"`}},
		"of a client":       {chat.Tool{ToolSpec: chat.ToolSpec{Parameters: json.RawMessage(`{}`)}}, nil, []string{"pending", "client"}},
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			var got []string
			var tools []chat.Tool
			if c.tool.Run != nil || c.tool.Parameters != nil {
				c.tool.Name = "a"
				tools = append(tools, c.tool)
			}
			class := onCallClass(&stepsModel{steps: [][]string{{"a"}}}, tools, func(_ *countingAgent, _ context.Context, call chat.Call) error {
				if call.ID != "a-1-0" || call.Tool != "a" || call.Request != "one" {
					return fmt.Errorf("another call: %+v", call)
				}
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s%s", call.State, call.Output, call.Error)))
				return nil
			})
			runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(5 * time.Second)
				if c.then != nil {
					inEvent(t, ctx, h, c.then)
				}
				h.Advance(2 * time.Hour)
				if !slices.Equal(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// The counters that OnCall keeps agree with the stored calls, wherever the incarnation or the process ends.
func TestOnCallAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &toolModel{countingState: &countingState{words: 2}, tool: "stamp"}, &testClients{}
	tool := chat.Tool{ToolSpec: chat.ToolSpec{Name: "stamp"}, Run: func(ctx context.Context, in json.RawMessage) (any, error) {
		m.runs[string(in)]++
		return "stamped", dohost.Sleep(ctx, 50*time.Millisecond)
	}}
	class := countingClassOf(m.countingState, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
	}, OnCall: func(p *countingAgent, ctx context.Context, c chat.Call) error {
		return dohost.Add(ctx, p.Storage(), "on "+string(c.State), 1)
	}})
	s := m.scenario(all, class)
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			list, err := chat.Messages(ctx, p, 0)
			if err != nil {
				return err
			}
			want, got := map[chat.CallState]int{}, map[chat.CallState]int{}
			for _, part := range list[len(list)-1].Parts {
				switch part.Text("state") {
				case "output-available":
					want[chat.CallCompleted]++
				case "output-error":
					want[chat.CallUnknown]++
				}
			}
			want[chat.CallRunning] = len(m.runs)
			for _, state := range []chat.CallState{chat.CallRunning, chat.CallCompleted, chat.CallUnknown, chat.CallFailed} {
				if got[state], _, err = dohost.Get[int](ctx, p.Storage(), "on "+string(state)); err != nil {
					return err
				}
			}
			ended := want[chat.CallCompleted] + want[chat.CallUnknown]
			if got[chat.CallCompleted] != want[chat.CallCompleted] || got[chat.CallUnknown]+got[chat.CallFailed] != want[chat.CallUnknown] ||
				got[chat.CallRunning] < want[chat.CallRunning] || got[chat.CallRunning] > ended {
				return fmt.Errorf("OnCall has counted %v, the message has %v", got, want)
			}
			return nil
		})
	}
	dohosttest.EveryPoint(t, s)
}

// An error of OnCall changes neither the call nor the reply, is reported, and rolls back the writes of OnCall.
func TestOnCallFails(t *testing.T) {
	ran := 0
	for name, fail := range map[string]func(context.Context, *countingAgent) error{
		"an error":                func(context.Context, *countingAgent) error { return errors.New("no counter") },
		"a wait without the turn": func(ctx context.Context, _ *countingAgent) error { return dohost.Sleep(ctx, time.Second) },
		"messages": func(ctx context.Context, p *countingAgent) error {
			return misuse(chat.SetMessages(ctx, p, []chat.Message{chat.Text("v", chat.RoleUser, "more")}))
		},
		"a request": func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("v", chat.RoleUser, "more")}, nil)
			return misuse(err)
		},
		"a continuation": func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Continue(ctx, p, nil)
			return misuse(err)
		},
		"a decision": func(ctx context.Context, p *countingAgent) error {
			return misuse(chat.Decide(ctx, p, &chat.Decision{Call: "a-1-0"}))
		},
		"a deletion": func(ctx context.Context, p *countingAgent) error { return misuse(chat.Clear(ctx, p)) },
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			var reports []string
			class := onCallClass(&stepsModel{steps: [][]string{{"a"}}}, []chat.Tool{sleeper("a", time.Second, false)},
				func(p *countingAgent, ctx context.Context, _ chat.Call) error {
					return errors.Join(dohost.Add(ctx, p.Storage(), "calls", 1), fail(ctx, p))
				})
			o := &dohosttest.Options{Classes: []dohost.Class{class}, Options: dohost.Options{Listener: dohost.Listener{
				Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
					if event == "chat:failed" {
						reports = append(reports, attrs[0].Value.String()+" "+attrs[1].Value.String())
					}
				},
			}}}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				inEvent(t, t.Context(), h, func(ctx context.Context, p *countingAgent) error {
					_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
					return err
				})
				h.Advance(5 * time.Second)
				answer, _ := answerOf(t, t.Context(), h)
				if resultOf(answer, "a") != `output-available "a"` || answer.PlainText() != "done " {
					t.Errorf("%s, %q", resultOf(answer, "a"), answer.PlainText())
				}
				if want := slices.Repeat([]string{"a-1-0 OnCall"}, 3); !slices.Equal(reports, want) {
					t.Errorf("reports %q, want %q", reports, want)
				}
				inEvent(t, t.Context(), h, func(ctx context.Context, p *countingAgent) error {
					if n, ok, err := dohost.Get[int](ctx, p.Storage(), "calls"); ok || err != nil {
						return fmt.Errorf("the writes of OnCall were kept: %d, %v", n, err)
					}
					return nil
				})
			})
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// misuse returns ErrMisuse if err is that error, and nil otherwise, so that OnCall succeeds.
func misuse(err error) error {
	if errors.Is(err, dohost.ErrMisuse) {
		return err
	}
	return nil
}

// The Output of OnCall is its own: a change of it changes no message.
func TestOnCallChangesItsOutput(t *testing.T) {
	changed, key := 0, ""
	class := onCallClass(&stepsModel{steps: [][]string{{"a"}}}, []chat.Tool{externalTool(&key, chat.External{})},
		func(_ *countingAgent, _ context.Context, c chat.Call) error {
			for i := range c.Output {
				c.Output[i] = '-'
				changed++
			}
			return nil
		})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(5 * time.Second)
		r := connectIdle(t, h, "r") // it gets the changed message
		defer r.close()
		if !complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(`"a"`)}) {
			t.Error("the completion is not applied")
		}
		h.Advance(5 * time.Second)
		if answer, _ := answerOf(t, ctx, h); changed == 0 || resultOf(answer, "a") != `output-available "a"` {
			t.Errorf("%d bytes changed, %s", changed, resultOf(answer, "a"))
		}
	})
}
