package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// toolEvent has the members of a frame about a request to another agent.
type toolEvent struct {
	Call     string `json:"parentToolCallId"`
	Sequence uint64 `json:"sequence"`
	Event    struct {
		Kind         string `json:"kind"`
		RunID        string `json:"runId"`
		AgentType    string `json:"agentType"`
		InputPreview any    `json:"inputPreview"`
		Body         string `json:"body"`
		Summary      string `json:"summary"`
		Error        string `json:"error"`
		Reason       string `json:"reason"`
	} `json:"event"`
}

// toolRuns are the requests to other agents as the published hook keeps them: it ignores an event of a run whose sequence it has seen.
type toolRuns struct {
	order []string // ids of the runs
	runs  map[string]*runView
}

// runView is a run as a client sees it.
type runView struct {
	call, agent, text, status, summary, why string
	preview                                 string
	seen                                    map[uint64]string // the events by their sequences
	chunks                                  int
	bodies                                  []chunkBody
	frames                                  int // bytes
	replayed                                int // events
}

// chunkBody is a chunk as a client sees it.
type chunkBody struct{ Type, Delta string }

// add adds an event. Two events of a run with one sequence must be equal.
func (rs *toolRuns) add(f frame) error {
	if rs.runs == nil {
		rs.runs = map[string]*runView{}
	}
	e := f.Event
	v := rs.runs[e.RunID]
	if v == nil {
		if e.Kind != "started" {
			return fmt.Errorf("the first event of a run is %q", e.Kind)
		}
		v = &runView{seen: map[uint64]string{}}
		rs.runs[e.RunID] = v
		rs.order = append(rs.order, e.RunID)
	}
	if f.Replay {
		v.replayed++
	}
	text := fmt.Sprintf("%+v", e)
	if old, ok := v.seen[f.Sequence]; ok {
		if old != text {
			return fmt.Errorf("the sequence %d has %s, and before %s", f.Sequence, text, old)
		}
		return nil
	}
	v.seen[f.Sequence] = text
	if v.status != "running" && v.status != "" {
		return fmt.Errorf("%s follows the end of a run", text)
	}
	switch e.Kind {
	case "started":
		v.call, v.agent, v.status, v.preview = f.Call, e.AgentType, "running", fmt.Sprint(e.InputPreview)
	case "chunk":
		if want := uint64(v.chunks + 1); f.Sequence != want {
			return fmt.Errorf("the sequence of a chunk is %d, want %d", f.Sequence, want)
		}
		var c chunkBody
		if err := json.Unmarshal([]byte(e.Body), &c); err != nil {
			return err
		}
		v.chunks++
		v.bodies, v.frames = append(v.bodies, c), v.frames+f.size
		if c.Type == "text-delta" {
			v.text += c.Delta
		}
	default:
		v.status, v.summary, v.why = e.Kind, e.Summary, e.Error+e.Reason
	}
	return nil
}

// only returns the run of a client that has seen one.
func (r *reader) only(t *testing.T) *runView {
	t.Helper()
	if len(r.runs.order) != 1 {
		t.Fatalf("%s has seen %d runs", r.name, len(r.runs.order))
	}
	return r.runs.runs[r.runs.order[0]]
}

// waitRun receives frames until a condition holds for the run of a client.
func (r *reader) waitRun(t *testing.T, holds func(v *runView) bool) *runView {
	t.Helper()
	r.receiveUntil(t, func(frame) bool { return len(r.runs.order) > 0 && holds(r.only(t)) })
	return r.only(t)
}

func runEnded(v *runView) bool { return v.status != "running" }

// sayWords returns a think function: counts is the number of words that each agent says, by its name. The agent says one each 100 ms, and
// continues after an interruption.
func sayWords(counts map[string]int) func(context.Context, *member, *chat.Reply) error {
	return func(ctx context.Context, m *member, r *chat.Reply) error {
		partial := r.Partial()
		for i := len(strings.Fields(partial.PlainText())); i < counts[m.Name()]; i++ {
			if err := dohost.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			if err := r.Say(ctx, fmt.Sprintf("w%d ", i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// wordsText returns the text of n words.
func wordsText(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "w%d ", i)
	}
	return b.String()
}

// wantRun compares a run with the answer of the asked agent.
func wantRun(t *testing.T, name string, v *runView, text, summary string) {
	t.Helper()
	if v.text != text || v.status != "finished" || v.summary != summary {
		t.Errorf("%s has seen %q, %s %q; want %q, finished %q", name, v.text, v.status, v.summary, text, summary)
	}
}

// logsOf returns the number of logs of an agent, and of their rows.
func logsOf(t *testing.T, h *dohosttest.Host, name string) (logs, rows int) {
	t.Helper()
	inMember(t, h, name, func(ctx context.Context, m *member) (err error) {
		logs, rows, err = m.ProgressRows(ctx)
		return err
	})
	return logs, rows
}

// TestProgressOfAgentTool has a client that sees a run from its start, one that connects in the middle, and one that connects after
// the end: all of them see the same chunks.
func TestProgressOfAgentTool(t *testing.T) {
	tm := &team{think: sayWords(map[string]int{"b": 12})}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		early := connectMember(t, h, "a", "early")
		defer early.close()
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		v := early.waitRun(t, func(v *runView) bool { return strings.Contains(v.text, "w4") })
		if v.call != "call-0" || v.agent != "member" || v.preview != "map[message:hello to:b]" || v.status != "running" {
			t.Errorf("%+v", v)
		}
		if got := early.runs.order[0]; got != tm.askOf["b"].Request {
			t.Errorf("the run is %s, and the request %s", got, tm.askOf["b"].Request)
		}
		middle := connectMember(t, h, "a", "middle")
		defer middle.close()
		early.waitRun(t, runEnded)
		middle.waitRun(t, runEnded)
		h.Advance(5 * time.Second)
		late := newReader(h, dohost.ID{Class: "member", Name: "a"}, "late")
		if err := late.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer late.close()
		late.waitRun(t, runEnded)
		if log := strings.Join(late.log, " "); !strings.HasPrefix(log, "cf_agent_identity cf_agent_state cf_agent_mcp_servers agent-tool-event") &&
			!strings.HasPrefix(log, "cf_agent_identity cf_agent_mcp_servers agent-tool-event") {
			t.Errorf("the late client has received %s", log)
		}
		for _, r := range []*reader{early, middle, late} {
			wantRun(t, r.name, r.only(t), wordsText(12), wordsText(12))
		}
		n := early.only(t).chunks
		if r := middle.only(t); r.replayed < 2 || r.replayed >= n || late.only(t).replayed != n+2 || early.only(t).replayed != 0 {
			t.Errorf("of %d chunks the middle client has received %d events in the replay, the late one %d, and the early one %d",
				n, r.replayed, late.only(t).replayed, early.only(t).replayed)
		}
		if n >= 18 { // start, start-step, text-start, 12 deltas, text-end, finish-step, finish
			t.Errorf("%d chunks: the deltas of a batch are not joined", n)
		}
		inMember(t, h, "a", func(ctx context.Context, m *member) error { return chat.Clear(ctx, m) })
		if logs, rows := logsOf(t, h, "a"); logs+rows != 0 {
			t.Errorf("%d logs and %d rows are left", logs, rows)
		}
	})
}

// TestProgressWithoutClients has no client until the end. The caller writes nothing, and a client sees the answer.
func TestProgressWithoutClients(t *testing.T) {
	runTeam(t, &team{think: sayWords(map[string]int{"b": 12})}, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		h.Advance(10 * time.Second)
		if logs, rows := logsOf(t, h, "a"); logs+rows != 0 {
			t.Errorf("the caller has %d logs and %d rows", logs, rows)
		}
		late := connectMember(t, h, "a", "late")
		defer late.close()
		wantRun(t, "late", late.only(t), "", wordsText(12))
	})
}

// TestProgressBeginsWithTheFirstClient has a client that connects in the middle of a run, when no other is connected: it gets the chunks
// from the first one on, before the end.
func TestProgressBeginsWithTheFirstClient(t *testing.T) {
	runTeam(t, &team{think: sayWords(map[string]int{"b": 60})}, func(t *testing.T, h *dohosttest.Host) {
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		h.Advance(2 * time.Second)
		r := connectMember(t, h, "a", "r")
		defer r.close()
		v := r.waitRun(t, func(v *runView) bool { return strings.Contains(v.text, "w30") })
		if !strings.HasPrefix(v.text, "w0 w1 ") || v.status != "running" {
			t.Errorf("the client has seen %q, %s", v.text, v.status)
		}
		r.waitRun(t, runEnded)
		wantRun(t, "r", v, wordsText(60), wordsText(60))
	})
}

// TestProgressAfterReconnect has a client that disconnects in the middle of a run, and connects again after its end: the rest of the
// chunks came with the answer.
func TestProgressAfterReconnect(t *testing.T) {
	runTeam(t, &team{think: sayWords(map[string]int{"b": 12})}, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
			t.Fatal(err)
		}
		r.waitRun(t, func(v *runView) bool { return strings.Contains(v.text, "w2") })
		r.close()
		h.Advance(20 * time.Second)
		if err := r.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.waitRun(t, runEnded)
		wantRun(t, "r", r.only(t), wordsText(12), wordsText(12))
		r.close()
	})
}

// TestProgressOfReplyThatContinues has an asked agent whose reply ends while it waits for a third one. The client is away when that
// reply ends: its last chunks are in the return address until the reply that continues sends them.
func TestProgressOfReplyThatContinues(t *testing.T) {
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		switch {
		case m.Name() == "b" && len(r.Partial().Parts) == 0:
			for i := range 6 {
				if err := r.Send(ctx, chat.ReasoningDelta("r", fmt.Sprintf("r%d ", i), nil)); err != nil {
					return err
				}
				if err := dohost.Sleep(ctx, 500*time.Millisecond); err != nil {
					return err
				}
			}
		case m.Name() == "c":
			return dohost.Sleep(ctx, 10*time.Second)
		}
		return nil
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		if err := askMember(t.Context(), h, "a", "b: c: hi"); err != nil {
			t.Fatal(err)
		}
		has := func(v *runView, text string) bool {
			return slices.ContainsFunc(mapValues(v.seen), func(e string) bool { return strings.Contains(e, text) })
		}
		r.waitRun(t, func(v *runView) bool { return has(v, "r1 ") })
		r.close()
		h.Advance(6 * time.Second) // b waits for c
		if err := r.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := r.waitRun(t, runEnded)
		wantRun(t, "r", v, "b heard (c says hi)", "b heard (c says hi)")
		for _, want := range []string{"r5 ", "tool-input-available", "tool-output-available"} {
			if !has(v, want) {
				t.Errorf("the client has not seen %q", want)
			}
		}
	})
}

func mapValues(m map[uint64]string) (all []string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// TestProgressIsPrivate has a tool whose progress clients do not see.
func TestProgressIsPrivate(t *testing.T) {
	tm := &team{think: sayWords(map[string]int{"b": 5}), options: chat.AgentToolOptions{Private: true}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		r.ask(t.Context(), "one", "b: hello", nil)
		r.receiveUntil(t, func(f frame) bool { return strings.HasPrefix(f.ID, "cont_") && f.Done })
		late := connectMember(t, h, "a", "late")
		defer late.close()
		h.Advance(time.Second)
		if n := len(r.runs.order) + len(late.runs.order); n > 0 {
			t.Errorf("clients have seen %d runs", n)
		}
		wantTranscript(t, h, "a", "user: b: hello", "assistant: a heard ("+wordsText(5)+")")
	})
}

// TestProgressEnds has runs without an answer.
func TestProgressEnds(t *testing.T) {
	fails := func(_ context.Context, m *member, _ *chat.Reply) error {
		if m.Name() == "b" {
			return &dohost.PublicError{Message: "no model"}
		}
		return nil
	}
	for name, c := range map[string]struct {
		think     func(context.Context, *member, *chat.Reply) error
		then      string // the agent whose reply is stopped
		want, why string
	}{
		"the agent fails":      {fails, "", "error", "The agent member/b failed: no model"},
		"the agent is silent":  {silentMember, "", "interrupted", "The agent member/b did not answer within 2m0s. "},
		"the agent is stopped": {silentMember, "b", "aborted", "The reply of the agent member/b was stopped."},
		"the caller stops":     {silentMember, "a", "aborted", "The reply was stopped, and the request to the agent with it."},
	} {
		t.Run(name, func(t *testing.T) {
			tm := &team{think: c.think}
			if c.then == "a" { // its reply must not have ended
				tm.after = map[string]time.Duration{"a": time.Hour}
				tm.extra = []chat.Tool{sleeper("slow", time.Hour, false)}
			}
			runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
				r := connectMember(t, h, "a", "r")
				defer r.close()
				if err := askMember(t.Context(), h, "a", "b: hello"); err != nil {
					t.Fatal(err)
				}
				r.waitRun(t, func(*runView) bool { return true })
				h.Advance(time.Second)
				if c.then != "" {
					inMember(t, h, c.then, func(ctx context.Context, m *member) error {
						request := "one"
						if c.then == "b" {
							request = tm.askOf["b"].Request
						}
						_, err := chat.Cancel(ctx, m, request)
						return err
					})
				}
				r.waitRun(t, runEnded)
				late := connectMember(t, h, "a", "late")
				defer late.close()
				for _, r := range []*reader{r, late} {
					if v := r.only(t); v.status != c.want || !strings.HasPrefix(v.why, c.why) {
						t.Errorf("%s has seen %q %q, want %q %q", r.name, v.status, v.why, c.want, c.why)
					}
				}
			})
		})
	}
}

// TestProgressOfCancelledRequest has a caller whose stop cancels the request of b, which waits for c: the clients of b see the end of the run.
func TestProgressOfCancelledRequest(t *testing.T) {
	tm := &team{think: silentMember, extra: []chat.Tool{sleeper("slow", time.Hour, false)}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "b", "r")
		defer r.close()
		if err := askMember(t.Context(), h, "a", "b: c: hi & tool slow: x"); err != nil {
			t.Fatal(err)
		}
		r.waitRun(t, func(*runView) bool { return true })
		h.Advance(time.Second)
		inMember(t, h, "a", func(ctx context.Context, m *member) error {
			_, err := chat.Cancel(ctx, m, "one")
			return err
		})
		if v := r.waitRun(t, runEnded); v.status != "aborted" {
			t.Errorf("the client has seen %q %q", v.status, v.why)
		}
	})
}

// TestProgressIsBounded has an agent that streams more than a log may have, and more runs than may have a log.
func TestProgressIsBounded(t *testing.T) {
	big := strings.Repeat("x", 10<<10)
	runs := 9
	tm := &team{think: func(ctx context.Context, m *member, r *chat.Reply) error {
		if m.Name() != "b" {
			return nil
		}
		for range 40 { // 400 KiB
			if err := r.Send(ctx, chat.ReasoningDelta("r", big, nil)); err != nil {
				return err
			}
			if err := dohost.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
		return r.Say(ctx, "done")
	}}
	runTeam(t, tm, func(t *testing.T, h *dohosttest.Host) {
		r := connectMember(t, h, "a", "r")
		defer r.close()
		for i := range runs {
			n := i + 1
			r.ask(t.Context(), fmt.Sprint("q", i), "b: hello", nil)
			r.receiveUntil(t, func(frame) bool {
				return len(r.runs.order) == n && runEnded(r.runs.runs[r.runs.order[i]]) && len(r.messages) == 2*n
			})
		}
		for i, id := range r.runs.order {
			v, size := r.runs.runs[id], 0
			for _, e := range v.seen {
				size += len(e)
			}
			if v.summary != "done" || v.text != "" || size < 200<<10 || size > 300<<10 {
				t.Errorf("run %d has %d bytes, the text %q and the summary %q", i, size, v.text, v.summary)
			}
		}
		if logs, rows := logsOf(t, h, "a"); logs != 8 || rows > 8*40 {
			t.Errorf("%d logs with %d rows", logs, rows)
		}
	})
}
