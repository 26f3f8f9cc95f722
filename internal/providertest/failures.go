package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// failure is a failure of a provider, and the error expected from its model.
type failure struct {
	name    string
	key     string // empty: the right one
	retries int
	plan    func(n int) Plan
	// at is the number of words before the failure.
	at int
	// want is part of the error; empty if there is none.
	want      string
	status    int
	after     time.Duration
	truncated bool
}

func always(p Plan) func(int) Plan { return func(int) Plan { return p } }

func failures() []failure {
	return []failure{
		{name: "a wrong key", key: "sk-wrong-Key-Of-Somebody", status: http.StatusUnauthorized, want: "the key was refused"},
		{name: "too many requests", retries: -1, plan: always(Plan{Status: http.StatusTooManyRequests, RetryAfter: "20"}),
			status: http.StatusTooManyRequests, after: 20 * time.Second, want: "try again after 20s"},
		{name: "too many requests for now", plan: func(n int) Plan {
			if n == 0 {
				return Plan{Status: http.StatusTooManyRequests, RetryAfter: "1"}
			}
			return Plan{}
		}, at: 8},
		{name: "broken", plan: always(Plan{Status: http.StatusInternalServerError}), status: http.StatusInternalServerError, want: "as planned"},
		{name: "malformed", plan: always(Plan{After: 3, Malformed: true}), at: 3, want: "malformed"},
		{name: "failing in the middle", plan: always(Plan{After: 3, Fail: true}), at: 3, want: "verloaded"},
		{name: "severed", plan: always(Plan{After: 3, Sever: true}), at: 3, truncated: true, want: "ended in the middle"},
		{name: "severed before the first word", plan: always(Plan{Sever: true}), truncated: true, want: "ended in the middle"},
		{name: "silent", plan: always(Plan{After: 3, Silent: true}), at: 3, want: "nobody waits"},
		{name: "at its bound", plan: always(Plan{Length: true}), at: 8},
	}
}

// Failures makes a provider fail in all ways, and expects a clear error without the key.
func Failures(t *testing.T, make New) {
	for _, f := range failures() {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f.run(t, make) })
		})
	}
	t.Run("not there", func(t *testing.T) {
		d := &Double{}
		m, err := make(Config{Double: d, Key: Key, Retries: -1, Client: &http.Client{Transport: unreachable{}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = answerText(t.Context(), m)
		e, ok := errors.AsType[*chat.ModelError](err)
		if !ok || !strings.Contains(e.Error(), "cannot be reached") || strings.Contains(e.Error(), "nobody is there") ||
			!strings.Contains(e.LogValue().String(), "nobody is there") {
			t.Error(err)
		}
	})
}

// Files sends a model a file that its provider does not support: it refuses a new file, and describes an older
// one to the model as text.
func Files(t *testing.T, make New) {
	synctest.Test(t, func(t *testing.T) {
		d := &Double{}
		m, err := make(Config{Double: d, Key: Key})
		if err != nil {
			t.Fatal(err)
		}
		var with chat.Message
		const file = `{"id":"f","role":"user","parts":[{"type":"file","mediaType":"video/x-odd","url":"https://x.test/a"}]}`
		if err := json.Unmarshal([]byte(file), &with); err != nil {
			t.Fatal(err)
		}
		p := prompt()
		p.Messages = []chat.Message{with}
		if _, err := answerTextTo(t.Context(), m, p); err == nil || !strings.Contains(err.Error(), "video/x-odd") {
			t.Errorf("a new one: %v", err)
		}
		p.Messages = []chat.Message{with, chat.Text("a", chat.RoleAssistant, "No."), chat.Text("b", chat.RoleUser, "Count.")}
		if text, err := answerTextTo(t.Context(), m, p); err != nil || text != Text(0, 8) {
			t.Errorf("an older one: %q: %v", text, err)
		}
		if all := d.Generations(); len(all) != 1 || !bytes.Contains(all[0].Asked, []byte("video/x-odd, which cannot be shown")) {
			t.Errorf("the model did not get the note about the file")
		}
		time.Sleep(time.Minute)
	})
}

// unreachable is a provider that cannot be reached.
type unreachable struct{}

// RoundTrip implements http.RoundTripper.
func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("nobody is there")}
}

// prompt returns a prompt that asks for words.
func prompt() *chat.Prompt {
	return &chat.Prompt{
		System: "Count.", Messages: []chat.Message{chat.Text("m", chat.RoleUser, "Count.")},
		Partial:        chat.Message{ID: "a", Role: chat.RoleAssistant},
		SaveCheckpoint: func(context.Context, any) error { return nil },
		Checkpoint:     func(any) (bool, error) { return false, nil },
	}
}

// Calls makes a provider call a tool, with a late id and repeated pieces, and expects one complete call.
func Calls(t *testing.T, make New, id string) {
	synctest.Test(t, func(t *testing.T) {
		m, err := make(Config{Double: &Double{Plan: toolPlan}, Key: Key})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		var input string
		for c, err := range m.Stream(t.Context(), prompt()) {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(c.Type(), "tool-") {
				continue
			}
			if got := c.Text("toolCallId"); got != id {
				t.Errorf("%s of the call %q", c.Type(), got)
			}
			kinds = append(kinds, strings.TrimPrefix(c.Type(), "tool-input-"))
			input += c.Text("inputTextDelta")
			if c.Type() == "tool-input-available" && (string(c.Member("input")) != toolInput || c.Text("toolName") != "measure") {
				t.Errorf("%s is called with %s", c.Text("toolName"), c.Member("input"))
			}
		}
		if got := strings.Join(slices.Compact(kinds), " "); got != "start delta available" || input != toolInput {
			t.Errorf("the call comes as %q, with %s", got, input)
		}
		time.Sleep(time.Minute)
	})
}

// TruncatedCalls makes a provider reach the length limit before the input of a call: the call must fail instead of
// running with an empty input. A call of a tool without input is complete.
func TruncatedCalls(t *testing.T, make New) {
	for cut, want := range map[bool]string{true: "tool-input-error", false: "tool-input-available"} {
		synctest.Test(t, func(t *testing.T) {
			m, err := make(Config{Key: Key, Double: &Double{Plan: func(int, []byte) Plan { return Plan{Tool: "measure", Length: cut} }}})
			if err != nil {
				t.Fatal(err)
			}
			var last string
			for c, err := range m.Stream(t.Context(), prompt()) {
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(c.Type(), "tool-") {
					last = c.Type()
				}
			}
			if last != want {
				t.Errorf("cut %v: the call ends with %q", cut, last)
			}
			time.Sleep(time.Minute)
		})
	}
}

// answerText returns the text of a model's answer.
func answerText(ctx context.Context, m chat.Model) (text string, err error) {
	return answerTextTo(ctx, m, prompt())
}

func answerTextTo(ctx context.Context, m chat.Model, p *chat.Prompt) (text string, err error) {
	for c, err := range m.Stream(ctx, p) {
		if err != nil {
			return text, err
		}
		if c.Type() == "text-delta" {
			text += c.Text("delta")
		}
		if c.Type() == "message-metadata" {
			text += string(c.Member("messageMetadata"))
		}
	}
	return text, nil
}

func (f *failure) run(t *testing.T, make New) {
	d := &Double{}
	if f.plan != nil {
		d.Plan = func(n int, _ []byte) Plan { return f.plan(n) }
	}
	a := Config{Double: d, Key: Key, Retries: f.retries}
	if f.key != "" {
		a.Key = f.key
	}
	m, err := make(a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("nobody waits any longer"))
	defer cancel()
	text, err := answerText(ctx, m)
	time.Sleep(time.Minute) // until the provider's generations have ended
	of := len(d.Generations()) - 1
	if f.plan != nil && f.plan(0).Status != 0 && f.want == "" {
		of = 1 // the second request is the first that is billed
	}
	want := Text(of, f.at)
	if f.plan != nil && f.plan(0).Length {
		want += `{"finishReason":"length"}`
	}
	if text != want {
		t.Errorf("it has said %q instead of %q", text, want)
	}
	if f.want == "" && err != nil || f.want != "" && (err == nil || !strings.Contains(err.Error(), f.want)) {
		t.Fatalf("the error is %v", err)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	e, ok := errors.AsType[*chat.ModelError](err)
	if !ok || e.Status != f.status || e.RetryAfter != f.after || e.Truncated != f.truncated {
		t.Errorf("the error is %#v", err)
	}
	for _, secret := range []string{Key, a.Key, "6789", "Somebody"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q is in the error: %v", secret, err)
		}
	}
}

// Conversations makes a provider fail within conversations. The text so far stays, the next question is
// answered, a truncated answer is continued, and no text contains the key.
func Conversations(t *testing.T, make New) {
	t.Run("broken", func(t *testing.T) {
		askTwice(t, make, Plan{Status: http.StatusBadGateway}, chat.StatusFailed, "502 Bad Gateway")
	})
	t.Run("failing in the middle", func(t *testing.T) {
		askTwice(t, make, Plan{After: 3, Fail: true}, chat.StatusFailed, "verloaded")
	})
	t.Run("severed", func(t *testing.T) { askTwice(t, make, Plan{After: 3, Sever: true}, chat.StatusCompleted, "") })
	t.Run("silent", func(t *testing.T) { askTwice(t, make, Plan{After: 3, Silent: true}, chat.StatusCompleted, "") })
	t.Run("severed again and again", func(t *testing.T) {
		d := &Double{Plan: func(int, []byte) Plan { return Plan{After: 3, Sever: true} }}
		r := One(t, make, d)
		if got := len(d.Generations()); r.Status != chat.StatusFailed || !strings.Contains(r.Error, "ended in the middle") || got != 6 {
			t.Errorf("it is %q, %q, %d generations are billed", r.Status, r.Error, got)
		}
	})
	t.Run("input that is not JSON", func(t *testing.T) {
		d := &Double{Plan: func(n int, _ []byte) Plan {
			if n == 0 {
				return Plan{Words: 3, Tool: "measure", Input: `{"what":`}
			}
			return Plan{}
		}}
		r := One(t, make, d)
		if got := r.Message.PlainText(); r.Status != chat.StatusCompleted || got != Text(0, 3)+Text(1, 8) {
			t.Errorf("it is %q, %q: %q", r.Status, r.Error, got)
		}
		if all := d.Generations(); len(all) != 2 || !bytes.Contains(all[1].Asked, []byte("not JSON")) {
			t.Errorf("the model was not told: %s", all[len(all)-1].Asked)
		}
	})
}

// One returns the response to a single question.
func One(t *testing.T, make New, d *Double) (r chat.Response) {
	m, err := make(Config{Double: d, Key: Key, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{Class(m, chat.Options{Stall: time.Minute}, nil)},
	}, func(t *testing.T, h *dohosttest.Host) {
		if r, err = Ask(t.Context(), h, "a", "one"); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// askTwice asks two questions. The first generation follows the plan.
func askTwice(t *testing.T, make New, first Plan, want chat.Status, why string) {
	d := &Double{Plan: func(n int, _ []byte) Plan {
		if n == 0 {
			return first
		}
		return Plan{}
	}}
	m, err := make(Config{Double: d, Key: Key, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	var reports bytes.Buffer
	listener := dohost.Listener{Service: func(_ dohost.ID, event string, attrs ...slog.Attr) { fmt.Fprintln(&reports, event, attrs) }}
	dohosttest.Run(t, &dohosttest.Options{
		Classes: []dohost.Class{Class(m, chat.Options{Stall: time.Minute}, nil)},
		Options: dohost.Options{Listener: listener},
	}, func(t *testing.T, h *dohosttest.Host) {
		one, err := Ask(t.Context(), h, "a", "one")
		if err != nil || one.Status != want || !strings.Contains(one.Error, why) {
			t.Fatalf("it is %q, %q: %v", one.Status, one.Error, err)
		}
		two, err := Ask(t.Context(), h, "a", "two")
		if err != nil || two.Status != chat.StatusCompleted {
			t.Fatalf("the next is %q, %q: %v", two.Status, two.Error, err)
		}
		list, err := Messages(t.Context(), h, "a")
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, m := range list {
			if m.Role == chat.RoleAssistant {
				texts = append(texts, m.PlainText())
			}
		}
		all, err := json.Marshal(list)
		for _, secret := range []string{Key, "6789"} {
			if err != nil || strings.Contains(reports.String()+string(all)+one.Error, secret) {
				t.Errorf("%q is in reports or messages: %s %s", secret, &reports, all)
			}
		}
		if billed, of := len(d.Generations()), strings.Count(strings.Join(texts, ""), "w0 "); billed != of {
			t.Errorf("%d generations are billed, %d have said something: %q", billed, of, texts)
		}
		last := texts[len(texts)-1]
		if _, err := SplitText(last, 8); err != nil {
			t.Error(err)
		}
		if first.After > 0 && !strings.HasPrefix(texts[0], Text(0, first.After)) {
			t.Errorf("the first text is %q", texts[0])
		}
		if want == chat.StatusCompleted && len(strings.Fields(texts[0])) < 8 {
			t.Errorf("it was not resumed: %q", texts[0])
		}
	})
}
