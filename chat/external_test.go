package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// external is a tool whose calls are handed over by run, which gets the call.
func external(name string, e chat.External, run func(ctx context.Context, c chat.Call) (any, error)) chat.Tool {
	return chat.Tool{ToolSpec: chat.ToolSpec{Name: name}, External: &e, Run: func(ctx context.Context, _ json.RawMessage) (any, error) {
		c, _ := chat.CallFrom(ctx)
		return run(ctx, c)
	}}
}

// externalTool returns an external tool that stores the key of its latest call.
func externalTool(key *string, e chat.External) chat.Tool {
	return external("a", e, func(_ context.Context, c chat.Call) (any, error) { *key = c.Key; return nil, nil })
}

// complete completes a call, waits for the effects, and reports whether the completion was applied.
func complete(t *testing.T, ctx context.Context, h *dohosttest.Host, c chat.Completion) (applied bool) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) (err error) {
		applied, err = chat.Complete(ctx, p, &c)
		return err
	})
	h.Advance(5 * time.Second)
	return applied
}

func findCall(t *testing.T, ctx context.Context, h *dohosttest.Host, key string) (c chat.Call) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		found, ok, err := chat.FindCall(ctx, p, key)
		if c = found; !ok {
			err = errors.Join(err, fmt.Errorf("there is no call %q", key))
		}
		return err
	})
	return c
}

func TestCompleteContinuesReply(t *testing.T) {
	for name, c := range map[string]struct {
		by     chat.Completion
		result string
		state  chat.CallState
	}{
		"output":  {chat.Completion{Output: json.RawMessage(`{"n":12345678901234567890}`)}, `output-available {"n":12345678901234567890}`, chat.CallCompleted},
		"nothing": {chat.Completion{}, "output-available null", chat.CallCompleted},
		"error":   {chat.Completion{Error: "no stock"}, "output-error no stock", chat.CallFailed},
		"unknown": {chat.Completion{Error: "no answer", Unknown: true}, "output-error no answer", chat.CallUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{Stall: time.Minute}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
				func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
					h.Advance(48 * time.Hour)
					h.Evict(testID, dohost.EndFence)
					if answer, states := answerOf(t, ctx, h); states["a"] != "external" || answer.PlainText() != "" || m.asked != 1 {
						t.Fatalf("before the result: %v, %q, asked %d times", states, answer.PlainText(), m.asked)
					}
					if found := findCall(t, ctx, h, key); found.State != chat.CallExternal || found.Tool != "a" {
						t.Errorf("%+v", found)
					}
					c.by.Key = key
					if !complete(t, ctx, h, c.by) {
						t.Error("the completion is not applied")
					}
					for range 2 {
						answer, _ := answerOf(t, ctx, h)
						found := findCall(t, ctx, h, key)
						if resultOf(answer, "a") != c.result || answer.PlainText() != "done " || m.asked != 2 || found.State != c.state ||
							string(found.Output) != string(c.by.Output) && found.State == chat.CallCompleted && string(found.Output) != "null" || found.Error != c.by.Error {
							t.Errorf("%s, %q, asked %d times, %+v", resultOf(answer, "a"), answer.PlainText(), m.asked, found)
						}
						if complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage(`"second"`)}) {
							t.Error("a second completion is applied")
						}
					}
				})
		})
	}
}

// TestCompleteDuringReply completes a call before Run has returned, and while another tool of the step runs.
func TestCompleteDuringReply(t *testing.T) {
	for name, c := range map[string]struct {
		at    time.Duration
		run   error // the result of Run
		by    chat.Completion
		want  string
		state chat.CallState
	}{
		"during Run":            {time.Second, nil, chat.Completion{Output: json.RawMessage(`"yes"`)}, `output-available "yes"`, chat.CallCompleted},
		"before an error":       {time.Second, errors.New("timeout"), chat.Completion{}, "output-available null", chat.CallCompleted},
		"after Run":             {5 * time.Second, nil, chat.Completion{Output: json.RawMessage(`1`)}, `output-available 1`, chat.CallCompleted},
		"an error":              {5 * time.Second, nil, chat.Completion{Error: "no"}, `output-error no`, chat.CallFailed},
		"an error during Run":   {time.Second, nil, chat.Completion{Error: "no"}, `output-error no`, chat.CallFailed},
		"an error, not known":   {5 * time.Second, nil, chat.Completion{Error: "no", Unknown: true}, `output-error no`, chat.CallUnknown},
		"during Run, not known": {time.Second, nil, chat.Completion{Error: "no", Unknown: true}, `output-error no`, chat.CallUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a", "slow"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{external("a", chat.External{}, func(ctx context.Context, call chat.Call) (any, error) {
					key = call.Key
					return nil, errors.Join(dohost.Sleep(ctx, 3*time.Second), c.run)
				}), sleeper("slow", 20*time.Second, false)}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(c.at)
				c.by.Key = key
				if !complete(t, ctx, h, c.by) {
					t.Error("the completion is not applied")
				}
				if _, states := answerOf(t, ctx, h); states["a"] != string(c.state) || states["slow"] != "running" || m.asked != 1 {
					t.Errorf("%v, asked %d times", states, m.asked)
				}
				h.Advance(time.Minute)
				if answer, states := answerOf(t, ctx, h); resultOf(answer, "a") != c.want || states["a"] != string(c.state) || answer.PlainText() != "done " || m.asked != 2 {
					t.Errorf("%s, %v, %q, asked %d times", resultOf(answer, "a"), states, answer.PlainText(), m.asked)
				}
			})
		})
	}
}

// TestCompleteAfterAnswer completes a call while the handler still runs after Answer, or is interrupted there.
func TestCompleteAfterAnswer(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint("interrupted ", interrupted), func(t *testing.T) {
			key, calls := "", 0
			m := &stepsModel{steps: [][]string{{"a"}}}
			class := countingClassOf(&countingState{}, &handlers{Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
				calls++
				err := chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{externalTool(&key, chat.External{})}})
				return errors.Join(err, dohost.Sleep(ctx, 10*time.Second))
			}})
			runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				if interrupted {
					h.Evict(testID, dohost.EndFence)
					h.Advance(time.Minute)
				}
				complete(t, ctx, h, chat.Completion{Key: key})
				h.Advance(time.Minute)
				if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || m.asked != 2 || calls != 2 {
					t.Errorf("%q, asked %d times in %d calls", answer.PlainText(), m.asked, calls)
				}
			})
		})
	}
}

// TestExternalCallIsHandedOverOnce completes two calls of a step after each other. One has a time limit for its approval.
func TestExternalCallIsHandedOverOnce(t *testing.T) {
	var keys []string
	m := &stepsModel{steps: [][]string{{"a:1", "a:2"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		tool := external("a", chat.External{}, func(_ context.Context, c chat.Call) (any, error) { keys = append(keys, c.Key); return nil, nil })
		tool.Approve = &chat.Approval{Within: time.Hour, If: func(_ context.Context, input json.RawMessage) (bool, error) {
			return string(input) == `{"of":"1"}`, nil
		}}
		return []chat.Tool{tool}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Minute)
		approveCall(t, ctx, h, "a-1-0")
		h.Advance(2 * time.Hour)
		if len(keys) != 2 || m.asked != 1 {
			t.Fatalf("%d keys, asked %d times", len(keys), m.asked)
		}
		for i, key := range keys {
			if c := findCall(t, ctx, h, key); c.State != chat.CallExternal || !c.Expires.IsZero() {
				t.Errorf("%+v", c)
			}
			complete(t, ctx, h, chat.Completion{Key: key})
			if len(keys) != 2 || m.asked != i+1 {
				t.Errorf("after %d results: handed over %d times, asked %d times", i+1, len(keys), m.asked)
			}
		}
	})
}

// TestExternalCallOutlivesRestart discards the chunks of a reply that has handed a call over.
func TestExternalCallOutlivesRestart(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprint("async ", async), func(t *testing.T) {
			var keys []string
			m := &stepsModel{steps: [][]string{{"a", "slow"}}}
			slow := sleeper("slow", 20*time.Second, false)
			slow.Policy = ledger.PolicyIdempotent
			class := countingClassOf(&countingState{}, &handlers{
				Reply: func(_ *countingAgent, ctx context.Context, r *chat.Reply) error {
					return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{
						external("a", chat.External{Async: async}, func(_ context.Context, c chat.Call) (any, error) {
							keys = append(keys, c.Key)
							return nil, nil
						}), slow}})
				},
				OnRecovery: func(*countingAgent, context.Context, *chat.InterruptedReply) (chat.RecoveryAction, error) {
					return chat.RecoveryRestart, nil
				},
			})
			runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(time.Second)
				h.Evict(testID, dohost.EndFence)
				h.Advance(time.Minute)
				if len(keys) != 1 {
					t.Fatalf("the call was handed over %d times", len(keys))
				}
				if _, states := answerOf(t, ctx, h); states["a"] != "external" || states["slow"] != "completed" {
					t.Errorf("%v", states)
				}
				if !complete(t, ctx, h, chat.Completion{Key: keys[0], Output: json.RawMessage("7")}) {
					t.Error("the completion is not applied")
				}
				h.Advance(time.Minute)
				c := findCall(t, ctx, h, keys[0])
				if answer, _ := answerOf(t, ctx, h); answer.PlainText() != "done " || c.State != chat.CallCompleted || string(c.Output) != "7" || len(keys) != 1 {
					t.Errorf("%q, %+v, handed over %d times", answer.PlainText(), c, len(keys))
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
			})
		})
	}
}

// TestExternalCallAsyncIsCompletedBeforeInterruption ends the incarnation between Complete and the end of Run.
func TestExternalCallAsyncIsCompletedBeforeInterruption(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{external("a", chat.External{Async: true}, func(ctx context.Context, c chat.Call) (any, error) {
			key = c.Key
			return nil, dohost.Sleep(ctx, 30*time.Second)
		})}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		complete(t, ctx, h, chat.Completion{Key: key, Output: json.RawMessage("7")})
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		c := findCall(t, ctx, h, key)
		if answer, _ := answerOf(t, ctx, h); !strings.Contains(resultOf(answer, "a"), "queued") || answer.PlainText() != "done " || string(c.Output) != "7" {
			t.Errorf("%s, %q, %+v", resultOf(answer, "a"), answer.PlainText(), c)
		}
	})
}

// TestResultIsUsedOnce has a reply that uses a result itself, since it is interrupted after the result came. The continuation
// that Complete has queued does not ask the model again.
func TestResultIsUsedOnce(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a", "slow"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		slow := sleeper("slow", 20*time.Second, false)
		slow.Policy = ledger.PolicyIdempotent
		return []chat.Tool{externalTool(&key, chat.External{}), slow}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		complete(t, ctx, h, chat.Completion{Key: key})
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		if answer, states := answerOf(t, ctx, h); answer.PlainText() != "done " || states["slow"] != "completed" || m.asked != 2 {
			t.Errorf("%q, %v, asked %d times", answer.PlainText(), states, m.asked)
		}
	})
}

func TestExternalCallThatIsNotHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		policy ledger.Policy
		run    func(ctx context.Context, p *countingAgent, runs int) (any, error)
		state  string
		result string
		runs   int
	}{
		"refused": {0, func(context.Context, *countingAgent, int) (any, error) {
			return nil, ledger.NoEffect(errors.New("full"))
		},
			"failed", "output-error full", 1},
		"error": {0, func(context.Context, *countingAgent, int) (any, error) { return nil, errors.New("broken") },
			"unknown", "output-error broken", 1},
		"result": {0, func(context.Context, *countingAgent, int) (any, error) { return 1, nil },
			"unknown", "output-error the tool is external, but its Run has returned a result", 1},
		"interrupted": {0, func(ctx context.Context, p *countingAgent, _ int) (any, error) {
			return nil, p.Object().Abort(ctx, errors.New("enough"), nil)
		}, "unknown", "output-error The call was interrupted. Whether it took effect is not known.", 1},
		"handed over again": {ledger.PolicyIdempotent, func(ctx context.Context, p *countingAgent, runs int) (any, error) {
			if runs < 3 {
				return nil, p.Object().Abort(ctx, errors.New("enough"), nil)
			}
			return nil, nil
		}, "external", " ", 3},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(p *countingAgent) []chat.Tool {
				tool := external("a", chat.External{}, func(ctx context.Context, _ chat.Call) (any, error) { runs++; return c.run(ctx, p, runs) })
				tool.Policy = c.policy
				return []chat.Tool{tool}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(10 * time.Minute)
				answer, states := answerOf(t, ctx, h)
				want := map[bool]string{false: "done ", true: ""}[c.state == "external"]
				if result := resultOf(answer, "a"); states["a"] != c.state || !strings.HasSuffix(result, c.result) || runs != c.runs || answer.PlainText() != want {
					t.Errorf("%s, %s after %d runs, %q", states["a"], result, runs, answer.PlainText())
				}
			})
		})
	}
}

func TestExternalCallExpires(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprint("async ", async), func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{externalTool(&key, chat.External{Within: time.Hour, Async: async})}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(59 * time.Minute)
				if c := findCall(t, ctx, h, key); c.State != chat.CallExternal || c.Expires.IsZero() {
					t.Errorf("after 59 minutes: %+v", c)
				}
				before, _ := answerOf(t, ctx, h)
				h.Evict(testID, dohost.EndKill)
				h.Advance(2 * time.Minute)
				const text = "The call was not completed in time. Whether it took effect is not known."
				for range 2 {
					answer, _ := answerOf(t, ctx, h)
					want := map[bool]string{false: "output-error " + text, true: resultOf(before, "a")}[async]
					if c := findCall(t, ctx, h, key); c.State != chat.CallUnknown || c.Error != text || resultOf(answer, "a") != want || answer.PlainText() != "done " || m.asked != 2 {
						t.Errorf("%+v, %s, %q, asked %d times", c, resultOf(answer, "a"), answer.PlainText(), m.asked)
					}
					if complete(t, ctx, h, chat.Completion{Key: key}) {
						t.Error("a late completion is applied")
					}
				}
			})
		})
	}
}

// TestCompleteAfterOverdueExpiry keeps the turn until the time of a call has passed, so that the schedule of its expiry is late.
func TestCompleteAfterOverdueExpiry(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{externalTool(&key, chat.External{Within: time.Minute})}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			time.Sleep(2 * time.Minute)
			applied, err := chat.Complete(ctx, p, &chat.Completion{Key: key})
			if applied {
				t.Error("a late completion is applied")
			}
			return err
		})
		h.Advance(time.Minute)
		if c := findCall(t, ctx, h, key); c.State != chat.CallUnknown || m.asked != 2 {
			t.Errorf("%+v, asked %d times", c, m.asked)
		}
	})
}

func TestExternalCallAsync(t *testing.T) {
	for name, c := range map[string]struct {
		own  any           // the result of Run
		run  time.Duration // of Run
		by   chat.Completion
		want chat.CallState
	}{
		"output":             {nil, 0, chat.Completion{Output: json.RawMessage(`{"n":1}`)}, chat.CallCompleted},
		"own result":         {map[string]int{"ticket": 7}, 0, chat.Completion{Output: json.RawMessage(`2`)}, chat.CallCompleted},
		"error":              {nil, 0, chat.Completion{Error: "no"}, chat.CallFailed},
		"unknown":            {nil, 0, chat.Completion{Error: "no", Unknown: true}, chat.CallUnknown},
		"before Run returns": {nil, 30 * time.Second, chat.Completion{Output: json.RawMessage(`3`)}, chat.CallCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{{"a"}}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{external("a", chat.External{Async: true}, func(ctx context.Context, call chat.Call) (any, error) {
					key = call.Key
					return c.own, dohost.Sleep(ctx, c.run)
				})}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(10 * time.Second)
				want := `output-available {"id":"` + key + `","status":"queued"}`
				if c.own != nil {
					want = `output-available {"ticket":7}`
				}
				if c.run == 0 {
					if answer, states := answerOf(t, ctx, h); states["a"] != "external" || resultOf(answer, "a") != want || answer.PlainText() != "done " {
						t.Errorf("%v, %s, %q", states, resultOf(answer, "a"), answer.PlainText())
					}
				}
				c.by.Key = key
				if !complete(t, ctx, h, c.by) || complete(t, ctx, h, chat.Completion{Key: key}) {
					t.Error("the first completion is not the only one that is applied")
				}
				h.Advance(time.Minute)
				found := findCall(t, ctx, h, key)
				if found.State != c.want || string(found.Output) != string(c.by.Output) || found.Error != c.by.Error {
					t.Errorf("%+v", found)
				}
				if answer, _ := answerOf(t, ctx, h); resultOf(answer, "a") != want || answer.PlainText() != "done " || m.asked != 2 {
					t.Errorf("%s, %q, asked %d times", resultOf(answer, "a"), answer.PlainText(), m.asked)
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
			})
		})
	}
}

func TestCompleteErrors(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool { return []chat.Tool{externalTool(&key, chat.External{})} },
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Second)
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				for _, c := range []struct {
					c    *chat.Completion
					want error
					text string
				}{
					{nil, dohost.ErrMisuse, "is nil"},
					{&chat.Completion{Key: "x"}, chat.ErrNoCall, `"x"`},
					{&chat.Completion{}, chat.ErrNoCall, `""`},
					{&chat.Completion{Key: key, Output: json.RawMessage("{")}, dohost.ErrMisuse, "not JSON"},
					{&chat.Completion{Key: key, Output: json.RawMessage("1"), Error: "x"}, dohost.ErrMisuse, "Output and an Error"},
					{&chat.Completion{Key: key, Unknown: true}, dohost.ErrMisuse, "without an Error"},
					{&chat.Completion{Key: key, Output: json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200))}, nil, "nested"},
				} {
					applied, err := chat.Complete(ctx, p, c.c)
					if applied || err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
						t.Errorf("%+v: %t, %v", c.c, applied, err)
					}
				}
				if _, err := chat.Complete(ctx, p, &chat.Completion{Key: key, Output: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}); err == nil {
					t.Error("no error for an output of more than 1 MiB")
				}
				err := dohost.Transaction(ctx, func(ctx context.Context) error {
					_, err := chat.Complete(ctx, p, &chat.Completion{Key: key})
					return err
				})
				if !errors.Is(err, dohost.ErrMisuse) {
					t.Errorf("in a transaction: %v", err)
				}
				return nil
			})
			if _, states := answerOf(t, ctx, h); states["a"] != "external" {
				t.Errorf("after the errors the call is %s", states["a"])
			}
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return chat.Clear(ctx, p) })
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				if _, err := chat.Complete(ctx, p, &chat.Completion{Key: key}); !errors.Is(err, chat.ErrNoCall) {
					t.Errorf("after the deletion: %v", err)
				}
				return p.Idle(ctx)
			})
		})
}

const (
	executors dohost.Namespace[executor] = "executor"
	runJob    agent.Callback[string]     = "run"
	mailJob   agent.Callback[string]     = "complete"
	handOver  agent.Callback[string]     = "hand over"
)

// executor is an agent that runs the external calls of another one: an effect on a service, and its completion.
type executor struct {
	*agent.Agent[struct{}]
	bank *dohosttest.FakeService
}

func executorClass(bank *dohosttest.FakeService) dohost.Class {
	retry := &agent.QueueOptions{Retry: dohost.RetryPolicy{MaxAttempts: 100}}
	return agent.Bind(executors, func(_ context.Context, a *agent.Agent[struct{}]) (*executor, error) { return &executor{a, bank}, nil }, nil,
		agent.OnSchedule(runJob, func(x *executor, ctx context.Context, key string) error {
			err := dohost.Await(ctx, func(ctx context.Context) error { return bank.Call(ctx, key, "job") })
			if err != nil {
				return err
			}
			_, err = agent.Enqueue(ctx, x, mailJob, key, retry)
			return err
		}),
		agent.OnSchedule(mailJob, func(x *executor, ctx context.Context, key string) error {
			return countingAgents.Get(x.Object(), testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				_, err := chat.Complete(ctx, p, &chat.Completion{Key: key, Output: json.RawMessage(`"receipt"`)})
				return err
			})
		}))
}

// delegatingClass is a class of agents with an external tool. Its Run puts the call into the agent's queue, which hands it to the
// executor, again after errors.
func delegatingClass(m chat.Model, e chat.External) dohost.Class {
	often := dohost.RetryPolicy{MaxAttempts: 100}
	return chat.Bind(countingAgents, func(_ context.Context, a *chat.Agent[struct{}]) (*countingAgent, error) {
		return &countingAgent{a, &countingState{}}, nil
	}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		tool := external("a", e, func(ctx context.Context, c chat.Call) (any, error) {
			_, err := agent.Enqueue(ctx, p, handOver, c.Key, &agent.QueueOptions{ID: c.Key, Retry: often})
			return nil, err
		})
		tool.Policy = ledger.PolicyIdempotent
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
	}}, agent.OnSchedule(handOver, func(p *countingAgent, ctx context.Context, key string) error {
		return executors.Get(p.Object(), "x").Do(ctx, func(ctx context.Context, x *executor) error {
			_, err := agent.Enqueue(ctx, x, runJob, key, &agent.QueueOptions{ID: key, Retry: often})
			return err
		})
	}))
}

// TestExternalCallsAtEveryPoint ends an assistant and the executor of its calls everywhere: two calls of one step, and one of
// the next. Each call has one effect, and the model receives each result once.
func TestExternalCallsAtEveryPoint(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprint("async ", async), func(t *testing.T) {
			t.Parallel()
			bank := dohosttest.FakeService{Idempotent: true}
			m := &stepsModel{steps: [][]string{{"a:1", "a:2"}, {"a:3"}}}
			class := delegatingClass(m, chat.External{Async: async})
			s := variant(scenario(&countingState{}, &testClients{}, class))
			s.FullDisk = false // a tool's own write fails, and the model gets the error
			s.Classes = append(s.Classes, executorClass(&bank))
			s.Services = []*dohosttest.FakeService{&bank}
			s.Pairs = min(s.Pairs, 5)
			s.Run = func(ctx context.Context, h *dohosttest.Host) error { return runExternal(ctx, h) }
			s.Check = func(ctx context.Context, h *dohosttest.Host) error { return checkExternal(ctx, h, &bank, async) }
			dohosttest.EveryPoint(t, s)
		})
	}
}

// runExternal asks, again after errors, until the assistant has answered and all calls have ended.
func runExternal(ctx context.Context, h *dohosttest.Host) error {
	for over := false; !over; time.Sleep(10 * time.Second) {
		err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
			if _, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, &chat.AskOptions{ID: "one"}); err != nil {
				return err
			}
			list, err := chat.Messages(ctx, p, 1)
			if err != nil || list[0].PlainText() != "done " {
				return err
			}
			for range chat.Calls(ctx, p) {
				return nil
			}
			over = true
			return nil
		})
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// checkExternal checks the calls of TestExternalCallsAtEveryPoint: the bank is the judge of their effects.
func checkExternal(ctx context.Context, h *dohosttest.Host, bank *dohosttest.FakeService, async bool) error {
	return countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		list, err := chat.Messages(ctx, p, 0)
		if err != nil || len(list) != 2 {
			return fmt.Errorf("%d messages: %w", len(list), err)
		}
		if len(bank.Keys()) != 3 {
			parts, _ := json.Marshal(list[1].Parts)
			return fmt.Errorf("%d effects, want 3: %s", len(bank.Keys()), parts)
		}
		for _, key := range bank.Keys() {
			c, ok, err := chat.FindCall(ctx, p, key)
			if err != nil || !ok || c.State != chat.CallCompleted || string(c.Output) != `"receipt"` || bank.Effects(key) != 1 {
				return fmt.Errorf("call %+v, %t, with %d effects: %w", c, ok, bank.Effects(key), err)
			}
		}
		results, steps := 0, 0
		for _, part := range list[1].Parts {
			want := `"receipt"`
			if c, ok := strings.CutPrefix(string(part.Member("output")), `{"id":"call_`); async && ok && strings.HasSuffix(c, `,"status":"queued"}`) {
				want = string(part.Member("output"))
			}
			switch {
			case part.Type() == "step-start":
				steps++
			case part.Type() == "tool-a" && string(part.Member("output")) == want:
				results++
			case part.Type() == "tool-a":
				return fmt.Errorf("call %s is %s: %s", part.Text("toolCallId"), part.Text("state"), part.Member("output"))
			}
		}
		if results != 3 || steps < 3 || list[1].PlainText() != "done " {
			return fmt.Errorf("%d results in %d steps, %q", results, steps, list[1].PlainText())
		}
		return p.Idle(ctx)
	})
}
