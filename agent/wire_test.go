package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// wireState is the state of a wireAgent.
type wireState struct {
	Title string `json:"title"`
	Count int    `json:"count"`
}

// wireAgent is an agent with one of each thing that clients can reach.
type wireAgent struct {
	*agent.Agent[wireState]
	changes []string
}

const wireAgents dohost.Namespace[wireAgent] = "ChatRoom"

type wireHandlers = agent.Handlers[wireAgent, wireState]

// wireClass returns the class of wireAgents. It sets the fields of h that the other tests need; h may be nil.
func wireClass(h *wireHandlers, more ...agent.Entry[wireAgent]) dohost.Class {
	if h == nil {
		h = &wireHandlers{}
	}
	h.Initial = &wireState{Title: "untitled"}
	h.Validate = func(_ *wireAgent, _ context.Context, b wireState, _ *agent.Conn) error {
		if b.Count < 0 {
			return errors.New("a count is not negative")
		}
		return nil
	}
	h.OnStateChanged = func(r *wireAgent, _ context.Context, b wireState, from *agent.Conn) error {
		by := "itself"
		if from != nil {
			by = from.ID()
		}
		r.changes = append(r.changes, fmt.Sprintf("%s %d by %s", b.Title, b.Count, by))
		return nil
	}
	h.Authorize = func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		if r.Request.URL.Query().Get("token") == "wrong" {
			return dohost.Access{}, &dohost.CloseError{Code: 4001, Reason: "who are you?"}
		}
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	}
	h.OnAccept = func(_ *wireAgent, r *http.Request) agent.ConnOptions {
		q := r.URL.Query()
		return agent.ConnOptions{Readonly: q.Has("readonly"), NoProtocol: q.Has("silent") || q.Has("broken"), Tags: q["tag"], State: q.Get("mood")}
	}
	h.OnMessage = func(r *wireAgent, ctx context.Context, c *agent.Conn, f dohost.Frame) error {
		return c.Send(ctx, dohost.Frame{Text: f.Text, Data: append([]byte("heard "), f.Data...)})
	}
	return agent.Bind(wireAgents, func(_ context.Context, a *agent.Agent[wireState]) (*wireAgent, error) {
		return &wireAgent{Agent: a}, nil
	}, h, append([]agent.Entry[wireAgent]{
		agent.Callable("add", (*wireAgent).add),
		agent.Callable("sum", func(_ *wireAgent, _ context.Context, ns []int) (sum int, err error) {
			for _, n := range ns {
				sum += n
			}
			return sum, nil
		}),
		agent.Callable("join", func(_ *wireAgent, _ context.Context, p struct {
			First, Last string
			hidden      int
		}) (string, error) {
			return p.First + " " + p.Last, nil
		}),
		agent.Callable("leak", dohost.Bare(func(*wireAgent, context.Context) error {
			return errors.New("pq: no password for svc:Hunter2")
		})),
		agent.Callable("nothing", dohost.Bare(func(*wireAgent, context.Context) error { return nil })),
		agent.Callable("null", dohost.NoArg(func(*wireAgent, context.Context) (*int, error) { return nil, nil })),
		agent.Callable("heard", dohost.NoArg(func(r *wireAgent, _ context.Context) ([]string, error) { return r.changes, nil })),
		agent.Callable("lock", dohost.NoResult(func(_ *wireAgent, ctx context.Context, on bool) error {
			return agent.ConnFromContext(ctx).SetReadonly(ctx, on)
		})),
		agent.Streaming("count", func(_ *wireAgent, ctx context.Context, n int, s *agent.Stream) (string, error) {
			for i := range n {
				if err := s.Send(ctx, i); err != nil {
					return "", err
				}
			}
			if n > 2 {
				return "", &dohost.PublicError{Message: fmt.Sprintf("%d is too far", n), Err: errors.New("secret")}
			}
			return "done", nil
		}),
	}, more...)...)
}

// Hidden is not callable by clients.
func (r *wireAgent) Hidden() {}

func (r *wireAgent) add(ctx context.Context, n int) (int, error) {
	var count int
	err := r.UpdateState(ctx, func(b *wireState) error {
		b.Count += n
		count = b.Count
		return nil
	})
	return count, err
}

// testServer is a server of agents.
type testServer struct {
	*dohost.Host
	url string
}

func serve(t *testing.T, class dohost.Class) *testServer {
	t.Helper()
	return serveWith(t, class, nil)
}

func serveWith(t *testing.T, class dohost.Class, o *dohost.Options) *testServer {
	t.Helper()
	h, err := dohost.Open(t.TempDir(), o, class)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeObject(w, r, dohost.ID{Class: class.Name(), Name: strings.Trim(r.URL.Path, "/")})
	}))
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return &testServer{h, server.URL}
}

// client is a client of an agent.
type client struct {
	t  *testing.T
	ws *websocket.Conn
}

func (s *testServer) dial(t *testing.T, path string) *client {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(s.url, "http", "ws", 1)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &client{t, ws}
}

func (c *client) send(frame string) {
	c.t.Helper()
	if err := c.ws.Write(c.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		c.t.Fatal(err)
	}
}

// want reads frames and compares them, ignoring the order of members.
func (c *client) want(frames ...string) {
	c.t.Helper()
	for _, want := range frames {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		_, data, err := c.ws.Read(ctx)
		cancel()
		if err != nil {
			c.t.Fatalf("want %s: %v", want, err)
		}
		if normalize(string(data)) != normalize(want) {
			c.t.Errorf("got  %s\nwant %s", data, want)
		}
	}
}

// wantClose reads the closing frame.
func (c *client) wantClose(code int, reason string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	_, data, err := c.ws.Read(ctx)
	e, ok := errors.AsType[websocket.CloseError](err)
	if !ok || int(e.Code) != code || e.Reason != reason {
		c.t.Errorf("got %s, %v; want close %d %q", data, err, code, reason)
	}
}

func normalize(frame string) string {
	var v any
	if json.Unmarshal([]byte(frame), &v) != nil {
		return frame
	}
	b, _ := json.Marshal(v)
	return string(b)
}

const noServers = `{"type":"cf_agent_mcp_servers","mcp":{"servers":{},"tools":[],"prompts":[],"resources":[]}}`

func greeting(name, state string) []string {
	return []string{
		fmt.Sprintf(`{"type":"cf_agent_identity","name":%q,"agent":"chat-room","stateFollows":true}`, name),
		fmt.Sprintf(`{"type":"cf_agent_state","state":%s}`, state), noServers,
	}
}

func TestStateSyncsBothWays(t *testing.T) {
	s := serve(t, wireClass(nil))
	a, b := s.dial(t, "/lobby?_pk=a"), s.dial(t, "/lobby?_pk=b")
	a.want(greeting("lobby", `{"title":"untitled","count":0}`)...)
	b.want(greeting("lobby", `{"title":"untitled","count":0}`)...)
	// Members that the type does not have stay.
	a.send(`{"type":"cf_agent_state","state":{"title":"x","count":1,"colour":"<red>"}}`)
	b.want(`{"type":"cf_agent_state","state":{"title":"x","count":1,"colour":"<red>"}}`)
	// Every client gets a change by the agent, including the caller of the method.
	b.send(`{"type":"rpc","id":"1","method":"add","args":[2]}`)
	b.want(`{"type":"cf_agent_state","state":{"title":"x","count":3}}`)
	b.want(`{"type":"rpc","id":"1","success":true,"done":true,"result":3}`)
	a.want(`{"type":"cf_agent_state","state":{"title":"x","count":3}}`)
	// Only the client that made a refused change gets the error.
	for _, refused := range []string{`{"title":"x","count":-1}`, `{"title":5}`, `"text"`} {
		a.send(`{"type":"cf_agent_state","state":` + refused + `}`)
		a.want(`{"type":"cf_agent_state_error","error":"State update rejected"}`)
	}
	if n, err := dohost.Call(t.Context(), wireAgents.Get(s, "lobby"), (*wireAgent).add, 4); err != nil || n != 7 {
		t.Fatal(n, err)
	}
	a.want(`{"type":"cf_agent_state","state":{"title":"x","count":7}}`)
	b.want(`{"type":"cf_agent_state","state":{"title":"x","count":7}}`)
	b.send(`{"type":"rpc","id":"2","method":"heard","args":[]}`)
	b.want(`{"type":"rpc","id":"2","success":true,"done":true,"result":["x 1 by a","x 3 by itself","x 7 by itself"]}`)
	// The state outlives the agent's time in memory, and later clients get it.
	s.Evict(wireAgents.Get(s, "lobby").ID(), dohost.EndFence)
	s.dial(t, "/lobby").want(greeting("lobby", `{"title":"x","count":7}`)...)
}

func TestCalls(t *testing.T) {
	s := serve(t, wireClass(nil))
	c := s.dial(t, "/r")
	c.want(greeting("r", `{"title":"untitled","count":0}`)...)
	for _, tt := range []struct {
		call    string
		answers []string
	}{
		{`"method":"sum","args":[1,2,3]`, []string{`"success":true,"done":true,"result":6`}},
		{`"method":"join","args":["Ada","Lovelace"]`, []string{`"success":true,"done":true,"result":"Ada Lovelace"`}},
		{`"method":"join","args":[{"first":"Ada","last":"L"}]`, []string{`"success":true,"done":true,"result":"Ada L"`}},
		{`"method":"join","args":[1,2,3]`, []string{`"success":false,"error":"argument of join: argument 1: json: cannot unmarshal number into Go value of type string"`}},
		{`"method":"join","args":["a",2]`, []string{`"success":false,"error":"argument of join: argument 2: json: cannot unmarshal number into Go value of type string"`}},
		{`"method":"nothing","args":[]`, []string{`"success":true,"done":true`}},
		{`"method":"null","args":[]`, []string{`"success":true,"done":true,"result":null`}},
		{`"method":"count","args":[2]`, []string{`"success":true,"done":false,"result":0`, `"success":true,"done":false,"result":1`, `"success":true,"done":true,"result":"done"`}},
		{`"method":"count","args":[3]`, []string{
			`"success":true,"done":false,"result":0`, `"success":true,"done":false,"result":1`, `"success":true,"done":false,"result":2`,
			`"success":false,"error":"3 is too far"`,
		}},
		{`"method":"fly","args":[]`, []string{`"success":false,"error":"Method fly does not exist"`}},
		{`"method":"Hidden","args":[]`, []string{`"success":false,"error":"Method Hidden is not callable"`}},
	} {
		c.send(`{"type":"rpc","id":"x",` + tt.call + `}`)
		for _, a := range tt.answers {
			c.want(`{"type":"rpc","id":"x",` + a + `}`)
		}
	}
	// The same methods over HTTP.
	if out, err := s.Invoke(dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadWrite}), wireAgents.Get(s, "r").ID(), "sum", []byte(`[4,5]`)); err != nil || string(out) != "9" {
		t.Error(string(out), err)
	}
}

// TestCallWithLongIDOrMethodIsAMessage sends calls at the bounds of the id and of the method, and beyond them. Each
// chunk of a streaming method repeats the id, and the error of an unknown method repeats its name.
func TestCallWithLongIDOrMethodIsAMessage(t *testing.T) {
	s := serve(t, wireClass(nil))
	c := s.dial(t, "/r")
	c.ws.SetReadLimit(-1)
	c.want(greeting("r", `{"title":"untitled","count":0}`)...)
	call := func(id, method string) string {
		return fmt.Sprintf(`{"type":"rpc","id":"%s","method":"%s","args":[1]}`, id, method)
	}
	id, method := strings.Repeat("i", 512), strings.Repeat("m", 256)
	c.send(call(id, "count"))
	c.want(`{"type":"rpc","id":"` + id + `","success":true,"done":false,"result":0}`)
	c.want(`{"type":"rpc","id":"` + id + `","success":true,"done":true,"result":"done"}`)
	c.send(call("x", method))
	c.want(`{"type":"rpc","id":"x","success":false,"error":"Method ` + method + ` does not exist"}`)
	for _, long := range []string{call(id+"i", "count"), call(strings.Repeat("i", 4_000_000), "count"), call("x", method+"m")} {
		c.send(long)
		c.want("heard " + long)
	}
}

// TestErrorTextsAreHiddenFromClients has errors of a method and of OnConnect that are not public.
func TestErrorTextsAreHiddenFromClients(t *testing.T) {
	s := serve(t, wireClass(&wireHandlers{OnConnect: func(_ *wireAgent, _ context.Context, c *agent.Conn, r *http.Request) error {
		if r.URL.Query().Has("broken") {
			return errors.New("pq: no password for svc:Hunter2")
		}
		return nil
	}}))
	c := s.dial(t, "/r?silent")
	c.send(`{"type":"rpc","id":"1","method":"leak","args":[]}`)
	broken := s.dial(t, "/r?broken")
	for _, c := range []*client{c, broken} {
		_, data, err := c.ws.Read(t.Context())
		if err != nil || strings.Contains(string(data), "Hunter2") || !strings.Contains(string(data), `"error":"internal error 0`) {
			t.Errorf("%s, %v", data, err)
		}
	}
}

// TestErrorOfAnArgumentIsShort sends a number whose decoder quotes it in its error.
func TestErrorOfAnArgumentIsShort(t *testing.T) {
	c := serve(t, wireClass(nil)).dial(t, "/r?silent")
	c.send(`{"type":"rpc","id":"1","method":"add","args":[` + strings.Repeat("1", 100_000) + `]}`)
	_, data, err := c.ws.Read(t.Context())
	if err != nil || len(data) > 600 || !strings.Contains(string(data), `"error":"argument of add: json: `) {
		t.Errorf("%d bytes: %.600s, %v", len(data), data, err)
	}
}

// TestFrameOutsideTheProtocolIsAMessage has frames that resemble frames of the protocol.
func TestFrameOutsideTheProtocolIsAMessage(t *testing.T) {
	s := serve(t, wireClass(nil))
	c := s.dial(t, "/r?silent")
	for _, m := range []string{
		"text", `{"type":"rpc"}`, `{"type":"rpc","id":5,"method":"add","args":[]}`, `{"type":"rpc","id":"5","method":"add"}`,
		`{"type":"rpc","id":"5","method":"add","args":{}}`, `{"type":"cf_agent_state"}`, `{"type":"other"}`, `[]`, `{"type":5}`, ``,
	} {
		c.send(m)
		c.want("heard " + m)
	}
	if err := c.ws.Write(t.Context(), websocket.MessageBinary, []byte{0, 1, 255}); err != nil {
		t.Fatal(err)
	}
	if kind, data, err := c.ws.Read(t.Context()); err != nil || kind != websocket.MessageBinary || string(data) != "heard \x00\x01\xff" {
		t.Error(kind, data, err)
	}
}

func TestConnectionsMayBeReadonlyOrWithoutProtocol(t *testing.T) {
	s := serve(t, wireClass(nil))
	writer, silent, reader := s.dial(t, "/r?_pk=w"), s.dial(t, "/r?silent"), s.dial(t, "/r?readonly&mood=calm&_pk=r")
	writer.want(greeting("r", `{"title":"untitled","count":0}`)...)
	reader.want(greeting("r", `{"title":"untitled","count":0}`)...)
	reader.send(`{"type":"cf_agent_state","state":{"title":"mine"}}`)
	reader.want(`{"type":"cf_agent_state_error","error":"Connection is readonly"}`)
	reader.send(`{"type":"rpc","id":"1","method":"add","args":[1]}`)
	reader.want(`{"type":"rpc","id":"1","success":false,"error":"Connection is readonly"}`)
	silent.send(`{"type":"rpc","id":"1","method":"add","args":[1]}`) // may call, and gets no state
	silent.want(`{"type":"rpc","id":"1","success":true,"done":true,"result":1}`)
	writer.want(`{"type":"cf_agent_state","state":{"title":"untitled","count":1}}`)
	reader.want(`{"type":"cf_agent_state","state":{"title":"untitled","count":1}}`)
	// Rights and the connection's own state stay while the agent is not in memory.
	writer.send(`{"type":"rpc","id":"2","method":"lock","args":[true]}`)
	writer.want(`{"type":"rpc","id":"2","success":true,"done":true}`)
	writer.send(`{"type":"cf_agent_state","state":{"title":"mine"}}`)
	writer.want(`{"type":"cf_agent_state_error","error":"Connection is readonly"}`)
	err := wireAgents.Get(s, "r").Do(t.Context(), func(ctx context.Context, r *wireAgent) error {
		var mood string
		for c := range r.Connections("r") {
			if ok, err := c.State(&mood); !ok || err != nil || mood != "calm" || !c.Readonly() || c.ID() != "r" {
				return fmt.Errorf("%q, %v, %v", mood, ok, err)
			}
			if err := c.SetState(ctx, func() {}); err == nil {
				t.Error("a function was stored")
			}
			if err := c.SetState(ctx, "hasty"); err != nil || !c.Readonly() {
				return fmt.Errorf("readonly %v, %v", c.Readonly(), err)
			}
			return r.Broadcast(ctx, dohost.Frame{Text: true, Data: []byte("all but one")}, c)
		}
		return errors.New("no connection r")
	})
	if err != nil {
		t.Fatal(err)
	}
	writer.want("all but one")
	silent.want("all but one")
}

func TestConnectionAcceptRefuseAndReplace(t *testing.T) {
	s := serve(t, wireClass(&wireHandlers{OnConnect: func(_ *wireAgent, _ context.Context, c *agent.Conn, r *http.Request) error {
		switch q := r.URL.Query(); {
		case q.Has("broken"):
			return &dohost.PublicError{Message: "no door"}
		case q.Has("late"):
			return &dohost.PublicError{Message: "too late"}
		}
		return nil
	}}))
	s.dial(t, "/r?token=wrong").wantClose(4001, "who are you?")
	broken := s.dial(t, "/r?broken")
	broken.want(`{"error":"no door"}`)
	broken.wantClose(1011, "the agent refused the connection")
	late := s.dial(t, "/r?late")
	late.want(greeting("r", `{"title":"untitled","count":0}`)...)
	late.want(`{"error":"too late"}`)
	late.wantClose(1011, "the agent refused the connection")
	// A client that connects with an id in use replaces the older connection.
	older, other := s.dial(t, "/r?_pk=me"), s.dial(t, "/r?_pk=you&tag=me")
	older.want(greeting("r", `{"title":"untitled","count":0}`)...)
	other.want(greeting("r", `{"title":"untitled","count":0}`)...)
	newer := s.dial(t, "/r?_pk=me")
	older.wantClose(agent.CloseReplaced, "replaced by a newer connection of the same id")
	newer.want(greeting("r", `{"title":"untitled","count":0}`)...)
	for _, c := range []*client{newer, other} {
		c.send(`{"type":"rpc","id":"1","method":"sum","args":[1,1]}`)
		c.want(`{"type":"rpc","id":"1","success":true,"done":true,"result":2}`)
	}
	for path, status := range map[string]int{"/r": http.StatusNotFound, "/r?_pk=": http.StatusNotFound} {
		r, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); err != nil || r.StatusCode != status {
			t.Errorf("%s: %d, %v", path, r.StatusCode, err)
		}
	}
	if _, r, err := websocket.Dial(t.Context(), strings.Replace(s.url, "http", "ws", 1)+"/r?_pk="+strings.Repeat("x", 300), nil); err == nil || r.StatusCode != http.StatusBadRequest {
		t.Error(r, err)
	}
}

// Results of methods about an agent's work have JavaScript names for clients.
func TestMethodResultsHaveJavaScriptNames(t *testing.T) {
	for _, v := range []any{
		agent.Started{}, agent.FiberInfo{}, agent.ScheduleInfo{Every: 1, Cron: "x", Zone: "x"}, agent.QueueInfo{},
		agent.DeadLetter{}, agent.SubInfo{},
	} {
		var members map[string]json.RawMessage
		data, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, &members)
		}
		if err != nil || len(members) == 0 {
			t.Errorf("%T: %s, %v", v, data, err)
		}
		for name := range members {
			if name != strings.ToLower(name) {
				t.Errorf("%T has a member %q", v, name)
			}
		}
	}
}

// TestConnectionRequestAmongOtherUpgrades has a request that Authorize functions see as one for a WebSocket: the
// agent must not answer it over HTTP.
func TestConnectionRequestAmongOtherUpgrades(t *testing.T) {
	s := serve(t, wireClass(&wireHandlers{
		OnRequest: func(_ *wireAgent, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "over HTTP") },
	}))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/r", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "x, websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		r.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("status %d, want 101", res.StatusCode)
	}
}

// TestFrameWithMillionsOfArgumentsTakesLittleMemory sends calls of nearly 4 MiB, the largest frame. The bound includes
// the memory of the client and of the connection.
func TestFrameWithMillionsOfArgumentsTakesLittleMemory(t *testing.T) {
	s := serve(t, wireClass(nil))
	c := s.dial(t, "/r")
	c.want(greeting("r", `{"title":"untitled","count":0}`)...)
	const n = 2_090_000
	for _, tt := range []struct{ frame, answer string }{
		{`"method":"nowhere","args":[1` + strings.Repeat(",1", n) + `]`, `"success":false,"error":"Method nowhere does not exist"`},
		{`"method":"nothing","args":[1` + strings.Repeat(",1", n) + `]`, `"success":true,"done":true`},
		{`"method":"nothing","args":[` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + strings.Repeat(",{}", n*2/3-5000) + `]`, `"success":true,"done":true`},
	} {
		frame := `{"type":"rpc","id":"1",` + tt.frame + `}`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.send(frame)
		c.want(`{"type":"rpc","id":"1",` + tt.answer + `}`)
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(frame)); got > 12 {
			t.Errorf("%.50s: a frame of %d bytes allocates %d times its size", frame, len(frame), got)
		}
	}
}
