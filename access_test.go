package dohost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/objectstore"
)

// guardedObject is an object of a class with an Authorize function and one entry of each kind.
type guardedObject struct{ st *dohost.State }

const guardedObjects dohost.Namespace[guardedObject] = "safe"

type authorizeFunc = func(context.Context, *dohost.AccessRequest) (dohost.Access, error)

func guardedClass(f authorizeFunc) dohost.Class {
	whoami := func(_ *guardedObject, ctx context.Context, _ struct{}) (string, error) { return accessIn(ctx), nil }
	return dohost.Bind(guardedObjects, func(_ context.Context, st *dohost.State) (*guardedObject, error) { return &guardedObject{st}, nil },
		&dohost.Handlers[guardedObject]{
			Authorize: f,
			OnHTTP:    (*guardedObject).serve,
			OnSocket: &dohost.SocketHandlers[guardedObject]{
				Message: func(_ *guardedObject, ctx context.Context, s *dohost.Socket, _ dohost.Frame) error {
					return s.Send(ctx, dohost.Frame{Text: true, Data: []byte(accessIn(ctx))})
				},
				Closed: func(s *guardedObject, ctx context.Context, _ *dohost.Socket, _ dohost.Closing) error {
					return dohost.Put(ctx, s.st.Storage(), "closed", accessIn(ctx))
				},
			},
		},
		dohost.Expose("put", func(s *guardedObject, ctx context.Context, v string) (string, error) {
			return accessIn(ctx), dohost.Put(ctx, s.st.Storage(), "v", v)
		}),
		dohost.ExposeRead("whoami", whoami))
}

func (s *guardedObject) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		if _, err := s.st.Accept(w, r, nil); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		return
	}
	io.WriteString(w, accessIn(r.Context()))
}

func accessIn(ctx context.Context) string {
	a, ok := dohost.AccessFrom(ctx)
	return fmt.Sprint(a.Identity, a.Rights, ok)
}

// guardedHost is a host of guardedObjects with an HTTP server, and a record of the host's actions.
type guardedHost struct {
	*dohost.Host
	url string

	mu      sync.Mutex
	woken   []string
	reports []string
}

func openGuarded(t *testing.T, f authorizeFunc) *guardedHost {
	t.Helper()
	v := &guardedHost{}
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1, Listener: dohost.Listener{
		Waking: func(id dohost.ID, _ dohost.Epoch) { v.note(&v.woken, id.String()) },
		Service: func(_ dohost.ID, event string, attrs ...slog.Attr) {
			v.note(&v.reports, event+" "+attrs[0].Value.String())
		},
	}}, guardedClass(f))
	if err != nil {
		t.Fatal(err)
	}
	v.Host = h
	server := httptest.NewServer(http.HandlerFunc(v.serve))
	v.url = server.URL
	t.Cleanup(func() {
		server.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func (v *guardedHost) note(list *[]string, s string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*list = append(*list, s)
}

func (v *guardedHost) noted(list *[]string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(*list, ", ")
}

// reported closes the host, which then has reported everything, and returns the reports.
func (v *guardedHost) reported(t *testing.T) string {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	return v.noted(&v.reports)
}

func (v *guardedHost) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if parts[0] != "call" {
		v.ServeObject(w, r, guardedObjects.Get(v.Host, parts[0]).ID())
		return
	}
	id := guardedObjects.Get(v.Host, parts[1]).ID()
	ctx, err := v.AuthorizeCall(r, id, parts[2])
	if err != nil {
		v.WriteError(w, err)
		return
	}
	arg, _ := io.ReadAll(r.Body)
	out, err := v.Invoke(ctx, id, parts[2], arg)
	if err != nil {
		v.WriteError(w, err)
		return
	}
	w.Write(out)
}

func (v *guardedHost) do(t *testing.T, method, path, body string) (status int, answer string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, v.url+path, strings.NewReader(body))
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
	return res.StatusCode, string(b), res.Header
}

// untouched fails the test if an object was woken or written.
func (v *guardedHost) untouched(t *testing.T, name string) {
	t.Helper()
	there, err := v.Exists(t.Context(), guardedObjects.Get(v.Host, name).ID())
	if woken := v.noted(&v.woken); woken != "" || there || err != nil {
		t.Errorf("woken: %q, exists: %v, %v", woken, there, err)
	}
}

func TestAuthorizeRefusesBeforeTheObjectIsWoken(t *testing.T) {
	secret := errors.New("pq: password=hunter2")
	long := fmt.Errorf("%w %s", secret, strings.Repeat("a", 5000))
	truncated := long.Error()[:4093] + "…"
	for name, tt := range map[string]struct {
		err    error
		panics error
		status int
		code   string
		report string
	}{
		"zero access":     {nil, nil, 403, "forbidden", ""},
		"unauthenticated": {fmt.Errorf("%w: expired", dohost.ErrUnauthenticated), nil, 401, "unauthenticated", ""},
		"forbidden":       {dohost.ErrForbidden, nil, 403, "forbidden", ""},
		"other error":     {secret, nil, 403, "forbidden", "access:error " + secret.Error()},
		"long error":      {long, nil, 403, "forbidden", "access:error " + truncated},
		"panic":           {nil, secret, 500, "internal", "access:panic " + secret.Error()},
		"long panic":      {nil, long, 500, "internal", "access:panic " + truncated},
	} {
		t.Run(name, func(t *testing.T) {
			v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
				if tt.panics != nil {
					panic(tt.panics)
				}
				return dohost.Access{Identity: "ada"}, tt.err
			})
			for _, r := range []struct{ method, path string }{
				{"GET", "/a"}, {"POST", "/a/x?y=z"}, {"POST", "/call/a/put"}, {"POST", "/call/a/whoami"}, {"POST", "/call/a/none"},
			} {
				status, body, header := v.do(t, r.method, r.path, `"v"`)
				if status != tt.status || !strings.Contains(body, `"code":"`+tt.code+`"`) || strings.Contains(body, "hunter2") {
					t.Errorf("%s %s: %d %s", r.method, r.path, status, body)
				}
				if (header.Get("WWW-Authenticate") != "") != (status == 401) {
					t.Errorf("%s %s: WWW-Authenticate %q", r.method, r.path, header.Get("WWW-Authenticate"))
				}
			}
			_, res, err := websocket.Dial(t.Context(), v.url+"/a", nil)
			if err == nil || res == nil || res.StatusCode != tt.status {
				t.Errorf("socket: %v, %v", res, err)
			}
			v.untouched(t, "a")
			if got := v.reported(t); (got == "") != (tt.report == "") || !strings.HasPrefix(got, tt.report) {
				t.Errorf("reported %q, want %q", got, tt.report)
			}
		})
	}
}

func TestAuthorizeClosesSocketsWithACode(t *testing.T) {
	for _, tt := range []struct {
		how    dohost.CloseError
		code   websocket.StatusCode
		reason string
	}{
		{dohost.CloseError{Code: 4001, Reason: "who are you?"}, 4001, "who are you?"},
		{dohost.CloseError{Code: 401, Reason: "no"}, 1008, "access denied"},
		{dohost.CloseError{Code: 4001, Reason: strings.Repeat("x", 124)}, 1008, "access denied"},
	} {
		v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
			return dohost.Access{}, fmt.Errorf("refused: %w", &tt.how)
		})
		ws, _, err := websocket.Dial(t.Context(), v.url+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = ws.Read(t.Context())
		if e, ok := errors.AsType[websocket.CloseError](err); !ok || e.Code != tt.code || e.Reason != tt.reason {
			t.Errorf("%v: %v", tt.how, err)
		}
		if status, body, _ := v.do(t, "GET", "/a", ""); status != 403 {
			t.Errorf("without a socket: %d %s", status, body)
		}
		v.untouched(t, "a")
	}
}

// TestAuthorizeClosesSocketsOfAllowedOriginsOnly connects from pages that only a class allows: to an object that is
// refused, and to one that delegates the request to that object.
func TestAuthorizeClosesSocketsOfAllowedOriginsOnly(t *testing.T) {
	const outers dohost.Namespace[guardedObject] = "outer"
	build := func(_ context.Context, st *dohost.State) (*guardedObject, error) { return &guardedObject{st}, nil }
	from := func(origin string) *dohost.SocketHandlers[guardedObject] {
		return &dohost.SocketHandlers[guardedObject]{
			Message: func(*guardedObject, context.Context, *dohost.Socket, dohost.Frame) error { return nil },
			Origins: []string{origin},
		}
	}
	h := open(t, nil,
		dohost.Bind(guardedObjects, build, &dohost.Handlers[guardedObject]{
			OnHTTP:   (*guardedObject).serve,
			OnSocket: from("https://inner.example"),
			Authorize: func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
				return dohost.Access{}, &dohost.CloseError{Code: 4001, Reason: "who are you?"}
			},
		}),
		dohost.Bind(outers, build, &dohost.Handlers[guardedObject]{
			OnSocket: from("https://outer.example"),
			OnHTTP: func(s *guardedObject, w http.ResponseWriter, r *http.Request) {
				if err := s.st.Delegate(w, r, guardedObjects.Get(s.st, "a").ID()); err != nil {
					t.Error(err)
				}
			},
		}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeObject(w, r, dohost.ID{Class: strings.TrimPrefix(r.URL.Path, "/"), Name: "a"})
	}))
	defer server.Close()
	for _, tt := range []struct {
		class, origin string
		status        int
	}{
		{"safe", "https://inner.example", http.StatusSwitchingProtocols},
		{"safe", "https://outer.example", http.StatusForbidden},
		{"outer", "https://outer.example", http.StatusSwitchingProtocols},
	} {
		ws, res, err := websocket.Dial(t.Context(), server.URL+"/"+tt.class, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {tt.origin}}})
		if res.StatusCode != tt.status {
			t.Errorf("%s from %s: %d, %v", tt.class, tt.origin, res.StatusCode, err)
		}
		if err != nil {
			continue
		}
		if _, _, err = ws.Read(t.Context()); websocket.CloseStatus(err) != 4001 {
			t.Errorf("%s from %s: %v", tt.class, tt.origin, err)
		}
	}
}

func TestAuthorizeGetsTheRequest(t *testing.T) {
	asked := make(chan string, 1)
	v := openGuarded(t, func(ctx context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		body, _ := io.ReadAll(r.Request.Body)
		there, err := r.Exists(ctx)
		asked <- fmt.Sprint(r.Kind, " ", r.ID, " ", r.Path, r.Below, " ", r.Method, " ", r.Request.URL.RawQuery, " ", string(body), there, err)
		return dohost.Access{Identity: "ada", Rights: dohost.RightsReadWrite}, nil
	})
	for _, tt := range []struct{ path, body, answer, want string }{
		{"/a?q=1", "v", "ada2 true", "http safe/a [safe/a] []  q=1 false <nil>"},
		{"/call/a/put?q=2", `"v"`, `"ada2 true"`, "call safe/a [safe/a] [] put q=2 false <nil>"},
		{"/call/a/whoami", "", `"ada2 true"`, "call safe/a [safe/a] [] whoami  true <nil>"},
	} {
		if _, body, _ := v.do(t, "POST", tt.path, tt.body); body != tt.answer {
			t.Errorf("%s: %s", tt.path, body)
		}
		same(t, tt.path, <-asked, tt.want)
	}
}

func TestAccessLastsUntilTheSocketEnds(t *testing.T) {
	v := openGuarded(t, func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Identity: r.Request.URL.Query().Get("user"), Rights: dohost.RightsReadOnly}, nil
	})
	ws, _, err := websocket.Dial(t.Context(), v.url+"/a?user=ada", nil)
	if err != nil {
		t.Fatal(err)
	}
	id := guardedObjects.Get(v.Host, "a").ID()
	for range 2 {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte("who am I?")); err != nil {
			t.Fatal(err)
		}
		_, text, err := ws.Read(t.Context())
		if string(text) != "ada1 true" || err != nil {
			t.Errorf("%s, %v", text, err)
		}
	}
	err = guardedObjects.Get(v.Host, "a").Do(t.Context(), func(ctx context.Context, s *guardedObject) error {
		same(t, "an event of the host's own", accessIn(ctx), "<nil> 0 false")
		for _, sock := range s.st.Sockets("") {
			a, ok := sock.Access()
			same(t, "access of a socket", fmt.Sprint(a, ok), "{ada 1} true")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	for v.Sockets(id) != nil { // until the object was notified of the end
		if err := guardedObjects.Get(v.Host, "a").Do(t.Context(), func(context.Context, *guardedObject) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	err = guardedObjects.Get(v.Host, "a").Do(t.Context(), func(ctx context.Context, s *guardedObject) error {
		at, _, err := dohost.Get[string](ctx, s.st.Storage(), "closed")
		same(t, "access in Closed", at, "ada1 true")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAccessThatIsReadOnlyCallsExposeReadMethodsOnly(t *testing.T) {
	v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Identity: "ada", Rights: dohost.RightsReadOnly}, nil
	})
	if status, body, _ := v.do(t, "POST", "/call/a/put", `"v"`); status != 403 || !strings.Contains(body, `"read_only"`) {
		t.Errorf("put: %d %s", status, body)
	}
	v.untouched(t, "a")
	if status, body, _ := v.do(t, "POST", "/call/a/whoami", ""); status != 200 || body != `"ada1 true"` {
		t.Errorf("whoami: %d %s", status, body)
	}
}

func TestObjectIsPrivateIfItsPrivateFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		h := open(t, &dohost.Options{Listener: dohost.Listener{Service: func(id dohost.ID, event string, attrs ...slog.Attr) {
			reports = append(reports, fmt.Sprint(id, " ", event, " ", attrs[0]))
		}}}, dohost.Bind(guardedObjects, func(_ context.Context, st *dohost.State) (*guardedObject, error) { return &guardedObject{st}, nil },
			&dohost.Handlers[guardedObject]{
				OnHTTP:  (*guardedObject).serve,
				Private: func(name string) bool { panic("no list of " + name) },
			},
			dohost.Expose("put", func(*guardedObject, context.Context, string) (string, error) { return "", nil })))
		id := guardedObjects.Get(h, "a").ID()
		w := httptest.NewRecorder()
		h.ServeObject(w, httptest.NewRequest("GET", "/", nil), id)
		same(t, "status", w.Code, http.StatusForbidden)
		if _, err := h.Invoke(t.Context(), id, "put", nil); !errors.Is(err, dohost.ErrForbidden) {
			t.Errorf("Invoke: %v", err)
		}
		synctest.Wait()
		report := "safe/a access:panic panic=no list of a"
		same(t, "reported", strings.Join(reports, ", "), report+", "+report)
	})
}

func TestObjectPrivateFunctionThatAbortsTheRequestIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		h := open(t, &dohost.Options{Listener: dohost.Listener{Service: func(_ dohost.ID, event string, _ ...slog.Attr) {
			reports = append(reports, event)
		}}}, dohost.Bind(guardedObjects, func(_ context.Context, st *dohost.State) (*guardedObject, error) { return &guardedObject{st}, nil },
			&dohost.Handlers[guardedObject]{
				OnHTTP:  (*guardedObject).serve,
				Private: func(string) bool { panic(http.ErrAbortHandler) },
			}))
		func() {
			defer func() { same(t, "panic", fmt.Sprint(recover()), http.ErrAbortHandler.Error()) }()
			h.ServeObject(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), guardedObjects.Get(h, "a").ID())
		}()
		synctest.Wait()
		same(t, "reported", strings.Join(reports, ", "), "")
	})
}

func TestInvokeRequiresAccess(t *testing.T) {
	v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	})
	a, b := guardedObjects.Get(v.Host, "a").ID(), guardedObjects.Get(v.Host, "b").ID()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	forA, err := v.AuthorizeCall(r, a, "put")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		ctx  context.Context
		id   dohost.ID
		want error
	}{
		{t.Context(), a, dohost.ErrUnauthenticated},
		{forA, b, dohost.ErrUnauthenticated},
		{dohost.GrantAccess(t.Context(), dohost.Access{}), a, dohost.ErrForbidden},
		{dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadOnly}), a, dohost.ErrForbidden},
	} {
		if _, err := v.Invoke(tt.ctx, tt.id, "put", []byte(`"v"`)); !errors.Is(err, tt.want) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
	v.untouched(t, "a")
	operator := dohost.GrantAccess(t.Context(), dohost.Access{Identity: "operator", Rights: dohost.RightsReadWrite})
	for _, ctx := range []context.Context{forA, operator} {
		if _, err := v.Invoke(ctx, a, "put", []byte(`"v"`)); err != nil {
			t.Error(err)
		}
	}
	w := httptest.NewRecorder()
	v.ServeObject(w, r.WithContext(operator), a)
	same(t, "with the operator's access", w.Body.String(), "operator2 true")
}

func TestCheckCreationIsCalledForAbsentObjectsOnly(t *testing.T) {
	v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
		return dohost.Access{Rights: dohost.RightsReadWrite}, nil
	})
	var asked []string
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r = r.WithContext(dohost.CheckCreation(r.Context(), func(q *dohost.AccessRequest) error {
		asked = append(asked, q.ID.Name)
		if q.ID.Name == "b" {
			return dohost.ErrOverloaded
		}
		return nil
	}))
	status := func(name string) int {
		w := httptest.NewRecorder()
		v.ServeObject(w, r, guardedObjects.Get(v.Host, name).ID())
		return w.Code
	}
	same(t, "allowed", status("a"), 200)
	same(t, "in memory", status("a"), 200)
	same(t, "refused", status("b"), 429)
	if _, err := v.AuthorizeCall(r, guardedObjects.Get(v.Host, "b").ID(), "put"); !errors.Is(err, dohost.ErrOverloaded) {
		t.Error(err)
	}
	operator := dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadWrite})
	if _, err := v.Invoke(operator, guardedObjects.Get(v.Host, "c").ID(), "put", []byte(`"v"`)); err != nil {
		t.Fatal(err)
	}
	v.Evict(guardedObjects.Get(v.Host, "c").ID(), dohost.EndFence)
	same(t, "durable", status("c"), 200)
	same(t, "asked about", strings.Join(asked, " "), "a b b")
	same(t, "woken", v.noted(&v.woken), "safe/a, safe/c, safe/c")
}

func TestErrorsOfCheckCreationLeaveWithoutTheirText(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		status   int
		code     string
		text     string // empty: the text of the code's error
		reported string
	}{
		{"forbidden", fmt.Errorf("quota in %s: %w", dsn, dohost.ErrForbidden), 403, "forbidden", "", ""},
		{"unauthenticated", fmt.Errorf("session in %s: %w", dsn, dohost.ErrUnauthenticated), 401, "unauthenticated", "", ""},
		{"overloaded", fmt.Errorf("count in %s: %w", dsn, dohost.ErrOverloaded), 429, "too_many_new", "", ""},
		{"not found", fmt.Errorf("tenant in %s: %w", dsn, dohost.ErrNotFound), 403, "forbidden", "", "access:error"},
		{"another", errors.New("no answer from " + dsn), 403, "forbidden", "", "access:error"},
		{"a code of a socket", &dohost.CloseError{Code: 4000, Reason: dsn}, 403, "forbidden", "", ""},
		{"public", fmt.Errorf("in %s: %w", dsn, &dohost.PublicError{Message: "plan is used up", Code: "plan", Status: 402}), 402, "plan", "plan is used up", ""},
		{"panic", nil, 500, "internal", "", "access:panic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := openGuarded(t, func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
				return dohost.Access{Rights: dohost.RightsReadWrite}, nil
			})
			r := httptest.NewRequest("GET", "/", nil)
			r = r.WithContext(dohost.CheckCreation(t.Context(), func(*dohost.AccessRequest) error {
				if c.err == nil {
					panic(dsn)
				}
				return c.err
			}))
			w := httptest.NewRecorder()
			v.ServeObject(w, r, guardedObjects.Get(v.Host, "a").ID())
			var b dohost.ErrorBody
			if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil {
				t.Fatal(err)
			}
			same(t, "status", w.Code, c.status)
			same(t, "code", b.Code, c.code)
			if strings.Contains(w.Body.String(), dsn) || c.text != "" && b.Message != c.text {
				t.Errorf("the client gets %s", w.Body)
			}
			reported, _, _ := strings.Cut(v.reported(t), " ")
			same(t, "reported", reported, c.reported)
			same(t, "woken", v.noted(&v.woken), "")
		})
	}
}

// dsn is a text that no client may read.
const dsn = "postgres://svc:Hunter2@10.0.0.5/db"

// TestCheckCreationDoesNotWaitForTheDisk checks an object on the disk, and one with its first commit on the way to
// it, during a slow sync.
func TestCheckCreationDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := objectstore.NewMemFS()
		h := openOn(t, fs, nil, guardedClass(func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
			return dohost.Access{Rights: dohost.RightsReadWrite}, nil
		}))
		operator := dohost.GrantAccess(t.Context(), dohost.Access{Rights: dohost.RightsReadWrite})
		var asked []string
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r = r.WithContext(dohost.CheckCreation(r.Context(), func(q *dohost.AccessRequest) error {
			asked = append(asked, q.ID.Name)
			return nil
		}))
		write := func(name string) {
			if _, err := h.Invoke(operator, guardedObjects.Get(h, name).ID(), "put", []byte(`"v"`)); err != nil {
				t.Error(err)
			}
		}
		write("a")
		h.Evict(guardedObjects.Get(h, "a").ID(), dohost.EndFence)
		release := fs.HoldSyncs()
		go write("b")
		synctest.Wait()
		h.Evict(guardedObjects.Get(h, "b").ID(), dohost.EndFence)
		answered := 0
		go func() {
			for _, name := range []string{"a", "b", "c"} {
				if _, err := h.AuthorizeCall(r, guardedObjects.Get(h, name).ID(), "put"); err != nil {
					t.Error(err)
				}
				answered++
			}
		}()
		synctest.Wait()
		if answered != 3 || strings.Join(asked, " ") != "c" {
			t.Errorf("%d answers, asked about %q", answered, asked)
		}
		release()
		synctest.Wait() // for the answer of b
	})
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestAccessKindIsHTTPWithoutSockets has requests with and without an Upgrade header: both are answered over HTTP.
func TestAccessKindIsHTTPWithoutSockets(t *testing.T) {
	type plain struct{}
	const plains dohost.Namespace[plain] = "plain"
	var kinds []dohost.AccessKind
	h := open(t, nil, dohost.Bind(plains, func(context.Context, *dohost.State) (*plain, error) { return &plain{}, nil },
		&dohost.Handlers[plain]{
			OnHTTP: func(*plain, http.ResponseWriter, *http.Request) {},
			Authorize: func(_ context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
				kinds = append(kinds, r.Kind)
				return dohost.Access{Rights: dohost.RightsReadWrite}, nil
			},
		}))
	for _, upgrade := range []string{"", "websocket"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Upgrade", upgrade)
		w := httptest.NewRecorder()
		h.ServeObject(w, r, plains.Get(h, "a").ID())
		if w.Code != http.StatusOK {
			t.Errorf("%q: status %d", upgrade, w.Code)
		}
	}
	if want := []dohost.AccessKind{dohost.AccessHTTP, dohost.AccessHTTP}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}
