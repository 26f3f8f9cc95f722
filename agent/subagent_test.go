package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/pointtest"
)

// nestedAgent is an agent with nestedAgents as sub-agents.
type nestedAgent struct{ *agent.Agent[int] }

const nestedAgents dohost.Namespace[nestedAgent] = "BigTree"

func nestedClass(onSub func(*nestedAgent, http.ResponseWriter, *http.Request, agent.SubRequest) bool) dohost.Class {
	return agent.Bind(nestedAgents, func(_ context.Context, a *agent.Agent[int]) (*nestedAgent, error) { return &nestedAgent{a}, nil },
		&agent.Handlers[nestedAgent, int]{
			Initial: new(0),
			OnSub:   onSub,
			OnRequest: func(tr *nestedAgent, w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%v %s %s", tr.Path(), r.URL.EscapedPath(), body)
			},
		},
		agent.Sub[nestedAgent](nestedAgents),
		agent.Callable("grow", (*nestedAgent).add))
}

func (tr *nestedAgent) add(ctx context.Context, n int) (int, error) {
	now, err := tr.State(ctx)
	if err != nil {
		return 0, err
	}
	return now + n, tr.SetState(ctx, now+n)
}

// serveNested serves nestedAgents with all their sub-agents.
func serveNested(t *testing.T, class dohost.Class) *testServer {
	t.Helper()
	h, err := dohost.Open(t.TempDir(), nil, class)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		r.URL.RawPath = "/" + rest
		r.URL.Path = "/" + strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 2)[min(1, strings.Count(r.URL.Path, "/")-1)]
		h.ServeObject(w, r, nestedAgents.Get(h, name).ID())
	}))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return &testServer{h, server.URL}
}

func TestSubAgentsAreReachedThroughTheirParents(t *testing.T) {
	s := serveNested(t, nestedClass(func(_ *nestedAgent, w http.ResponseWriter, r *http.Request, sub agent.SubRequest) bool {
		switch sub.Name {
		case "forbidden":
			http.Error(w, "not that one", http.StatusForbidden)
			return false
		case "rewritten":
			r.URL.Path, r.URL.RawPath = "/else", "/else"
		}
		return true
	}))
	const sub = "/sub/big-tree/"
	for _, tt := range []struct {
		path, want string
		status     int
	}{
		{"/oak" + sub + "branch/x/y", "[BigTree/oak BigTree/branch] /x/y body", 200},
		{"/oak" + sub + "branch" + sub + "twig%2F1/x%2Fy", "[BigTree/oak BigTree/branch BigTree/twig/1] /x%2Fy body", 200},
		{"/oak/sub/other" + sub + "branch", "[BigTree/oak BigTree/branch] / body", 200},
		{"/oak/sub/other/x", "[BigTree/oak] /sub/other/x body", 200},
		{"/oak" + sub + "forbidden/x", "not that one\n", 403},
		{"/oak" + sub + "rewritten/x", "[BigTree/oak BigTree/rewritten] /else body", 200},
		{"/oak" + sub + "a%00b", "Bad Request\n", 400},
		{"/oak" + sub + strings.Repeat("n", 3000), "Not Found\n", 404},
		{"/oak" + sub + "a%1bb", "Not Found\n", 404},
		{"/oak" + sub + "a%ffb", "Not Found\n", 404},
	} {
		res, err := http.Post(s.url+tt.path, "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != tt.status || string(got) != tt.want {
			t.Errorf("%.40s: %d %q (%v), want %d %q", tt.path, res.StatusCode, got, err, tt.status, tt.want)
		}
	}
	// Its socket and its state are its own.
	c, d := s.dial(t, "/oak"+sub+"branch?_pk=c"), s.dial(t, "/oak?_pk=d")
	identity := `{"type":"cf_agent_identity","name":"%s","agent":"big-tree","stateFollows":true}`
	c.want(fmt.Sprintf(identity, "branch"), `{"type":"cf_agent_state","state":0}`, noServers)
	d.want(fmt.Sprintf(identity, "oak"), `{"type":"cf_agent_state","state":0}`, noServers)
	for _, cl := range []*client{c, d} {
		cl.send(`{"type":"rpc","id":"1","method":"grow","args":[1]}`)
		cl.want(`{"type":"cf_agent_state","state":1}`, `{"type":"rpc","id":"1","success":true,"done":true,"result":1}`)
	}
	err := nestedAgents.Get(s, "oak").Do(t.Context(), func(ctx context.Context, oak *nestedAgent) error {
		subs, err := oak.SubAgents().List(ctx, "")
		names := ""
		for _, i := range subs {
			names += i.Class + "/" + i.Name + " "
		}
		wantEqual(t, "sub-agents", names, "BigTree/branch BigTree/rewritten ")
		if err != nil {
			return err
		}
		branch, err := agent.SubAgent(ctx, oak, nestedAgents, "branch")
		if err != nil {
			return err
		}
		n, err := dohost.Call(ctx, branch, (*nestedAgent).add, 5)
		wantEqual(t, "the branch", n, 6)
		if err != nil {
			return err
		}
		if _, err := agent.SubAgent(ctx, oak, wireAgents, "x"); !errors.Is(err, dohost.ErrNotFound) {
			t.Error(err)
		}
		if _, err := agent.SubAgent(ctx, oak, nestedAgents, ""); err == nil {
			t.Error("a sub-agent without a name")
		}
		return branch.Do(ctx, func(ctx context.Context, b *nestedAgent) error {
			parent, ok := agent.Parent(b, nestedAgents)
			if _, none := agent.Parent(b, wireAgents); !ok || none || parent.ID() != oak.ID() {
				t.Error(parent.ID(), ok, none)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The destruction of a tree includes all its sub-agents, even if it is interrupted.
func TestDestroyIncludesSubAgents(t *testing.T) {
	dohosttest.EveryPoint(t, pointtest.Scenario(dohosttest.Scenario{
		Classes: []dohost.Class{nestedClass(nil)},
		Places:  []dohost.Place{dohost.PlaceStart, dohost.PlaceAlarm, dohost.PlaceCommitted, dohost.PlaceDurable, dohost.PlaceAwait, dohost.PlaceAwaited, dohost.PlaceResume, dohost.PlaceEnd},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			err := nestedAgents.Get(h, "oak").Do(ctx, func(ctx context.Context, oak *nestedAgent) error {
				for _, name := range []string{"a", "b"} {
					branch, err := agent.SubAgent(ctx, oak, nestedAgents, name)
					if err != nil {
						return err
					}
					if err := branch.Do(ctx, func(ctx context.Context, b *nestedAgent) error {
						if err := b.SetState(ctx, 1); err != nil {
							return err
						}
						_, err := agent.SubAgent(ctx, b, nestedAgents, "twig")
						return err
					}); err != nil {
						return err
					}
				}
				return oak.SetState(ctx, 1)
			})
			if err != nil {
				return err
			}
			err = nestedAgents.Get(h, "oak").Do(ctx, func(ctx context.Context, oak *nestedAgent) error { return oak.Destroy(ctx) })
			if errors.Is(err, agent.ErrDestroyed) {
				return nil
			}
			return err
		},
		Check: func(ctx context.Context, h *dohosttest.Host) error {
			var left []string
			for id, err := range h.Host().Objects(ctx, string(nestedAgents), "") {
				if err != nil {
					return err
				}
				left = append(left, id.Name)
			}
			// Either all were destroyed, or the destruction never began.
			if len(left) == 0 {
				return nil
			}
			n, err := dohost.Call(ctx, nestedAgents.Get(h, "oak"), (*nestedAgent).add, 0)
			if err != nil {
				return err
			}
			if whole := "[oak sub/BigTree/oak/a sub/BigTree/oak/b]"; n == 1 && fmt.Sprint(left) != whole {
				return fmt.Errorf("left is %v, want nothing or %s", left, whole)
			}
			return nil
		},
		SettleTime: 2 * time.Minute,
	}, 30, 0))
}

// If a caller asks for a sub-agent during its deletion, it is created again, and its parent lists it.
func TestSubAgentRequestedDuringDeletionIsListed(t *testing.T) {
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{nestedClass(nil)}}, func(t *testing.T, h *dohosttest.Host) {
		oak := nestedAgents.Get(h, "oak")
		grow := func(ctx context.Context) error {
			return oak.Do(ctx, func(ctx context.Context, oak *nestedAgent) error {
				branch, err := agent.SubAgent(ctx, oak, nestedAgents, "branch")
				if err == nil {
					_, err = dohost.Call(ctx, branch, (*nestedAgent).add, 1)
				}
				return err
			})
		}
		remove := func(ctx context.Context) error {
			return oak.Do(ctx, func(ctx context.Context, oak *nestedAgent) error {
				existed, err := oak.SubAgents().Delete(ctx, string(nestedAgents), "branch")
				if err == nil && !existed {
					err = errors.New("Delete found no sub-agent")
				}
				return err
			})
		}
		found := func() (found string) {
			err := oak.Do(t.Context(), func(ctx context.Context, oak *nestedAgent) error {
				subs, err := oak.SubAgents().List(ctx, "")
				found = fmt.Sprint(len(subs), " listed, ")
				return err
			})
			there, err2 := h.Host().Exists(t.Context(), dohost.ID{Class: string(nestedAgents), Name: "sub/BigTree/oak/branch"})
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			return found + fmt.Sprint("there ", there)
		}
		for _, tt := range []struct {
			do   []func(context.Context) error // at the same time
			want string
		}{
			{[]func(context.Context) error{grow}, "1 listed, there true"},
			{[]func(context.Context) error{remove, grow}, "1 listed, there true"},
			{[]func(context.Context) error{remove, grow, remove}, "0 listed, there false"},
			{[]func(context.Context) error{grow}, "1 listed, there true"},
			{[]func(context.Context) error{remove}, "0 listed, there false"},
		} {
			var clients []*dohosttest.Client
			for _, do := range tt.do {
				clients = append(clients, h.Client(do))
			}
			for _, c := range clients {
				if err := c.Wait(); err != nil {
					t.Error(err)
				}
			}
			wantEqual(t, fmt.Sprint(len(tt.do), " at once"), found(), tt.want)
		}
	})
}

func TestSubAgentDeleteOfUnknownClass(t *testing.T) {
	dohosttest.Run(t, &dohosttest.Options{Classes: []dohost.Class{nestedClass(nil)}}, func(t *testing.T, h *dohosttest.Host) {
		err := nestedAgents.Get(h, "oak").Do(t.Context(), func(ctx context.Context, oak *nestedAgent) error {
			if existed, err := oak.SubAgents().Delete(ctx, "other", "branch"); existed || !errors.Is(err, dohost.ErrNotFound) {
				t.Errorf("%t, %v", existed, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
