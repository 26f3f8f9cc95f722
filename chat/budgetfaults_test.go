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
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/objectstore"
)

// outputPrice is the price of a model whose input is free.
func outputPrice(u chat.Usage) int64 { return u.OutputTokens }

// A budget that is exhausted by a tool call in the middle of an answer cuts that answer off. Its complete calls run, as those of an
// interrupted answer, then the reply waits for the decision, and after the approval the model gets the results.
func TestBudgetSuspendsAfterCalls(t *testing.T) {
	large := `{"text":"` + strings.Repeat("w", 200) + `"}` // 50 tokens
	for _, c := range []struct {
		name   string
		calls  []chat.Chunk
		waits  bool // for the approval of the tool
		result string
	}{
		{"complete", []chat.Chunk{chat.ToolInput("work-1", "work", large)}, false, `output-available "done"`},
		{"incomplete", toolInputPieces("work-1", "work", large), false, "output-error "},
		{"approved", []chat.Chunk{chat.ToolInput("work-1", "work", large)}, true, `output-available "done"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, ran := 0, 0
			m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
				if asked++; asked > 1 {
					yield(chat.TextDelta("t", "end"), nil)
					return
				}
				for _, chunk := range append(c.calls, chat.TextDelta("t", "too much")) {
					if !yield(chunk, nil) {
						return
					}
				}
			})
			type input struct {
				Text string `json:"text"`
			}
			work := chat.NewTool("work", "", func(context.Context, input) (string, error) { ran++; return "done", nil }, nil)
			if c.waits {
				work.Approve = &chat.Approval{}
			}
			o := chat.Options{Price: outputPrice, Budget: chat.Budget{Reply: chat.Limit{Cost: 20}}}
			runTools(t, m, o, func(*countingAgent) []chat.Tool { return []chat.Tool{work} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(10 * time.Second)
				if c.waits {
					approveCall(t, ctx, h, "work-1")
				}
				if asked != 1 {
					t.Errorf("the model was asked %d times before the decision", asked)
				}
				decideBudget(t, ctx, h, true)
				answer, _ := answerOf(t, ctx, h)
				if got := resultOf(answer, "work"); !strings.HasPrefix(got, c.result) || answer.PlainText() != "end" || ran > 1 || asked != 2 || c.waits && ran != 1 {
					t.Errorf("the tool ran %d times, its result is %q; the model was asked %d times, the text is %q", ran, got, asked, answer.PlainText())
				}
				inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.Idle(ctx) })
			})
		})
	}
}

// toolInputPieces returns the input of a call that has no end.
func toolInputPieces(id, tool, input string) (list []chat.Chunk) {
	for _, m := range []map[string]string{
		{"type": "tool-input-start", "toolCallId": id, "toolName": tool},
		{"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": input},
	} {
		var c chat.Chunk
		raw, err := json.Marshal(m)
		if err = errors.Join(err, json.Unmarshal(raw, &c)); err != nil {
			panic(err)
		}
		list = append(list, c)
	}
	return list
}

// A call that lasts beyond midnight counts on the day on which it began, so the budget of that day stops it.
func TestBudgetOfDayAfterMidnight(t *testing.T) {
	m := &thriftyModel{words: 35, pace: time.Second}
	o := chat.Options{Budget: chat.Budget{Day: chat.Limit{Tokens: 41}}}
	runWithHost(t, toolClass(m, o, func(*countingAgent) []chat.Tool { return nil }), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		today := time.Now().UTC()
		h.Advance(today.Truncate(24 * time.Hour).Add(24*time.Hour - 10*time.Second).Sub(today))
		day := time.Now().UTC().Format(time.DateOnly)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u", chat.RoleUser, "go")}, nil)
			return err
		})
		h.Advance(2 * time.Minute)
		wantReply(t, ctx, h, 20, "approval-requested", 0)
		if c := decideBudget(t, ctx, h, true); !strings.Contains(c.Input, day) {
			t.Errorf("the input is %s, want the day %s", c.Input, day)
		}
		h.Advance(time.Minute)
		wantReply(t, ctx, h, 35, "output-available", 0)
	})
}

// An approval that is withdrawn while the disk is full, so that it could not be applied, grants nothing.
func TestApprovalThatIsWithdrawnGrantsNothing(t *testing.T) {
	refused := 0
	for i, after := range []time.Duration{200, 700} { // ms, the attempts of the reply and of the refusal are 500 ms apart
		var disk *objectstore.FS
		fills := false
		m := &thriftyModel{words: 40}
		class := countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
			if fills {
				fills = false
				disk.SetFree(0)
				if err := dohost.Sleep(ctx, 20*time.Second); err != nil {
					return err
				}
			}
			return chat.Answer(ctx, r, m, nil)
		}, Options: chat.Options{Budget: chat.Budget{Reply: chat.Limit{Tokens: 61}}}})
		runLong(t, func(t *testing.T, h *dohost.Host, fs *objectstore.FS) {
			disk = fs
			askToGo(t, h)
			time.Sleep(10 * time.Second)
			decide := func(approve bool) (err error) {
				inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
					call, waitErr := firstCall(ctx, p)
					if waitErr != nil {
						return waitErr
					}
					err = chat.Decide(ctx, p, &chat.Decision{Call: call.ID, Approve: approve, Actor: "op"})
					return nil
				})
				return err
			}
			fills = true
			if err := decide(true); err != nil {
				t.Error(err)
			}
			go func() {
				time.Sleep(25*time.Second + after*time.Millisecond)
				fs.SetFree(1 << 40)
			}()
			time.Sleep(20500 * time.Millisecond)
			late := decide(false)
			time.Sleep(time.Minute)
			inAgent(t, h, func(ctx context.Context, p *countingAgent) error {
				list, err := chat.Messages(ctx, p, 1)
				if err != nil {
					return err
				}
				n, err := chat.BudgetGrants(ctx, p, chat.BudgetOfReply, list[0].ID)
				words := strings.Count(list[0].PlainText(), "w")
				if late == nil {
					refused++
				}
				if late == nil && (n != 0 || words != 30) || late != nil && (!errors.Is(late, chat.ErrDecided) || n != 1 || words != 40) {
					t.Errorf("run %d: the refusal returns %v, and there are %d grants and %d words", i, late, n, words)
				}
				return errors.Join(err, p.Idle(ctx))
			})
		}, class)
	}
	if refused == 0 {
		t.Error("no refusal came before the grant")
	}
}

func firstCall(ctx context.Context, p *countingAgent) (call chat.Call, err error) {
	for c, err := range chat.Calls(ctx, p) {
		return c, err
	}
	return call, errors.New("no call is open")
}

// An error of a model that looks like that of a budget fails the reply: no approval would help.
func TestBudgetErrorOfModel(t *testing.T) {
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		yield(chat.Chunk{}, fmt.Errorf("another agent: %w", &chat.BudgetError{Scope: chat.BudgetOfAgent, Measure: "cost", Spent: 1, Limit: 1}))
	})
	replyWith(t, m, chat.Options{}, nil, func(ctx context.Context, p *countingAgent, r chat.Response) error {
		calls, err := collectCalls(ctx, p)
		if r.Status != chat.StatusFailed || !strings.Contains(r.Error, "another agent") || len(calls) != 1 || calls[0].Outcome != chat.ModelCallFailed {
			t.Errorf("%s: %q; %+v", r.Status, r.Error, calls)
		}
		return err
	})
}

// A client whose approval is refused learns the reason, and gets the stored message, since the published client has applied the approval
// to its copy.
func TestApprovalOfClientThatIsRefusedIsExplained(t *testing.T) {
	m := &thriftyModel{words: 40}
	runBudget(t, m, chat.Budget{Reply: chat.Limit{Tokens: 61}}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "mallory")
		defer r.close()
		id := r.calls("approval-requested")[0]
		r.sendFrame(ctx, map[string]any{"type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": true})
		f := r.receiveUntil(t, func(f frame) bool { return f.Error != nil })
		if text := fmt.Sprint(f.Error); !strings.Contains(text, id) || !strings.Contains(text, "clients may not approve") {
			t.Errorf("the error is %q", text)
		}
		f = r.receiveUntil(t, func(f frame) bool { return f.Message.ID != "" })
		if last := f.Message.Parts[len(f.Message.Parts)-1]; last.CallID != id || last.State != "approval-requested" {
			t.Errorf("the stored call is %+v", last)
		}
	})
}

// The error of a limit names it.
func TestBudgetLimitsAreChecked(t *testing.T) {
	for want, b := range map[string]chat.Budget{
		"Budget.Reply": {Reply: chat.Limit{Tokens: -1}}, "Budget.Day": {Day: chat.Limit{Cost: -1}}, "Budget.Agent": {Agent: chat.Limit{Time: time.Microsecond}},
	} {
		w := &chat.Worker[string, string]{Name: "w", Model: &thriftyModel{}, Budget: b}
		_, err := dohost.Open(t.TempDir(), nil, toolClass(&thriftyModel{}, chat.Options{Budget: b}, nil))
		for prefix, err := range map[string]error{"chat: Options.": err, `chat: worker "w": `: w.Check()} {
			if err == nil || !strings.Contains(err.Error(), prefix+want+" ") {
				t.Errorf("%v, want %s%s", err, prefix, want)
			}
		}
	}
}

// A reply without a text has a message that consists of the call about the budget. No model gets a message without parts.
func TestBudgetCallAloneIsNoMessageOfThePrompt(t *testing.T) {
	empty, asked := 0, 0
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		asked++
		for _, message := range p.Messages {
			if len(message.Parts) == 0 {
				empty++
			}
		}
		<-ctx.Done()
	})
	o := chat.Options{Budget: chat.Budget{Reply: chat.Limit{Time: time.Second}}}
	runTools(t, m, o, func(*countingAgent) []chat.Tool { return nil }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("v", chat.RoleUser, "again")}, nil)
			return err
		})
		h.Advance(10 * time.Second)
		if asked != 2 || empty != 0 {
			t.Errorf("the model was asked %d times, with %d messages without parts", asked, empty)
		}
	})
}

// A worker that a budget refuses runs after the approval, if the model calls its tool again, as the error says.
func TestWorkerToolAfterBudget(t *testing.T) {
	w := &chat.Worker[struct{}, string]{Name: "w", Model: promptModel(func(*chat.Prompt) []chat.Chunk { return says("worked") })}
	var results []string
	asked := 0
	m := modelFunc(func(ctx context.Context, p *chat.Prompt, yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Type() == "tool-w" {
				results = append(results, part.Text("errorText")+string(part.Member("output")))
			}
		}
		switch asked++; asked {
		case 1, 2:
			yield(chat.ToolInput(fmt.Sprint("w-", asked), "w", `{}`), nil)
			if asked == 1 {
				p.ReportUsage(ctx, chat.Usage{OutputTokens: 100})
			}
		default:
			yield(chat.TextDelta("t", "end"), nil)
		}
	})
	o := chat.Options{Price: outputPrice, Budget: chat.Budget{Reply: chat.Limit{Cost: 100}}}
	runTools(t, m, o, func(*countingAgent) []chat.Tool { return []chat.Tool{w.Tool()} }, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		decideBudget(t, ctx, h, true)
		if len(results) != 3 || !strings.Contains(results[0], "the budget of the reply is exhausted") || !strings.Contains(results[0], "call the tool again") || results[2] != `"worked"` {
			t.Errorf("the model has seen the results %q", results)
		}
	})
}

// A run that is interrupted before the chunk that asks for the decision asks when it resumes.
func TestSuspensionInterruptedBeforeItAsks(t *testing.T) {
	m, first := &thriftyModel{words: 40}, true
	class := countingClassOf(&countingState{}, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		err := chat.Answer(ctx, r, m, nil)
		if err == nil && first {
			first = false
			err = dohost.Sleep(ctx, time.Hour)
		}
		return err
	}, Options: chat.Options{Budget: chat.Budget{Reply: chat.Limit{Tokens: 61}}}})
	runAsked(t, class, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
			chunk, err := p.CutLog(ctx)
			if chunk != "tool-approval-request" {
				t.Errorf("the last chunk is %s", chunk)
			}
			return err
		})
		h.Evict(testID, dohost.EndFence)
		h.Advance(time.Minute)
		wantReply(t, ctx, h, 30, "approval-requested", 0)
		decideBudget(t, ctx, h, true)
		wantReply(t, ctx, h, 40, "output-available", 1)
	})
}
