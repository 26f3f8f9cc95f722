package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// operateCall applies an operator's action to a call, and waits for the effects.
func operateCall(ctx context.Context, h *dohosttest.Host, r dohost.AdminRequest) (bool, error) {
	r.Kind = "call"
	done, err := h.Host().Operate(ctx, testID, &r)
	h.Advance(5 * time.Second)
	return done, err
}

// auditOf returns the audit log, without the times.
func auditOf(t *testing.T, ctx context.Context, h *dohosttest.Host) (log []string) {
	t.Helper()
	inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
		for e, err := range chat.Approvals(ctx, p, "") {
			if err != nil {
				return err
			}
			log = append(log, fmt.Sprintf("%s %s late=%t %s: %s", e.Action, e.Tool, e.Late, e.Actor, e.Reason))
		}
		return nil
	})
	return log
}

// TestOperatorCompletesExternalCall ends a call whose reply has ended, one whose reply runs, one whose Run has not returned, and
// an asynchronous one, by its id and by its key.
func TestOperatorCompletesExternalCall(t *testing.T) {
	result, failure := json.RawMessage(`{"n":1}`), json.RawMessage(`"no paper"`)
	for name, c := range map[string]struct {
		e      chat.External
		step   []string
		run    time.Duration // of the tool
		r      dohost.AdminRequest
		byKey  bool
		result string // of the call in its message
		state  chat.CallState
		action string
	}{
		"result":                  {chat.External{}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete, Result: result}, false, `output-available {"n":1}`, chat.CallCompleted, "completed"},
		"null, by the key":        {chat.External{}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete}, true, `output-available null`, chat.CallCompleted, "completed"},
		"error":                   {chat.External{}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionFail, Result: failure}, false, `output-error no paper`, chat.CallFailed, "failed"},
		"result, in the reply":    {chat.External{}, []string{"a", "slow"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete, Result: result}, false, `output-available {"n":1}`, chat.CallCompleted, "completed"},
		"error, in the reply":     {chat.External{}, []string{"a", "slow"}, 0, dohost.AdminRequest{Action: dohost.ActionFail, Result: failure}, true, `output-error no paper`, chat.CallFailed, "failed"},
		"result, during Run":      {chat.External{}, []string{"a", "slow"}, time.Hour, dohost.AdminRequest{Action: dohost.ActionComplete, Result: result}, false, `output-available {"n":1}`, chat.CallCompleted, "completed"},
		"result, asynchronous":    {chat.External{Async: true}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete, Result: result}, false, `output-available {"id":KEY,"status":"queued"}`, chat.CallCompleted, "completed"},
		"error, asynchronous":     {chat.External{Async: true}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionFail, Result: failure}, true, `output-available {"id":KEY,"status":"queued"}`, chat.CallFailed, "failed"},
		"a result that is large":  {chat.External{}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete, Result: json.RawMessage(`"` + strings.Repeat("x", 1<<20-2) + `"`)}, false, "", chat.CallCompleted, "completed"},
		"a result with its limit": {chat.External{Within: time.Hour}, []string{"a"}, 0, dohost.AdminRequest{Action: dohost.ActionComplete, Result: result}, false, `output-available {"n":1}`, chat.CallCompleted, "completed"},
	} {
		t.Run(name, func(t *testing.T) {
			key := ""
			m := &stepsModel{steps: [][]string{c.step}}
			runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
				return []chat.Tool{external("a", c.e, func(ctx context.Context, call chat.Call) (any, error) {
					key = call.Key
					return nil, dohost.Sleep(ctx, c.run)
				}), sleeper("slow", 20*time.Second, false)}
			}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
				h.Advance(5 * time.Second)
				if calls := resourcesOf(t, ctx, h, "a-1-0"); len(calls) != 1 || !slices.Equal(calls[0].Can, []dohost.Action{dohost.ActionComplete, dohost.ActionFail}) {
					t.Fatalf("before: %+v", calls)
				}
				c.r.ID, c.r.Actor, c.r.Reason = "a-1-0", "mia", "saw it"
				if c.byKey {
					c.r.ID = key
				}
				if done, err := operateCall(ctx, h, c.r); !done || err != nil {
					t.Fatalf("%t, %v", done, err)
				}
				h.Advance(2 * time.Hour)
				answer, states := answerOf(t, ctx, h)
				want := strings.Replace(c.result, "KEY", `"`+key+`"`, 1)
				if got := resultOf(answer, "a"); got != want && want != "" || states["a"] != string(c.state) || answer.PlainText() != "done " || m.asked != 2 {
					t.Errorf("%.200s, %v, %q, asked %d times", got, states, answer.PlainText(), m.asked)
				}
				if calls := resourcesOf(t, ctx, h, "a-1-0"); len(calls) != 1 || calls[0].Can != nil {
					t.Errorf("after: %+v", calls)
				}
				c.r.Actor = "ben"
				if done, err := operateCall(ctx, h, c.r); done || err == nil || !strings.Contains(err.Error(), "the call has ended: it is "+string(c.state)) {
					t.Errorf("a second completion: %t, %v", done, err)
				}
				if got := findCall(t, ctx, h, key); got.State != c.state {
					t.Errorf("after the second completion: %+v", got)
				}
				log := []string{c.action + " a late=false mia: saw it", c.action + " a late=true ben: saw it"}
				if got := auditOf(t, ctx, h); !slices.Equal(got, log) {
					t.Errorf("the audit log is %q, want %q", got, log)
				}
			})
		})
	}
}

// resourcesOf returns the calls with an id as operators see them.
func resourcesOf(t *testing.T, ctx context.Context, h *dohosttest.Host, id string) (list []dohost.Resource) {
	t.Helper()
	for r, err := range h.Host().Details(ctx, testID) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == "call" && r.ID == id {
			list = append(list, r)
		}
	}
	return list
}

// TestOperatorCompletionIsRefused leaves the calls and the audit log unchanged.
func TestOperatorCompletionIsRefused(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a", "slow"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{externalTool(&key, chat.External{}), sleeper("slow", 20*time.Minute, false)}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		h.Advance(5 * time.Second)
		one := json.RawMessage("1")
		for want, r := range map[string]dohost.AdminRequest{
			"no other party runs the call: it is running": {Action: dohost.ActionComplete, ID: "slow-1-1", Result: one},
			"the decision is about another input":         {Action: dohost.ActionComplete, ID: key, Result: one, Digest: strings.Repeat("1", 64)},
			"want the text of the error":                  {Action: dohost.ActionFail, ID: key, Result: one},
			"as a JSON string":                            {Action: dohost.ActionFail, ID: key, Result: json.RawMessage(`""`)},
			"is not JSON":                                 {Action: dohost.ActionComplete, ID: key, Result: json.RawMessage("{")},
			"nested":                                      {Action: dohost.ActionComplete, ID: key, Result: json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200))},
			"1048577":                                     {Action: dohost.ActionComplete, ID: key, Result: json.RawMessage(strings.Repeat("1", 1<<20+1))},
			"actor of a decision":                         {Action: dohost.ActionComplete, ID: key, Result: one, Actor: strings.Repeat("a", 300)},
			"reason of a decision":                        {Action: dohost.ActionFail, ID: key, Result: json.RawMessage(`"x"`), Reason: strings.Repeat("a", 3000)},
			"do not allow the action done":                {Action: dohost.ActionDone, ID: key, Result: one},
		} {
			if done, err := operateCall(ctx, h, r); done || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s %.20s: %t, %v, want %q", r.Action, r.ID, r.Result, done, err, want)
			}
		}
		for _, id := range []string{"none", ""} {
			if done, err := operateCall(ctx, h, dohost.AdminRequest{Action: dohost.ActionComplete, ID: id, Result: one}); done || err != nil {
				t.Errorf("the call %q: %t, %v", id, done, err)
			}
		}
		if found := findCall(t, ctx, h, key); found.State != chat.CallExternal {
			t.Errorf("%+v", found)
		}
		if log := auditOf(t, ctx, h); len(log) != 0 {
			t.Errorf("the audit log is %q", log)
		}
	})
}

// TestOperatorCompletionAfterWithin completes a call when its time is over, before the schedule of that has run: the time ends the call,
// and the audit log has the operator as late.
func TestOperatorCompletionAfterWithin(t *testing.T) {
	key := ""
	m := &stepsModel{steps: [][]string{{"a"}}}
	runTools(t, m, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{externalTool(&key, chat.External{Within: time.Hour})}
	},
		func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
			h.Advance(time.Minute)
			h.EndFor(dohost.EndKill, 2*time.Hour)
			r := dohost.AdminRequest{ID: "a-1-0", Action: dohost.ActionComplete, Result: json.RawMessage("1"), Actor: "mia", Reason: "saw it"}
			if done, err := operateCall(ctx, h, r); done || err == nil || !strings.Contains(err.Error(), "the call has ended: it is unknown") {
				t.Errorf("%t, %v", done, err)
			}
			if got, want := auditOf(t, ctx, h), []string{"completed a late=true mia: saw it"}; !slices.Equal(got, want) {
				t.Errorf("the audit log is %q, want %q", got, want)
			}
		})
}

// sameIDModel makes one call with the id "x" in each message.
type sameIDModel struct{}

// Stream implements [chat.Model].
func (sameIDModel) Stream(_ context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		for _, part := range p.Partial.Parts {
			if part.Text("toolCallId") != "" {
				yield(chat.TextDelta("t", "done "), nil)
				return
			}
		}
		yield(chat.ToolInput("x", "a", `{}`), nil)
	}
}

// TestOperatorNamesCallByKey has two open calls with the same id, and one that has ended.
func TestOperatorNamesCallByKey(t *testing.T) {
	var keys []string
	runTools(t, sameIDModel{}, chat.Options{}, func(*countingAgent) []chat.Tool {
		return []chat.Tool{external("a", chat.External{}, func(_ context.Context, c chat.Call) (any, error) {
			keys = append(keys, c.Key)
			return nil, nil
		})}
	}, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for _, id := range []string{"two", "three"} {
			h.Advance(5 * time.Second)
			inEvent(t, ctx, h, func(ctx context.Context, p *countingAgent) error {
				_, err := chat.Ask(ctx, p, []chat.Message{chat.Text(id, chat.RoleUser, "go")}, nil)
				return err
			})
		}
		h.Advance(5 * time.Second)
		if len(keys) != 3 {
			t.Fatalf("the keys are %q", keys)
		}
		one := json.RawMessage("1")
		if done, err := operateCall(ctx, h, dohost.AdminRequest{Action: dohost.ActionComplete, ID: "x", Result: one}); done || err == nil || !strings.Contains(err.Error(), "use the key") {
			t.Errorf("three calls: %t, %v", done, err)
		}
		for _, id := range []string{keys[2], keys[0], "x"} { // the last one is the only open call
			if done, err := operateCall(ctx, h, dohost.AdminRequest{Action: dohost.ActionComplete, ID: id, Result: one}); !done || err != nil {
				t.Errorf("%s: %t, %v", id, done, err)
			}
		}
		for _, key := range keys {
			if c := findCall(t, ctx, h, key); c.State != chat.CallCompleted {
				t.Errorf("%+v", c)
			}
		}
	})
}
