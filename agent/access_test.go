package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// guardedAgent is an agent with an Authorize function, and with guardedSubAgents as sub-agents.
type guardedAgent struct{ *agent.Agent[wireState] }

// guardedSubAgent is a sub-agent, which may have an Authorize function of its own.
type guardedSubAgent struct{ *agent.Agent[wireState] }

const (
	guardedAgents    dohost.Namespace[guardedAgent]    = "Estate"
	guardedSubAgents dohost.Namespace[guardedSubAgent] = "Cottage"
)

type (
	authorize = func(context.Context, *dohost.AccessRequest) (dohost.Access, error)
	onSub     = func(*guardedAgent, http.ResponseWriter, *http.Request, agent.SubRequest) bool
)

// TestAuthorizeExampleAcceptsOperators calls the example's method with an identity that is not its own, like
// web.Operator.
func TestAuthorizeExampleAcceptsOperators(t *testing.T) {
	h, err := dohost.Open(t.TempDir(), nil, notebook(bySession(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	ctx := dohost.GrantAccess(t.Context(), dohost.Access{Identity: struct{}{}, Rights: dohost.RightsReadWrite})
	if out, err := h.Invoke(ctx, Notebooks.Get(h, "ada").ID(), "write", []byte(`"a line"`)); err != nil || string(out) != `"operator wrote"` {
		t.Errorf("%s, %v", out, err)
	}
}

// guardedHost is a host of guardedAgents. It records the objects that it has woken.
type guardedHost struct {
	*testServer
	mu    sync.Mutex
	woken []string
}

func openGuardedHost(t *testing.T, ofAgent, ofSubAgent authorize, onSub onSub) *guardedHost {
	t.Helper()
	g := &guardedHost{}
	up := func(ctx context.Context, set func(context.Context, func(*wireState) error) error) error {
		return set(ctx, func(b *wireState) error { b.Count++; return nil })
	}
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1, Listener: dohost.Listener{Waking: func(id dohost.ID, _ dohost.Epoch) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.woken = append(g.woken, id.String())
	}}},
		agent.Bind(guardedAgents, func(_ context.Context, a *agent.Agent[wireState]) (*guardedAgent, error) {
			return &guardedAgent{a}, nil
		},
			&agent.Handlers[guardedAgent, wireState]{
				Initial:   &wireState{Title: "new"},
				Authorize: ofAgent,
				OnSub:     onSub,
				OnRequest: func(e *guardedAgent, w http.ResponseWriter, r *http.Request) {
					answerFor(w, r, e.Path(), up(r.Context(), e.UpdateState))
				},
			},
			agent.Sub[guardedAgent](guardedSubAgents),
			agent.Callable("up", dohost.Bare(func(e *guardedAgent, ctx context.Context) error { return up(ctx, e.UpdateState) }))),
		agent.Bind(guardedSubAgents, func(_ context.Context, a *agent.Agent[wireState]) (*guardedSubAgent, error) {
			return &guardedSubAgent{a}, nil
		},
			&agent.Handlers[guardedSubAgent, wireState]{
				Initial:   &wireState{Title: "new"},
				Authorize: ofSubAgent,
				OnRequest: func(c *guardedSubAgent, w http.ResponseWriter, r *http.Request) {
					answerFor(w, r, c.Path(), up(r.Context(), c.UpdateState))
				},
			},
			agent.Sub[guardedSubAgent](guardedSubAgents)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := guardedAgents.Get(h, "e").ID()
		if method, ok := strings.CutPrefix(r.URL.Path, "/call/"); ok {
			ctx, err := h.AuthorizeCall(r, id, method)
			var out []byte
			if err == nil {
				out, err = h.Invoke(ctx, id, method, nil)
			}
			if err != nil {
				h.WriteError(w, err)
				return
			}
			w.Write(out)
			return
		}
		h.ServeObject(w, r, id)
	}))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	g.testServer = &testServer{h, server.URL}
	return g
}

// answerFor answers a request with the agent's path, the caller, and the outcome of a change.
func answerFor(w http.ResponseWriter, r *http.Request, path []dohost.ID, err error) {
	a, _ := dohost.AccessFrom(r.Context())
	fmt.Fprint(w, path, " ", a.Identity, " ", err)
}

// request sends a request, as a WebSocket handshake if the method is SOCKET, and returns the status.
func (g *guardedHost) request(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	if method == "SOCKET" {
		ws, res, err := websocket.Dial(t.Context(), g.url+path, nil)
		if err == nil {
			_ = ws.CloseNow()
		}
		return res.StatusCode, ""
	}
	req, err := http.NewRequestWithContext(t.Context(), method, g.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// stored lists the objects on the disk.
func (g *guardedHost) stored(t *testing.T) (ids []string) {
	t.Helper()
	for _, class := range []string{string(guardedSubAgents), string(guardedAgents)} {
		for id, err := range g.Objects(t.Context(), class, "") {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id.String())
		}
	}
	return ids
}

func (g *guardedHost) wantUntouched(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if ids := g.stored(t); len(g.woken) > 0 || len(ids) > 0 {
		t.Errorf("woken: %v, stored: %v", g.woken, ids)
	}
}

func grant(rights dohost.Rights, identity string) authorize {
	return func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Identity: identity, Rights: rights}, nil
	}
}

func refuse(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
	return dohost.Access{}, dohost.ErrUnauthenticated
}

var endpoints = []struct{ method, path string }{
	{"GET", "/x"}, {"POST", "/"}, {"SOCKET", "/"}, {"POST", "/call/up"}, {"POST", "/call/none"},
	{"GET", "/sub/cottage/c"}, {"SOCKET", "/sub/cottage/c"}, {"GET", "/sub/cottage/c/sub/cottage/d/x"}, {"GET", "/sub/cottage/a%00b"},
}

func TestAuthorizeGuardsEveryEndpoint(t *testing.T) {
	g := openGuardedHost(t, refuse, nil, nil)
	for _, in := range endpoints {
		if status, body := g.request(t, in.method, in.path); status != 401 {
			t.Errorf("%s %s: %d %s", in.method, in.path, status, body)
		}
	}
	g.wantUntouched(t)
}

// The Authorize function of a sub-agent's class runs before the parent is woken or lists the sub-agent.
func TestAuthorizeOfSubAgentRunsBeforeItsParentWakes(t *testing.T) {
	for name, ofAgent := range map[string]authorize{"parent without a function": nil, "parent that permits": grant(dohost.RightsReadWrite, "ada")} {
		t.Run(name, func(t *testing.T) {
			g := openGuardedHost(t, ofAgent, refuse, nil)
			for _, in := range endpoints {
				if !strings.HasPrefix(in.path, "/sub/cottage/c") {
					continue
				}
				if status, body := g.request(t, in.method, in.path); status != 401 {
					t.Errorf("%s %s: %d %s", in.method, in.path, status, body)
				}
			}
			g.wantUntouched(t)
		})
	}
}

func TestAuthorizeGetsThePathOfSubAgents(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	record := func(of string) authorize {
		return func(ctx context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
			mu.Lock()
			defer mu.Unlock()
			before, _ := dohost.AccessFrom(ctx)
			asked = append(asked, fmt.Sprintf("%v %v %v %s", r.Path, r.Below, before.Identity, r.Request.URL.Path))
			return dohost.Access{Identity: of, Rights: dohost.RightsReadWrite}, nil
		}
	}
	g := openGuardedHost(t, record("estate"), record("cottage"),
		func(_ *guardedAgent, _ http.ResponseWriter, r *http.Request, s agent.SubRequest) bool {
			if s.Name == "moved" {
				r.URL.Path, r.URL.RawPath = "/sub/cottage/cellar/z", ""
			}
			return true
		})
	for _, tt := range []struct{ path, answer, asked string }{
		{"/x", "[Estate/e] estate <nil>", "[Estate/e] [] <nil> /x"},
		{
			"/sub/cottage/c/sub/cottage/d/x", "[Estate/e Cottage/c Cottage/d] cottage <nil>",
			"[Estate/e] [Cottage/c Cottage/d] <nil> /sub/cottage/c/sub/cottage/d/x; " +
				"[Estate/e Cottage/c] [Cottage/d] estate /sub/cottage/c/sub/cottage/d/x; " +
				"[Estate/e Cottage/c Cottage/d] [] cottage /sub/cottage/c/sub/cottage/d/x",
		},
		{
			"/sub/cottage/moved/y", "[Estate/e Cottage/moved Cottage/cellar] cottage <nil>",
			"[Estate/e] [Cottage/moved] <nil> /sub/cottage/moved/y; [Estate/e Cottage/moved] [] estate /sub/cottage/moved/y; " +
				"[Estate/e Cottage/moved] [Cottage/cellar] estate /sub/cottage/cellar/z; " +
				"[Estate/e Cottage/moved Cottage/cellar] [] cottage /sub/cottage/cellar/z",
		},
	} {
		asked = nil
		status, body := g.request(t, "GET", tt.path)
		if got := strings.Join(asked, "; "); status != 200 || body != tt.answer || got != tt.asked {
			t.Errorf("%s: %d %s\nasked %s\nwant  %s", tt.path, status, body, got, tt.asked)
		}
	}
}

// A path that is not in its canonical encoding means the same to the function and to the agents.
func TestAuthorizeReadsPathsAsAgentsDo(t *testing.T) {
	var last string
	g := openGuardedHost(t, func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		last = fmt.Sprint(append(r.Path, r.Below...))
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	}, nil, nil)
	for path, want := range map[string]string{
		`/sub/cottage/a%2Fb/x`:                         "[Estate/e Cottage/a/b]",
		`/sub/cottage/a%2Fb"/x`:                        `[Estate/e Cottage/a]`,
		`/sub/cottage/a"/sub%2Fcottage/b`:              `[Estate/e Cottage/a" Cottage/b]`,
		`/sub/cottage/a/%73ub/cottage/b`:               "[Estate/e Cottage/a]",
		`//sub//cottage//a//sub/cottage/b%2F..%2Fc"/x`: `[Estate/e Cottage/a Cottage/b]`,
	} {
		w := httptest.NewRecorder()
		g.ServeObject(w, httptest.NewRequest("GET", path, nil), guardedAgents.Get(g, "e").ID())
		if answered := w.Body.String(); last != want || !strings.HasPrefix(answered, want+" ") {
			t.Errorf("%s: asked about %s, answered by %s; want %s", path, last, answered, want)
		}
	}
}

func TestRightsOfReadersApplyOnEveryPath(t *testing.T) {
	g := openGuardedHost(t, func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		if r.Request.URL.Query().Has("write") {
			return dohost.Access{Rights: dohost.RightsReadWrite}, nil
		}
		return dohost.Access{Rights: dohost.RightsReadOnly}, nil
	}, nil, nil)
	state := `{"type":"cf_agent_state","state":{"title":"new","count":0}}`
	c := g.dial(t, "/?_pk=c")
	c.want(`{"type":"cf_agent_identity","name":"e","agent":"estate","stateFollows":true}`, state, noServers)
	c.send(`{"type":"cf_agent_state","state":{"title":"mine","count":7}}`)
	c.want(`{"type":"cf_agent_state_error","error":"Connection is readonly"}`)
	c.send(`{"type":"rpc","id":"1","method":"up","args":[]}`)
	c.want(`{"type":"rpc","id":"1","success":false,"error":"Connection is readonly"}`)
	for _, tt := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"POST", "/call/up", 403, `"code":"read_only"`},
		{"POST", "/x", 200, "[Estate/e] <nil> agent: the client may only read"},
		{"GET", "/sub/cottage/c/x", 403, `"code":"read_only"`},
		{"SOCKET", "/sub/cottage/c", 403, ""},
	} {
		if status, body := g.request(t, tt.method, tt.path); status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, status, body)
		}
	}
	err := guardedAgents.Get(g, "e").Do(t.Context(), func(ctx context.Context, e *guardedAgent) error {
		for conn := range e.Connections("") {
			if err := conn.SetReadonly(ctx, false); err != nil || !conn.Readonly() {
				return errors.Join(err, errors.New("the restriction of the access was lifted"))
			}
		}
		return nil
	})
	if ids := g.stored(t); err != nil || len(ids) > 0 {
		t.Errorf("stored %v, %v", ids, err)
	}
	// An existing sub-agent can be read, but not changed.
	g.request(t, "GET", "/sub/cottage/c/x?write")
	if status, body := g.request(t, "GET", "/sub/cottage/c/x"); status != 200 || !strings.Contains(body, "agent: the client may only read") {
		t.Errorf("an existing sub-agent: %d %s", status, body)
	}
}

// TestConnectionIsNotReplacedByAnotherIdentity has a client that knows the id of another client's connection.
func TestConnectionIsNotReplacedByAnotherIdentity(t *testing.T) {
	g := openGuardedHost(t, func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Identity: r.Request.URL.Query()["as"], Rights: dohost.RightsReadWrite}, nil
	}, nil, nil)
	ada := g.dial(t, "/?as=ada&_pk=x")
	mallory := g.dial(t, "/?as=mallory&_pk=x")
	for _, c := range []*client{ada, mallory} {
		c.send(`{"type":"rpc","id":"1","method":"up","args":[]}`)
		for {
			_, data, err := c.ws.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), `"rpc"`) {
				break
			}
		}
	}
	g.dial(t, "/?as=ada&_pk=x")
	for {
		_, _, err := ada.ws.Read(t.Context())
		if err == nil {
			continue // states
		}
		if code := websocket.CloseStatus(err); code != agent.CloseReplaced {
			t.Errorf("closed with %d (%v), want %d", code, err, agent.CloseReplaced)
		}
		break
	}
}
