package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// stamper is a host with a toolModel whose calls need an approval, and a client that has made one call.
type stamper struct {
	t     *testing.T
	h     *dohosttest.Host
	m     *toolModel
	r     *reader
	c     forgingClient
	call  string
	agent dohost.Stub[countingAgent]
}

// runStamper runs f after the model has made a call that needs the approval.
func runStamper(t *testing.T, by *chat.Approval, o chat.Options, f func(t *testing.T, ctx context.Context, s *stamper)) {
	t.Helper()
	m := &toolModel{countingState: &countingState{words: 1}, tool: "stamp", runs: map[string]int{}}
	runWithHost(t, approvedToolClass(m, by, o), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		s := &stamper{t: t, h: h, m: m, r: connectIdle(t, h, "r"), agent: countingAgents.Get(h, testID.Name)}
		s.c = forgingClient{reader: s.r, t: t, h: h, m: m}
		s.r.ask(ctx, "one", "stamp it", nil)
		s.r.waitEnd(t, "one")
		h.Advance(time.Second)
		if waiting := s.r.calls("approval-requested"); len(waiting) == 1 {
			s.call = waiting[0]
		}
		f(t, ctx, s)
		s.r.close()
	})
}

// do runs f as an event of the agent.
func (s *stamper) do(ctx context.Context, f func(context.Context, *countingAgent) error) {
	s.t.Helper()
	if err := s.agent.Do(ctx, func(ctx context.Context, p *countingAgent) error { return f(ctx, p) }); err != nil {
		s.t.Error(err)
	}
}

// decide decides about the call, and waits for the effects.
func (s *stamper) decide(ctx context.Context, d chat.Decision) error {
	var decided error
	s.do(ctx, func(ctx context.Context, p *countingAgent) error {
		decided = chat.Decide(ctx, p, &d)
		return nil
	})
	s.h.Advance(5 * time.Second)
	return decided
}

// events returns the audit log, without times.
func (s *stamper) events(ctx context.Context) (lines []string) {
	s.do(ctx, func(ctx context.Context, p *countingAgent) error {
		for e, err := range chat.Approvals(ctx, p, s.call) {
			if err != nil {
				return err
			}
			line := fmt.Sprint(e.Number, " ", e.Action)
			for _, f := range []struct{ name, text string }{{" by ", e.Actor}, {" because ", e.Reason}} {
				if f.text != "" {
					line += f.name + f.text
				}
			}
			if e.Late {
				line += " late"
			}
			lines = append(lines, line)
		}
		return nil
	})
	return lines
}

func (s *stamper) wantEvents(ctx context.Context, want ...string) {
	s.t.Helper()
	if got := s.events(ctx); !slices.Equal(got, want) {
		s.t.Errorf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// state returns the states of the part of the call, and of its row.
func (s *stamper) state(ctx context.Context) (part string, row chat.Call) {
	part = s.c.call(s.call).Text("state")
	for _, r := range s.resources(ctx, "call") {
		if r.ID == s.call {
			row.State, row.Digest = chat.CallState(r.State), r.Digest
		}
	}
	return part, row
}

// resources lists the items of a kind as operators see them.
func (s *stamper) resources(ctx context.Context, kind string) (list []dohost.Resource) {
	for r, err := range s.h.Host().Details(ctx, testID) {
		if err != nil {
			s.t.Fatal(err)
		}
		if r.Kind == kind {
			list = append(list, r)
		}
	}
	return list
}

func (s *stamper) frame(ctx context.Context, approve, autoContinue bool) {
	s.r.sendFrame(ctx, map[string]any{
		"type": "cf_agent_tool_approval", "toolCallId": s.call, "approved": approve, "autoContinue": autoContinue,
	})
	s.h.Advance(5 * time.Second)
}

func TestDecideRunsCallOnce(t *testing.T) {
	runStamper(t, &chat.Approval{}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		var open []chat.Call
		s.do(ctx, func(ctx context.Context, p *countingAgent) error {
			for c, err := range chat.Calls(ctx, p) {
				if err != nil {
					return err
				}
				open = append(open, c)
			}
			return nil
		})
		if len(open) != 1 || open[0].State != chat.CallApproval || open[0].Input != `{"n":1}` || open[0].Tool != "stamp" || open[0].Request != "one" ||
			len(open[0].Digest) != 64 || open[0].Created.IsZero() || !open[0].Expires.IsZero() {
			t.Fatalf("open calls %+v", open)
		}
		if err := s.decide(ctx, chat.Decision{Call: s.call, Digest: open[0].Digest, Approve: true, Actor: "mia", Reason: "it is Monday"}); err != nil {
			t.Error(err)
		}
		s.c.wantRuns(`{"n":1}`)
		if part, row := s.state(ctx); part != "output-available" || row.State != chat.CallCompleted {
			t.Errorf("%s, %s", part, row.State)
		}
		if lines := storedLines(t, s.h); len(lines) != 2 || lines[1] != "assistant: 2.0" {
			t.Errorf("%q", lines)
		}
		if err := s.decide(ctx, chat.Decision{Call: s.call, Actor: "ben"}); !errors.Is(err, chat.ErrDecided) {
			t.Errorf("a refusal after the run: %v", err)
		}
		s.frame(ctx, true, true)
		s.c.wantRuns(`{"n":1}`)
		s.wantEvents(ctx, "1 requested", "2 approved by mia because it is Monday", "3 denied by ben late", "4 approved by connection r late")
	})
}

func TestDecideUntilCallBegins(t *testing.T) {
	runStamper(t, &chat.Approval{}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		s.frame(ctx, true, false) // without a continuation, so the call does not begin
		if part, row := s.state(ctx); part != "approval-responded" || row.State != chat.CallPending {
			t.Fatalf("%s, %s", part, row.State)
		}
		if r := s.resources(ctx, "call"); len(r) != 1 || !slices.Equal(r[0].Can, []dohost.Action{dohost.ActionDeny}) {
			t.Errorf("%+v", r)
		}
		if err := s.decide(ctx, chat.Decision{Call: s.call, Actor: "mia"}); err != nil {
			t.Error(err)
		}
		s.c.wantRuns()
		if part, row := s.state(ctx); part != "output-denied" || row.State != chat.CallDenied {
			t.Errorf("%s, %s", part, row.State)
		}
		if err := s.decide(ctx, chat.Decision{Call: s.call, Approve: true}); !errors.Is(err, chat.ErrDecided) {
			t.Errorf("an approval after a refusal: %v", err)
		}
		s.c.wantRuns()
		s.wantEvents(ctx, "1 requested", "2 approved by connection r", "3 denied by mia", "5 approved late") // 4 is the next call of the model
	})
}

func TestDecideErrors(t *testing.T) {
	runStamper(t, &chat.Approval{}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		for _, c := range []struct {
			d    chat.Decision
			want error
		}{
			{chat.Decision{Call: "none", Approve: true}, chat.ErrNoCall},
			{chat.Decision{Approve: true}, chat.ErrNoCall},
			{chat.Decision{Call: s.call, Digest: strings.Repeat("0", 64), Approve: true}, chat.ErrStaleApproval},
			{chat.Decision{Call: s.call, Digest: "x", Approve: true}, chat.ErrStaleApproval},
		} {
			if err := s.decide(ctx, c.d); !errors.Is(err, c.want) {
				t.Errorf("%+v: %v, want %v", c.d, err, c.want)
			}
		}
		for _, d := range []chat.Decision{{Call: s.call, Actor: strings.Repeat("a", 257)}, {Call: s.call, Reason: strings.Repeat("a", 2049)}} {
			if _, ok := errors.AsType[*dohost.LimitError](s.decide(ctx, d)); !ok {
				t.Errorf("no error for the limit of %.20v", d)
			}
		}
		s.do(ctx, func(ctx context.Context, p *countingAgent) error {
			if err := chat.Decide(ctx, p, nil); !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("nil: %v", err)
			}
			err := dohost.Transaction(ctx, func(ctx context.Context) error {
				return chat.Decide(ctx, p, &chat.Decision{Call: s.call, Approve: true})
			})
			if !errors.Is(err, dohost.ErrMisuse) {
				t.Errorf("in a transaction: %v", err)
			}
			return nil
		})
		s.c.wantRuns()
		s.wantEvents(ctx, "1 requested")
	})
}

func TestApprovalExpires(t *testing.T) {
	runStamper(t, &chat.Approval{Within: time.Hour}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		s.r.close()
		s.h.Evict(testID, dohost.EndFence)
		s.h.Advance(59 * time.Minute)
		if _, row := s.state(ctx); row.State != chat.CallApproval {
			t.Errorf("after 59 minutes: %s", row.State)
		}
		if of := s.resources(ctx, "call")[0].Fields; of["expires"] <= of["since"] {
			t.Errorf("the fields are %q", of)
		}
		s.h.Advance(2 * time.Minute)
		if part, row := s.state(ctx); part != "output-error" || row.State != chat.CallExpired {
			t.Errorf("after 61 minutes: %s, %s", part, row.State)
		}
		if err := s.decide(ctx, chat.Decision{Call: s.call, Approve: true, Actor: "mia"}); !errors.Is(err, chat.ErrDecided) {
			t.Errorf("an approval after the end: %v", err)
		}
		s.c.wantRuns()
		s.wantEvents(ctx, "1 requested", "2 expired", "4 approved by mia late") // 3 is the next call of the model
		if n := s.m.calls.Load(); n != 2 {
			t.Errorf("the model was asked %d times, want the second time after the expiry", n)
		}
	})
}

func TestApprovalInTimeDoesNotExpire(t *testing.T) {
	runStamper(t, &chat.Approval{Within: time.Hour}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		if err := s.decide(ctx, chat.Decision{Call: s.call, Approve: true}); err != nil {
			t.Error(err)
		}
		s.r.close()
		s.h.Advance(2 * time.Hour)
		s.c.wantRuns(`{"n":1}`)
		s.wantEvents(ctx, "1 requested", "2 approved")
	})
}

func TestApprovalByInput(t *testing.T) {
	errRule := errors.New("the rule fails")
	for name, c := range map[string]struct {
		rule func(context.Context, json.RawMessage) (bool, error)
		runs []string
		want string
	}{
		"none needed": {func(_ context.Context, in json.RawMessage) (bool, error) { return string(in) != `{"n":1}`, nil }, []string{`{"n":1}`}, "output-available"},
		"needed":      {func(_ context.Context, in json.RawMessage) (bool, error) { return string(in) == `{"n":1}`, nil }, nil, "approval-requested"},
		"an error":    {func(context.Context, json.RawMessage) (bool, error) { return false, errRule }, nil, "output-error"},
	} {
		t.Run(name, func(t *testing.T) {
			runStamper(t, &chat.Approval{If: c.rule}, chat.Options{}, func(t *testing.T, _ context.Context, s *stamper) {
				s.h.Advance(5 * time.Second)
				s.c.wantRuns(c.runs...)
				if p := s.c.call("call-1"); p.Text("state") != c.want || c.want == "output-error" && p.Text("errorText") != errRule.Error() {
					t.Errorf("%s %s, want %s", p.Text("state"), p.Text("errorText"), c.want)
				}
			})
		})
	}
	m := &toolModel{countingState: &countingState{words: 1}, tool: "stamp", runs: map[string]int{}}
	runWithHost(t, approvedToolClass(m, &chat.Approval{Within: -1}, chat.Options{}), func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		r := connectIdle(t, h, "r")
		r.ask(ctx, "one", "stamp it", nil)
		if f := r.receiveUntil(t, func(f frame) bool { return f.Done }); f.Outcome != "error" || m.calls.Load() != 0 {
			t.Errorf("a negative time: %+v", f)
		}
		r.close()
	})
}

// TestApprovalsAreBounded sends more late decisions than the log keeps, and lets the events expire.
func TestApprovalsAreBounded(t *testing.T) {
	runStamper(t, &chat.Approval{}, chat.Options{KeepApprovals: time.Hour}, func(t *testing.T, ctx context.Context, s *stamper) {
		s.r.close()
		for i := range 26 {
			if err := s.decide(ctx, chat.Decision{Call: s.call, Approve: i == 0}); errors.Is(err, chat.ErrDecided) != (i > 0) {
				t.Errorf("decision %d: %v", i, err)
			}
		}
		if n := len(s.events(ctx)); n != 22 {
			t.Errorf("%d events, want 22", n)
		}
		s.h.Advance(2 * time.Hour)
		s.do(ctx, func(ctx context.Context, p *countingAgent) error { // the model makes a call for each request
			_, err := chat.Ask(ctx, p, []chat.Message{chat.Text("two", chat.RoleUser, "stamp it")}, nil)
			return err
		})
		s.h.Advance(5 * time.Second)
		all := s.events(ctx)
		if len(all) != 20 || !strings.HasPrefix(all[0], "3 ") {
			t.Errorf("%d events after one more: %q", len(all), all)
		}
	})
}

// TestOperatorDecides reads the call as an operator does, without waking the agent, and approves it.
func TestOperatorDecides(t *testing.T) {
	runStamper(t, &chat.Approval{}, chat.Options{}, func(t *testing.T, ctx context.Context, s *stamper) {
		s.r.close()
		s.h.Evict(testID, dohost.EndFence)
		calls := s.resources(ctx, "call")
		if s.h.Host().IsLive(testID) || len(calls) != 1 || !slices.Equal(calls[0].Can, []dohost.Action{dohost.ActionApprove, dohost.ActionDeny}) ||
			!strings.HasPrefix(calls[0].Text, `"stamp" {"n":1}, since 20`) || !strings.HasSuffix(calls[0].Text, "digest "+calls[0].Digest[:12]) {
			t.Fatalf("%+v", calls)
		}
		operate := func(r dohost.AdminRequest) (bool, error) {
			r.Kind = "call"
			done, err := s.h.Host().Operate(ctx, testID, &r)
			s.h.Advance(5 * time.Second)
			return done, err
		}
		for want, r := range map[string]dohost.AdminRequest{
			"another input":  {Action: dohost.ActionApprove, ID: s.call, Digest: strings.Repeat("1", 64)},
			"do not allow":   {Action: dohost.ActionRetry, ID: s.call},
			"actor of a dec": {Action: dohost.ActionApprove, ID: s.call, Actor: strings.Repeat("a", 300)},
		} {
			if done, err := operate(r); done || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %t, %v, want %q", r, done, err, want)
			}
		}
		if done, err := operate(dohost.AdminRequest{Action: dohost.ActionApprove, ID: "none"}); done || err != nil {
			t.Errorf("an unknown call: %t, %v", done, err)
		}
		ok := dohost.AdminRequest{Action: dohost.ActionApprove, ID: s.call, Digest: calls[0].Digest, Actor: "mia", Reason: "checked"}
		if done, err := operate(ok); !done || err != nil {
			t.Errorf("%t, %v", done, err)
		}
		s.c.wantRuns(`{"n":1}`)
		if done, err := operate(ok); done || err == nil || !strings.Contains(err.Error(), "does not wait for an approval any more") {
			t.Errorf("again: %t, %v", done, err)
		}
		if of := calls[0].Fields; of["tool"] != "stamp" || of["input"] != `{"n":1}` || of["since"] == "" || of["expires"] != "" {
			t.Errorf("the fields of the call are %q", of)
		}
		var log []string
		for i, r := range s.resources(ctx, "approval") {
			of := r.Fields
			decided := of["actor"] == "mia" && of["reason"] == "checked"
			if of["tool"] != "stamp" || of["call"] != s.call || of["time"] == "" || decided != (i < 2) || (of["late"] == "true") != (i == 0) {
				t.Errorf("the fields of event %d are %q", i, of)
			}
			log = append(log, r.ID+" "+r.State+" "+r.Text[:strings.Index(r.Text, ", ")]+r.Text[strings.LastIndex(r.Text, "Z")+1:])
		}
		want := []string{
			fmt.Sprintf(`3 approved call %s of "stamp", by "mia", because "checked", too late`, s.call),
			fmt.Sprintf(`2 approved call %s of "stamp", by "mia", because "checked"`, s.call),
			fmt.Sprintf(`1 requested call %s of "stamp"`, s.call),
		}
		if !slices.Equal(log, want) {
			t.Errorf("log %q, want %q", log, want)
		}
	})
}

// TestDecisionsAtEveryPoint lets a client approve a call, and an operator refuse it, concurrently and in both orders, with a
// time limit that ends in between. The tool and the audit log must agree.
func TestDecisionsAtEveryPoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gaps  [2]time.Duration // before the approval, and before the refusal
		daily bool             // also without -full
	}{
		"approve, deny":         {[2]time.Duration{0, 10 * time.Millisecond}, false},
		"deny, approve":         {[2]time.Duration{10 * time.Millisecond, 0}, false},
		"approve, expire":       {[2]time.Duration{900 * time.Millisecond, time.Minute}, false},
		"expire, approve, deny": {[2]time.Duration{1100 * time.Millisecond, 1200 * time.Millisecond}, true},
		"approve, begin, deny":  {[2]time.Duration{0, 40 * time.Millisecond}, true},
		"no decision in time":   {[2]time.Duration{time.Minute, time.Minute}, false},
	} {
		if !pointtest.Case(c.daily) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, all := &toolModel{countingState: &countingState{words: 1}, tool: "stamp", once: true}, &testClients{}
			s := m.scenario(all, approvedToolClass(m, &chat.Approval{Within: time.Second}, chat.Options{}))
			s.Run = func(ctx context.Context, h *dohosttest.Host) error {
				r := all.join(h, "asker")
				if err := r.askAll(ctx, "one"); err != nil {
					return err
				}
				decide := func(approve bool, after time.Duration) func(context.Context) error {
					return func(ctx context.Context) error {
						time.Sleep(after)
						return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: pointtest.RetryIdempotent}, func(ctx context.Context) error {
							err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
								err := chat.Decide(ctx, p, &chat.Decision{Call: "call-1", Approve: approve, Actor: fmt.Sprint(approve)})
								if errors.Is(err, chat.ErrDecided) || errors.Is(err, chat.ErrNoCall) {
									return nil
								}
								return err
							})
							return err
						})
					}
				}
				approver, refuser := h.Client(decide(true, c.gaps[0])), h.Client(decide(false, c.gaps[1]))
				return errors.Join(approver.Wait(), refuser.Wait())
			}
			s.Check = func(ctx context.Context, h *dohosttest.Host) error {
				return errors.Join(m.checkRunsOnce(), checkDecisions(ctx, h, m))
			}
			dohosttest.EveryPoint(t, s)
		})
	}
}

// checkDecisions compares the audit log with the runs of the tool and with the calls.
func checkDecisions(ctx context.Context, h *dohosttest.Host, m *toolModel) error {
	last, n := map[string]chat.ApprovalAction{}, uint64(0)
	err := countingAgents.Get(h, testID.Name).Do(ctx, func(ctx context.Context, p *countingAgent) error {
		for e, err := range chat.Approvals(ctx, p, "") {
			if err != nil {
				return err
			}
			if n++; e.Number != n {
				return fmt.Errorf("event %d has the number %d", n, e.Number)
			}
			if e.Late {
				continue
			}
			before := last[e.Call]
			legal := map[chat.ApprovalAction][]chat.ApprovalAction{
				"":                     {chat.ApprovalRequested},
				chat.ApprovalRequested: {chat.ApprovalApproved, chat.ApprovalDenied, chat.ApprovalExpired},
				chat.ApprovalApproved:  {chat.ApprovalDenied},
			}
			if !slices.Contains(legal[before], e.Action) {
				return fmt.Errorf("call %s: %s after %q", e.Call, e.Action, before)
			}
			last[e.Call] = e.Action
		}
		return nil
	})
	if err != nil {
		return err
	}
	var calls []dohost.Resource
	for r, err := range h.Host().Details(ctx, testID) {
		if err != nil {
			return err
		}
		if r.Kind == "call" {
			calls = append(calls, r)
		}
	}
	wantState := map[chat.ApprovalAction][]string{
		chat.ApprovalRequested: nil, // the time to decide has passed
		chat.ApprovalApproved:  {"completed", "unknown"}, chat.ApprovalDenied: {"denied"},
		chat.ApprovalExpired: {"expired"},
	}
	for _, c := range calls {
		action, ran := last[c.ID], 0
		for in, runs := range m.runs {
			if fmt.Sprintf(`"stamp" %s`, in) == strings.SplitN(c.Text, ", ", 2)[0] {
				ran = runs
			}
		}
		if !slices.Contains(wantState[action], c.State) || action != chat.ApprovalApproved && ran > 0 || c.State == "completed" && ran != 1 {
			return fmt.Errorf("call %s is %s, its last event is %q, and its tool ran %d times", c.ID, c.State, action, ran)
		}
	}
	return nil
}
