package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/sockettest"
)

// survivalAgent is an agent with one of each thing that may or may not survive.
type survivalAgent struct {
	*agent.Agent[string]
	field    string
	observed *survivalRecord
}

// survivalRecord has the observed parts of survivalAgents, with the work that they repeat.
type survivalRecord map[string]bool

const (
	survivalAgents  dohost.Namespace[survivalAgent] = "hiker"
	survivalFiber   agent.FiberKind[string]         = "trek"
	recordCallback  agent.Callback[string]          = "note"
	delayedCallback agent.Callback[string]          = "later"
	savedValue                                      = "half"
	setUpTime                                       = 10 * time.Second // everything is running by then
	taskTime                                        = 20 * time.Second
)

func (s survivalRecord) class() dohost.Class {
	walk := func(h *survivalAgent, ctx context.Context, from, what string) error {
		if from == savedValue {
			s[what] = true
		}
		if err := agent.SaveCheckpoint(ctx, savedValue); err != nil {
			return err
		}
		return dohost.Sleep(ctx, time.Hour)
	}
	return agent.Bind(survivalAgents, func(_ context.Context, a *agent.Agent[string]) (*survivalAgent, error) {
		return &survivalAgent{a, "", &s}, nil
	},
		&agent.Handlers[survivalAgent, string]{
			OnInterrupted: func(h *survivalAgent, ctx context.Context, i *agent.InterruptedRun) error {
				var at string
				if ok, err := i.Checkpoint(&at); !ok || at != savedValue {
					return errors.Join(err, errors.New("no checkpoint"))
				}
				s["a fiber that was run: its row and checkpoint, for the hook"] = true
				return nil
			},
			OnAccept: func(*survivalAgent, *http.Request) agent.ConnOptions { return agent.ConnOptions{State: savedValue} },
		},
		agent.OnFiber(survivalFiber, func(h *survivalAgent, ctx context.Context, f *agent.Fiber[string]) error {
			return walk(h, ctx, f.Checkpoint(), "a started fiber, from its checkpoint")
		}, nil),
		agent.OnSchedule(recordCallback, func(h *survivalAgent, _ context.Context, what string) error {
			s[what] = true
			return nil
		}),
		agent.OnSchedule(delayedCallback, func(h *survivalAgent, ctx context.Context, what string) error {
			if err := dohost.Sleep(ctx, taskTime); err != nil {
				return err
			}
			s[what] = true
			return nil
		}))
}

// prepare starts one of each.
func (h *survivalAgent) prepare(ctx context.Context, busy bool) error {
	h.field = savedValue
	err := errors.Join(h.SetState(ctx, savedValue), dohost.Put(ctx, h.Storage(), "k", savedValue))
	_, err2 := agent.Schedule(ctx, h, agent.After(time.Minute), recordCallback, "a schedule that is due later", nil)
	if !busy || err != nil {
		return errors.Join(err, err2)
	}
	_, err3 := agent.StartFiber(ctx, h, survivalFiber, "", nil)
	_, err4 := agent.Enqueue(ctx, h, delayedCallback, "an item of the queue, and its place", nil)
	_, err5 := h.KeepAlive(ctx)
	err6 := h.Object().Go(ctx, "task", func(ctx context.Context) error {
		if err := dohost.Sleep(ctx, taskTime); err != nil {
			return err
		}
		(*h.observed)["a task of Object().Go"] = true
		return nil
	})
	err7 := h.Object().Go(ctx, "run", func(ctx context.Context) error {
		return agent.RunFiber(ctx, h, "x", func(ctx context.Context) error {
			return errors.Join(agent.SaveCheckpoint(ctx, savedValue), dohost.Sleep(ctx, time.Hour))
		})
	})
	return errors.Join(err2, err3, err4, err5, err6, err7)
}

// observe records the observed parts of the agent's memory, storage and connections.
func (h *survivalAgent) observe(ctx context.Context, s survivalRecord) error {
	state, err := h.State(ctx)
	kept, _, err2 := dohost.Get[string](ctx, h.Storage(), "k")
	s["the agent's state"] = state == savedValue
	s["its stored rows"] = kept == savedValue
	s["fields of its struct, and all other memory"] = h.field == savedValue
	for c := range h.Connections("") {
		var own string
		_, err := c.State(&own)
		if s["connections, with their own state"] = own == savedValue; err != nil {
			return err
		}
	}
	return errors.Join(err, err2)
}

// survivors returns the parts that exist after an end.
func survivors(t *testing.T, busy bool, end func(h *dohosttest.Host, id dohost.ID)) (s survivalRecord) {
	s = survivalRecord{}
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{s.class()}}, func(t *testing.T, h *dohosttest.Host) {
		id := survivalAgents.Get(h, "a").ID()
		serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Host().ServeObject(w, r, id) })
		ws, _, err := sockettest.Dial(t.Context(), serve, "/")
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		client := h.Client(func(ctx context.Context) error { // so that pings are answered
			for {
				if _, _, err := ws.Read(ctx); err != nil {
					return nil
				}
			}
		})
		do := func(fn func(context.Context, *survivalAgent) error) {
			t.Helper()
			if err := survivalAgents.Get(h, "a").Do(t.Context(), fn); err != nil {
				t.Fatal(err)
			}
		}
		do(func(ctx context.Context, w *survivalAgent) error { return w.prepare(ctx, busy) })
		h.Advance(setUpTime)
		end(h, id)
		// The first observation comes before any part can have been created again.
		do(func(ctx context.Context, w *survivalAgent) error { return w.observe(ctx, s) })
		h.Advance(5 * time.Minute)
		if err := ws.CloseNow(); err == nil {
			t.Log("the connection was open")
		}
		if err := client.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestDocsSurvivalTable prints the parts that survive each kind of end, and compares them with the documents.
func TestDocsSurvivalTable(t *testing.T) {
	ends := []struct {
		name string
		busy bool // idle agents run nothing
		end  func(h *dohosttest.Host, id dohost.ID)
	}{
		{"leaves memory", false, func(h *dohosttest.Host, id dohost.ID) {
			for h.Host().IsLive(id) {
				h.Advance(time.Second)
			}
		}},
		{"evicted", true, func(h *dohosttest.Host, id dohost.ID) { h.Evict(id, dohost.EndFence) }},
		{"SIGKILL", true, func(h *dohosttest.Host, _ dohost.ID) { h.Kill() }},
		{"power cut", true, func(h *dohosttest.Host, _ dohost.ID) { h.Crash() }},
	}
	rows := []struct {
		what string
		busy bool // does not exist, or cannot be ended, when the agent is idle
	}{
		{"the agent's state", false}, {"its stored rows", false}, {"a schedule that is due later", false},
		{"an item of the queue, and its place", true}, {"a started fiber, from its checkpoint", true},
		{"a fiber that was run: its row and checkpoint, for the hook", true},
		{"connections, with their own state", false}, {"a task of Object().Go", true},
		{"fields of its struct, and all other memory", false},
	}
	table := [][]string{{"state"}, {"---"}}
	for _, r := range rows {
		table = append(table, []string{r.what})
	}
	for _, e := range ends {
		s := survivors(t, e.busy, e.end)
		table[0], table[1] = append(table[0], e.name), append(table[1], "---")
		for i, r := range rows {
			cell := map[bool]string{true: "yes", false: "no"}[s[r.what]]
			if r.busy && !e.busy {
				cell = "keeps it in memory"
			}
			table[i+2] = append(table[i+2], cell)
		}
	}
	var b strings.Builder
	for _, cells := range table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	t.Logf("what survives:\n%s", &b)
	text, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), b.String()) {
		t.Error("docs/agents.md does not show this table")
	}
}

// The documents contain the example unchanged.
func TestDocsContainTheExamples(t *testing.T) {
	text, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// Librarians is")
	code, _, _ = strings.Cut(code, "func Example()")
	if !strings.Contains(string(text), strings.TrimSpace(code)) {
		t.Error("docs/agents.md shows another librarian than example_test.go")
	}
	source, err = os.ReadFile("example_access_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ = strings.Cut(string(source), "// bySession authorizes")
	code, _, _ = strings.Cut(code, "// request asks")
	if !strings.Contains(string(text), strings.TrimSpace(code)) {
		t.Error("docs/agents.md shows other authorizations than example_access_test.go")
	}
}

// A client may send a shelf without words. The fiber could not write to it, so the librarian of the documents
// refuses it, and continues. It does not read a book again.
func TestExampleLibrarianReadsEachBookOnce(t *testing.T) {
	read := func(_ context.Context, _ string, page int) (int, error) { return max(0, 3-page), nil }
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{librarian(read)}}, func(t *testing.T, h *dohosttest.Host) {
		id := Librarians.Get(h, "a").ID()
		serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Host().ServeObject(w, r, id) })
		ws, _, err := sockettest.Dial(t.Context(), serve, "/")
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		for _, frame := range []string{
			`{"type":"cf_agent_state","state":{}}`, `{"type":"cf_agent_state","state":null}`,
			`{"type":"rpc","id":"1","method":"start","args":["Walden"]}`,
		} {
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
				t.Fatal(err)
			}
		}
		h.Advance(time.Second)
		err = Librarians.Get(h, "a").Do(t.Context(), func(ctx context.Context, l *Librarian) error {
			shelf, err := l.State(ctx)
			if shelf.Words["Walden"] != 6 {
				t.Errorf("the shelf is %v", shelf)
			}
			if err := dohost.Sleep(ctx, 25*time.Hour); err != nil {
				return err
			}
			if s, err := l.Start(ctx, "Walden"); err != nil || s.Accepted {
				t.Errorf("it reads the book twice: %v", err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The table lists the running work that keeps its agent in memory.
func TestEvictionSparesAgentsWithRunningWork(t *testing.T) {
	hour := func(ctx context.Context) error { return dohost.Sleep(ctx, time.Hour) }
	class := agent.Bind(survivalAgents, func(_ context.Context, a *agent.Agent[string]) (*survivalAgent, error) {
		return &survivalAgent{Agent: a}, nil
	}, nil,
		agent.OnFiber(survivalFiber, func(_ *survivalAgent, ctx context.Context, _ *agent.Fiber[string]) error { return hour(ctx) }, nil),
		agent.OnSchedule(recordCallback, func(_ *survivalAgent, ctx context.Context, _ string) error { return hour(ctx) }))
	for what, begin := range map[string]func(ctx context.Context, h *survivalAgent) error{
		"": func(ctx context.Context, h *survivalAgent) error {
			_, err := agent.Schedule(ctx, h, agent.After(time.Hour), recordCallback, "", nil)
			return errors.Join(err, h.SetState(ctx, savedValue))
		},
		"an item of the queue": func(ctx context.Context, h *survivalAgent) error {
			_, err := agent.Enqueue(ctx, h, recordCallback, "", nil)
			return err
		},
		"a started fiber": func(ctx context.Context, h *survivalAgent) error {
			_, err := agent.StartFiber(ctx, h, survivalFiber, "", nil)
			return err
		},
		"a fiber that was run": func(ctx context.Context, h *survivalAgent) error {
			return h.Object().Go(ctx, "run", func(ctx context.Context) error {
				return agent.RunFiber(ctx, h, "x", func(ctx context.Context) error { return hour(ctx) })
			})
		},
		"a task of Object().Go": func(ctx context.Context, h *survivalAgent) error { return h.Object().Go(ctx, "task", hour) },
		"who keeps it alive": func(ctx context.Context, h *survivalAgent) error {
			_, err := h.KeepAlive(ctx)
			return err
		},
	} {
		dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{class}}, func(t *testing.T, h *dohosttest.Host) {
			if err := survivalAgents.Get(h, "a").Do(t.Context(), func(ctx context.Context, w *survivalAgent) error { return begin(ctx, w) }); err != nil {
				t.Fatal(err)
			}
			h.Advance(10 * time.Minute)
			if live := h.Host().IsLive(survivalAgents.Get(h, "a").ID()); live != (what != "") {
				t.Errorf("with %q it is in memory after 10 minutes: %t", what, live)
			}
		})
	}
}
