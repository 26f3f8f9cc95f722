package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// recordingModel is a stepsModel that records its prompts.
type recordingModel struct {
	stepsModel
	prompts []string
}

// Stream implements [chat.Model].
func (m *recordingModel) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	raw, err := json.Marshal([]any{p.Messages, p.Partial})
	m.prompts = append(m.prompts, string(raw)+fmt.Sprint(err))
	return m.stepsModel.Stream(ctx, p)
}

// deaf is a tool whose calls run for a time, whether or not their context has ended, and return the results.
func deaf(d time.Duration, keep bool, out any, failed error) chat.Tool {
	t := sleeper("a", d, true)
	wait := t.Run
	t.KeepLate = keep
	t.Run = func(ctx context.Context, in json.RawMessage) (any, error) {
		_, err := wait(ctx, in)
		return out, errors.Join(err, failed)
	}
	return t
}

// TestResultsThatAreLate lets calls return after their time, after the stop of their reply, and after the end of the wait for Complete. The
// result is kept only if the tool wants that, and the message and the state of the call do not change.
func TestResultsThatAreLate(t *testing.T) {
	key := ""
	stop := func(ctx context.Context, p *countingAgent) error { _, err := chat.Cancel(ctx, p, "one"); return err }
	finish := func(c chat.Completion) func(context.Context, *countingAgent) error {
		return func(ctx context.Context, p *countingAgent) error {
			c.Key = key
			for _, c := range []chat.Completion{c, {Key: key, Output: json.RawMessage("2")}} { // the first one counts
				if applied, err := chat.Complete(ctx, p, &c); applied || err != nil {
					return fmt.Errorf("applied %t: %w", applied, err)
				}
			}
			return nil
		}
	}
	external := func(e chat.External) chat.Tool { t := externalTool(&key, e); t.KeepLate = true; return t }
	within := func(t chat.Tool, d time.Duration) chat.Tool { t.Timeout = d; return t }
	typed := func(t chat.Tool) chat.Tool { t.Output = chat.OutputOf[struct{ N int }](); return t }
	idempotent := func(t chat.Tool) chat.Tool { t.Policy = ledger.PolicyIdempotent; return t }
	handover := func(t chat.Tool) chat.Tool { t.External = &chat.External{}; return t }
	const output, slow, stopped, expired = `"receipt"`, "The call took longer than 1s.", "", "The call was not completed in time."
	no := errors.New("no stock")
	ran := 0
	for name, c := range map[string]struct {
		tool    chat.Tool
		after   time.Duration // of then
		then    func(context.Context, *countingAgent) error
		message string // the beginning of the error in the message
		late    string // the late result; empty if none is kept
		reports int
	}{
		"after its time":                  {within(deaf(5*time.Second, true, "receipt", nil), time.Second), 0, nil, slow, output, 1},
		"after its time, discarded":       {within(deaf(5*time.Second, false, "receipt", nil), time.Second), 0, nil, slow, "", 1},
		"after its time, with an error":   {within(deaf(5*time.Second, true, nil, no), time.Second), 0, nil, slow, "no stock", 1},
		"after its time, of another form": {typed(within(deaf(5*time.Second, true, "receipt", nil), time.Second)), 0, nil, slow, "does not match", 1},
		"after its time, too large":       {within(deaf(5*time.Second, true, strings.Repeat("x", 2<<20), nil), time.Second), 0, nil, slow, "output of a call has 2097154 bytes", 1},
		"after a stop":                    {deaf(5*time.Second, true, "receipt", nil), time.Second, stop, stopped, output, 1},
		"after a stop, discarded":         {deaf(5*time.Second, false, "receipt", nil), time.Second, stop, stopped, "", 1},
		"after a stop, with an error":     {deaf(5*time.Second, true, nil, no), time.Second, stop, stopped, "no stock", 1},
		"after a stop, idempotent":        {idempotent(deaf(5*time.Second, true, "receipt", nil)), time.Second, stop, stopped, output, 1},
		"stopped with the reply":          {func() chat.Tool { t := sleeper("a", time.Hour, false); t.KeepLate = true; return t }(), time.Second, stop, stopped, "", 0},
		"a late handover":                 {within(handover(deaf(5*time.Second, true, nil, nil)), time.Second), 0, nil, slow, "", 1},
		"after Within":                    {external(chat.External{Within: time.Minute}), time.Hour, finish(chat.Completion{Output: json.RawMessage(output)}), expired, output, 2},
		"after Within, with an error":     {external(chat.External{Within: time.Minute}), time.Hour, finish(chat.Completion{Error: "no stock"}), expired, "no stock", 2},
		"after Within, discarded":         {externalTool(&key, chat.External{Within: time.Minute}), time.Hour, finish(chat.Completion{}), expired, "", 2},
	} {
		ran++
		t.Run(name, func(t *testing.T) {
			tool, m := c.tool, &recordingModel{stepsModel: stepsModel{steps: [][]string{{"a"}}}}
			tool.Name = "a"
			var kept []chat.Call
			class := onCallClass(m, []chat.Tool{tool}, func(_ *countingAgent, _ context.Context, call chat.Call) error {
				if call.Late {
					kept = append(kept, call)
				}
				return nil
			})
			reports := 0
			o := &dohosttest.Options{Classes: []dohost.Class{class}, Options: dohost.Options{Listener: dohost.Listener{
				Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
					if event == "chat:late" {
						reports++
					}
				},
			}}}
			dohosttest.Run(t, o, func(t *testing.T, h *dohosttest.Host) {
				ctx := t.Context()
				ask := func(id string) {
					inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
						_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("u "+id, chat.RoleUser, "go")}, &chat.AskOptions{ID: id})
						return err
					})
				}
				ask("one")
				h.Advance(c.after)
				if c.then != nil {
					inEvent(t, ctx, h, c.then)
				}
				h.Advance(time.Minute)
				checkLate(t, h, kept, c.message, c.late)
				if reports != c.reports {
					t.Errorf("%d reports of late results, want %d", reports, c.reports)
				}
				m.steps = nil
				ask("two") // its prompt has the call
				h.Advance(time.Minute)
				if last := m.prompts[len(m.prompts)-1]; !strings.Contains(last, `"errorText"`) {
					t.Errorf("the last prompt has no call: %s", last)
				}
				for _, r := range m.prompts {
					if c.late != "" && strings.Contains(r, c.late) {
						t.Errorf("the model has received the late result: %s", r)
					}
				}
			})
		})
	}
	if ran == 0 {
		t.Fatal("no case ran")
	}
}

// checkLate compares the late results that OnCall got, and the details of the call, with the wanted one.
func checkLate(t *testing.T, h *dohosttest.Host, kept []chat.Call, message, late string) {
	t.Helper()
	answer, states := answerOf(t, t.Context(), h)
	if got := resultOf(answer, "a"); states["a"] != "unknown" || !strings.HasPrefix(got, "output-error "+message) || late != "" && strings.Contains(got, late) {
		t.Errorf("the call is %s, the message has %q", states["a"], got)
	}
	if n := len(kept); n > 1 || (n == 1) != (late != "") {
		t.Fatalf("%d calls with a late result: %+v", n, kept)
	}
	for _, c := range kept {
		if got := string(c.Output) + c.Error; c.State != chat.CallUnknown || !strings.Contains(got, late) || c.Output != nil && c.Error != "" {
			t.Errorf("OnCall got %+v", c)
		}
	}
	for r, err := range h.Host().Details(t.Context(), testID) {
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := r.Fields["late"]; r.Kind == "call" && (ok != (late != "") || !strings.Contains(got, late) || strings.Contains(r.Text, "late result") != ok) {
			t.Errorf("detail %+v", r)
		}
	}
}

// A call returns after its time, while its reply runs. Wherever the incarnation or the process ends, the late result
// is in the row exactly if OnCall has counted it, and the message never has it.
func TestResultThatIsLateAtEveryPoint(t *testing.T) {
	t.Parallel()
	m, all := &toolModel{countingState: &countingState{words: 2}, tool: "stamp", once: true}, &testClients{}
	tool := deaf(300*time.Millisecond, true, "late", nil)
	tool.Name, tool.Timeout = "stamp", 100*time.Millisecond
	class := countingClassOf(m.countingState, &handlers{Reply: func(p *countingAgent, ctx context.Context, r *chat.Reply) error {
		return chat.Answer(ctx, r, m, &chat.AnswerOptions{Tools: []chat.Tool{tool}})
	}, OnCall: func(p *countingAgent, ctx context.Context, c chat.Call) error {
		if !c.Late {
			return nil
		}
		return dohost.Add(ctx, p.Storage(), "late "+c.ID+string(c.Output), 1)
	}})
	s := m.scenario(all, class)
	s.Run = func(ctx context.Context, h *dohosttest.Host) error { return all.join(h, "asker").askAll(ctx, "one") }
	kept, lost := 0, 0
	s.Check = func(ctx context.Context, h *dohosttest.Host) error {
		for r, err := range h.Host().Details(ctx, testID) {
			if err != nil {
				return err
			}
			if r.Kind != "call" {
				continue
			}
			late, is := r.Fields["late"]
			err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
				list, err := chat.Messages(ctx, p, 0)
				if raw, _ := json.Marshal(list); err == nil && strings.Contains(string(raw), `"late"`) {
					err = fmt.Errorf("the messages have the late result: %s", raw)
				}
				n, _, failed := dohost.Get[int](ctx, p.Storage(), "late "+r.ID+`"late"`)
				if n > 1 || (n == 1) != is || is && late != `"late"` || r.State != "unknown" {
					err = errors.Join(err, fmt.Errorf("OnCall has counted %d late results, the call is %s: %q", n, r.State, r.Text))
				}
				return errors.Join(err, failed)
			})
			if err != nil {
				return err
			}
			if is {
				kept++
			} else {
				lost++
			}
		}
		return nil
	}
	dohosttest.EveryPoint(t, s)
	if t.Log(kept, "late results kept,", lost, "calls without one"); kept == 0 || lost == 0 {
		t.Errorf("%d late results were kept, %d calls have none", kept, lost)
	}
}

// A call returns late while another call of its reply runs: later changes of the reply keep the late result.
func TestResultThatIsLateInRunningReply(t *testing.T) {
	tool := deaf(5*time.Second, true, "receipt", nil)
	tool.Timeout = time.Second
	runTools(t, &stepsModel{steps: [][]string{{"a", "b"}}}, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{tool, sleeper("b", 20*time.Second, false)}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(10 * time.Second)
		inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error { return p.CheckLiveCalls(ctx) })
		h.Advance(time.Minute)
		if answer, states := answerOf(t, ctx, h); states["a"] != "unknown" || states["b"] != "completed" || answer.PlainText() != "done " {
			t.Errorf("%v, %q", states, answer.PlainText())
		}
		for r, err := range h.Host().Details(ctx, testID) {
			if err != nil || r.Kind == "call" && strings.HasPrefix(r.ID, "a") != (r.Fields["late"] == `"receipt"`) {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}
