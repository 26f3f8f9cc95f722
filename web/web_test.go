package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testObject is an object with all features of the web tests.
type testObject struct{ st *dohost.State }

const testObjects dohost.Namespace[testObject] = "thing"

var unblock = make(chan struct{}) // Wait waits for it

func (o *testObject) Put(ctx context.Context, v string) (string, error) {
	return "was put: " + v, dohost.Put(ctx, o.st.Storage(), "v", v)
}

func (o *testObject) Fail(context.Context) error {
	return errors.New("I will not")
}

func (o *testObject) Panic(context.Context) error { panic("bug") }

func (o *testObject) Hang(ctx context.Context) error {
	_, _, err := dohost.Recv(ctx, unblock)
	return err
}

func (o *testObject) Pin(ctx context.Context, why string) error {
	o.st.Pin(why)
	return nil
}

func (o *testObject) Alarm(context.Context, dohost.AlarmInfo) error { return nil }

func (o *testObject) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/half":
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic("bug")
	case "/echo":
		b, err := io.ReadAll(r.Body)
		if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
			http.Error(w, e.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		w.Write(b)
	default:
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("X-Request-Id"))
	}
}

func testClass() dohost.Class {
	return dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) { return &testObject{st}, nil },
		&dohost.Handlers[testObject]{OnAlarm: (*testObject).Alarm, OnHTTP: (*testObject).ServeHTTP},
		dohost.Expose("put", (*testObject).Put), dohost.Expose("fail", dohost.Bare((*testObject).Fail)), dohost.Expose("panic", dohost.Bare((*testObject).Panic)),
		dohost.Expose("hang", dohost.Bare((*testObject).Hang)), dohost.Expose("pin", dohost.NoResult((*testObject).Pin)))
}

// noEntryObject is a class without entry points.
type noEntryObject struct{}

func noEntryClass() dohost.Class {
	return dohost.Bind(dohost.Namespace[noEntryObject]("mute"), func(context.Context, *dohost.State) (*noEntryObject, error) { return &noEntryObject{}, nil }, nil)
}

func open(t *testing.T, o *dohost.Options) *dohost.Host {
	t.Helper()
	if o == nil {
		o = &dohost.Options{}
	}
	o.Grace = -1
	h, err := dohost.Open(t.TempDir(), o, testClass(), noEntryClass())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// handler is a Handler that serves all classes, unless the options name some.
func handler(h *dohost.Host, o *web.Options) http.Handler {
	var all web.Options
	if o != nil {
		all = *o
	}
	if all.Classes == nil {
		all.Classes = web.Roots(h.Classes())
	}
	return web.Handler(h, &all)
}

// server is a handler in a real server, and a client of it.
type server struct {
	t      *testing.T
	url    string
	client *http.Client
	header http.Header
}

func start(t *testing.T, h http.Handler) *server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return &server{t, s.URL, s.Client(), http.Header{}}
}

func (s *server) do(method, path, body string) *http.Response {
	s.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, vs := range s.header {
		req.Header[k] = vs
	}
	if host := s.header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (s *server) want(method, path, body string, status int, answer string) *http.Response {
	s.t.Helper()
	res := s.do(method, path, body)
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || string(b) != answer {
		s.t.Errorf("%s %s = %d %s (%v), want %d %s", method, path, res.StatusCode, b, err, status, answer)
	}
	return res
}

func (s *server) wantError(method, path, body string, status int, code string) (dohost.ErrorBody, *http.Response) {
	s.t.Helper()
	res := s.do(method, path, body)
	b, _ := io.ReadAll(res.Body)
	var e dohost.ErrorBody
	if err := json.Unmarshal(b, &e); err != nil || res.StatusCode != status || e.Code != code {
		s.t.Errorf("%s %s = %d %s (%v), want %d %s", method, path, res.StatusCode, b, err, status, code)
	}
	if res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "" {
		s.t.Errorf("%s %s: no Retry-After", method, path)
	}
	return e, res
}

func TestCallOverHTTP(t *testing.T) {
	s := start(t, handler(open(t, nil), nil))
	res := s.want("POST", "/objects/thing/a/put", `"x"`, 200, `"was put: x"`)
	if res.Header.Get("Content-Type") != "application/json" || len(res.Header.Get("X-Request-Id")) != 26 {
		t.Errorf("header %v", res.Header)
	}
	s.want("POST", "/objects/thing/"+url.PathEscape("a/b c")+"/put", ``, 200, `"was put: "`)
	s.want("POST", "/objects/thing/a/http/echo", "echo", 200, "echo")
}

func TestObjectGetsItsPathAndRequestID(t *testing.T) {
	s := start(t, handler(open(t, nil), nil))
	s.header.Set("X-Request-Id", "abc")
	res := s.want("PUT", "/objects/thing/a/http/x%2Fy/../z?q=1", "", 200, "PUT /x/y/../z q=1 abc")
	if res.Header.Get("X-Request-Id") != "abc" {
		t.Errorf("X-Request-Id = %q", res.Header.Get("X-Request-Id"))
	}
	s.want("GET", "/objects/thing/a/http", "", 200, "GET /  abc")
	s.header.Set("X-Request-Id", "not allowed")
	if id := s.do("GET", "/objects/thing/a/http", "").Header.Get("X-Request-Id"); len(id) != 26 {
		t.Errorf("a request id with a space was taken: %q", id)
	}
}

func TestErrorResponses(t *testing.T) {
	h := open(t, nil)
	s := start(t, handler(h, &web.Options{MaxBody: 100}))
	impatient := start(t, handler(h, &web.Options{CallTimeout: 50 * time.Millisecond}))
	long := strings.Repeat("n", 1025)
	for _, tt := range []struct {
		method, path, body string
		status             int
		code               string
		want               dohost.ErrorBody
	}{
		{"POST", "/objects/thing/a/none", "", 404, "no_method", dohost.ErrorBody{Op: "none", Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/" + procedureName, "1", 404, "no_method", dohost.ErrorBody{Op: procedureName, Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/none/a/put", "", 404, "no_class", dohost.ErrorBody{Op: "put", Object: "none/a", Ran: "no"}},
		{"GET", "/objects/none/a/http", "", 404, "no_class", dohost.ErrorBody{Op: "http", Object: "none/a", Ran: "no"}},
		{"GET", "/objects/mute/a/http", "", 404, "no_http_handler", dohost.ErrorBody{Op: "http", Object: "mute/a", Ran: "no"}},
		{"GET", "/", "", 404, "no_route", dohost.ErrorBody{Ran: "no"}},
		{"GET", "/objects/thing", "", 404, "no_route", dohost.ErrorBody{Ran: "no"}},
		{"GET", "/objects/thing/a/put", "", 405, "method_not_allowed", dohost.ErrorBody{Ran: "no"}},
		{"POST", "/objects/thing//put", "", 400, "bad_name", dohost.ErrorBody{Op: "put", Object: "thing/", Ran: "no"}},
		{"POST", "/objects/thing/a%00b/put", "", 400, "bad_name", dohost.ErrorBody{Op: "put", Object: "thing/a\x00b", Ran: "no"}},
		{"POST", "/objects/thing/" + long + "/put", "", 400, "bad_name", dohost.ErrorBody{Op: "put", Object: "thing/" + long, Ran: "no"}},
		{"POST", "/objects/th%2Fing/a/put", "", 400, "bad_name", dohost.ErrorBody{Op: "put", Object: "th/ing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/put", "{", 400, "bad_argument", dohost.ErrorBody{Op: "put", Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/put", "17", 400, "bad_argument", dohost.ErrorBody{Op: "put", Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/put", `"` + strings.Repeat("x", 99) + `"`, 413, "too_large", dohost.ErrorBody{Op: "put", Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/http/echo", strings.Repeat("x", 101), 413, "too_large", dohost.ErrorBody{Op: "http", Object: "thing/a", Ran: "no"}},
		{"POST", "/objects/thing/a/fail", "", 500, "failed", dohost.ErrorBody{Op: "fail", Object: "thing/a", Ran: "yes", Remote: true}},
		{"POST", "/objects/thing/a/panic", "", 500, "fenced", dohost.ErrorBody{Op: "panic", Object: "thing/a", Ran: "unknown", Reset: true}},
		{"POST", "/objects/thing/a/hang", "", 504, "timeout", dohost.ErrorBody{Op: "hang", Object: "thing/a", Ran: "unknown"}},
	} {
		at := s
		if tt.code == "timeout" {
			at = impatient
		}
		e, _ := at.wantError(tt.method, tt.path, tt.body, tt.status, tt.code)
		if e.Message == "" {
			t.Errorf("%s: no message", tt.path)
		}
		e.Code, e.Message, e.ID = "", "", ""
		if e != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.path, e, tt.want)
		}
	}
	h.Close()
	if e, _ := s.wantError("POST", "/objects/thing/a/put", "", 503, "closed"); e.Retryable || e.Ran != "no" {
		t.Errorf("closed: %+v", e)
	}
}

func TestObjectThatIsOverloadedReturns503(t *testing.T) {
	h := open(t, &dohost.Options{MaxEvents: 1})
	s := start(t, handler(h, nil))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	started := make(chan struct{})
	wg.Go(func() {
		_ = testObjects.Get(h, "a").Do(ctx, func(ctx context.Context, _ *testObject) error {
			close(started)
			_, _, err := dohost.Recv(ctx, unblock)
			return err
		})
	})
	<-started
	if e, _ := s.wantError("POST", "/objects/thing/a/put", "", 503, "overloaded"); !e.Overloaded || e.Retryable || e.Ran != "no" {
		t.Errorf("%+v", e)
	}
	h.Evict(testObjects.Get(h, "a").ID(), dohost.EndFence)
}

// endless is a body without a length.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	e.n -= len(p)
	return len(p), nil
}

func TestBodyWithoutLengthIsLimited(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{MaxBody: 1000}))
	for path, status := range map[string]int{"/objects/thing/a/put": 413, "/objects/thing/a/http/echo": 413} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, &endless{1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s = %d, want %d", path, res.StatusCode, status)
		}
	}
}

func TestBodyStallReturns408(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{StepTimeout: 50 * time.Millisecond}))
	r, w := io.Pipe()
	defer w.Close()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/objects/thing/a/put", r)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusRequestTimeout || err != nil || !bytes.Contains(b, []byte(`"the request body arrived too slowly"`)) {
		t.Errorf("status %d, %s, %v: want 408 without the text of the network error", res.StatusCode, b, err)
	}
}

func TestResponseCutShortIsAnErrorForTheClient(t *testing.T) {
	s := start(t, handler(open(t, nil), nil))
	res := s.do("GET", "/objects/thing/a/http/half", "")
	if b, err := io.ReadAll(res.Body); string(b) != "half" || err == nil {
		t.Fatalf("got %q, %v: want half of it and an error", b, err)
	}
}

func TestTokenIsRequired(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{Tokens: []string{"one", "two"}}))
	for auth, ok := range map[string]bool{
		"": false, "Bearer": false, "Bearer ": false, "Bearer three": false, "Basic one": false, "one": false,
		"Bearer one": true, "bearer two": true,
	} {
		s.header.Set("Authorization", auth)
		if ok {
			s.want("POST", "/objects/thing/a/put", `"x"`, 200, `"was put: x"`)
			continue
		}
		if _, res := s.wantError("POST", "/objects/thing/a/put", `"x"`, 401, "unauthorized"); res.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q: header %v", auth, res.Header)
		}
	}
}

func TestOriginsOfOtherSitesMayNotCall(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{Origins: []string{"https://friend.example"}}))
	for origin, ok := range map[string]bool{"https://evil.example": false, "null": false, s.url: true, "https://friend.example": true} {
		s.header.Set("Origin", origin)
		s.header.Set("Sec-Fetch-Site", "cross-site")
		if origin == s.url {
			s.header.Set("Sec-Fetch-Site", "same-origin")
		}
		if ok {
			s.want("POST", "/objects/thing/a/put", `"x"`, 200, `"was put: x"`)
		} else {
			s.wantError("POST", "/objects/thing/a/put", `"x"`, 403, "foreign_origin")
		}
	}
}

func TestRequestLogHasTheRequestID(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&buf, nil))
	h := handler(open(t, nil), &web.Options{Logger: log})
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/objects/thing/a/put", strings.NewReader(`"x"`))
	r.Header.Set("X-Request-Id", "name-1")
	h.ServeHTTP(httptest.NewRecorder(), r)
	var line struct {
		RequestID string `json:"request_id"`
		Status    int
		Bytes     int
	}
	if err := json.Unmarshal(buf.Bytes(), &line); err != nil || line.RequestID != "name-1" || line.Status != 200 || line.Bytes != 12 {
		t.Fatalf("logged %s (%v)", buf.String(), err)
	}
}
