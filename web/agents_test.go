package web_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// echoObject answers with its request.
type echoObject struct{ st *dohost.State }

const echoObjects dohost.Namespace[echoObject] = "BigMirror"

var echoClass = dohost.Bind(echoObjects, func(_ context.Context, st *dohost.State) (*echoObject, error) {
	return &echoObject{st}, nil
}, &dohost.Handlers[echoObject]{
	OnHTTP: func(m *echoObject, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s?%s %s", r.Method, m.st.ID(), r.URL.EscapedPath(), r.URL.RawQuery, body)
	},
})

// TestAgentPathsAsTheSDKSendsThem sends paths that net/http's own routing would redirect, with a client that
// does not change them.
func TestAgentPathsAsTheSDKSendsThem(t *testing.T) {
	h := openClasses(t, echoClass, noEntryClass())
	for _, tt := range []struct {
		prefix, method, path string
		status               int
		body                 string
	}{
		{"", "GET", "/agents/big-mirror/a", 200, "GET BigMirror/a/? "},
		{"", "POST", "//agents/big-mirror//a/x//y?q=1", 200, "POST BigMirror/a/x/y?q=1 body"},
		{"", "GET", "/agents/big-mirror/a%20b%2Fc/d%2Fe", 200, "GET BigMirror/a%20b%2Fc/d%2Fe? "},
		{"", "GET", "/agents/BigMirror/a", 400, "Invalid request\n"},
		{"", "GET", "/agents/mute/a", 400, "Invalid request\n"},
		{"", "GET", "/agents/big-mirror", 404, ""},
		{"", "GET", "/agents", 404, ""},
		{"/api/v1/", "GET", "/api/v1/big-mirror/a", 200, "GET BigMirror/a/? "},
		{"/api/v1/", "GET", "/agents/big-mirror/a", 404, ""},
	} {
		s := start(t, handler(h, &web.Options{AgentsPrefix: tt.prefix}))
		body := ""
		if tt.method == "POST" {
			body = "body"
		}
		res := s.do(tt.method, tt.path, body)
		got, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != tt.status || tt.body != "" && string(got) != tt.body {
			t.Errorf("%s %s: %d %q (%v), want %d %q", tt.method, tt.path, res.StatusCode, got, err, tt.status, tt.body)
		}
	}
}

func TestCORSAllowsAllOriginsForAgentsOnly(t *testing.T) {
	h := openClasses(t, echoClass)
	for _, cors := range []bool{false, true} {
		s := start(t, handler(h, &web.Options{CORS: cors, Tokens: []string{"secret"}}))
		s.header.Set("Origin", "https://elsewhere.example")
		allowed := func(what string, res *http.Response) {
			t.Helper()
			if origin := res.Header.Get("Access-Control-Allow-Origin"); (origin == "*") != cors || (res.StatusCode == 200) != cors {
				t.Errorf("cors %v: %s: %d, origin %q", cors, what, res.StatusCode, origin)
			}
		}
		allowed("preflight", s.do("OPTIONS", "/agents/big-mirror/a", ""))
		s.header.Set("Authorization", "Bearer secret")
		s.header.Set("Sec-Fetch-Site", "cross-site")
		allowed("POST", s.do("POST", "/agents/big-mirror/a", ""))
		if res := s.do("POST", "/objects/BigMirror/a/http/", ""); res.StatusCode != 403 || res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("cors %v: an object: %d", cors, res.StatusCode)
		}
	}
}

func openClasses(t *testing.T, classes ...dohost.Class) *dohost.Host {
	t.Helper()
	h, err := dohost.Open(t.TempDir(), nil, classes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// The reports of services are counted by their outcome; the log has all of them.
func TestMetricsCountServiceEvents(t *testing.T) {
	m := web.NewMetrics()
	l := m.Listener()
	id := dohost.ID{Class: "agent", Name: "a"}
	l.Service(id, "fiber:interrupted", slog.String("fiber", "1"), slog.String("outcome", "resumed"))
	l.Service(id, "fiber:ended", slog.String("status", "failed"))
	l.Service(id, "queue:run", slog.Duration("lag", 2*time.Second), slog.Int("waiting", 3))
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`dohost_service_events_total{class="agent",event="fiber:interrupted",outcome="resumed"} 1`,
		`dohost_service_events_total{class="agent",event="fiber:ended",outcome="failed"} 1`,
		`dohost_service_events_total{class="agent",event="queue:run",outcome=""} 1`,
		`dohost_schedule_lag_seconds_sum{class="agent"} 2`,
		`dohost_queue_depth_sum{class="agent"} 3`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s", want)
		}
	}
}

// The answer to a path without a name lists the paths of agents.
func TestRouteErrorListsThePaths(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{AgentsPrefix: "/bots"}))
	e, _ := s.wantError("GET", "/bots/thing", "", http.StatusNotFound, "no_route")
	if want := "want /objects/{class}/{name}/{method}, .../http/{rest}, or /bots/{class}/{name}"; e.Message != want {
		t.Errorf("said %q, want %q", e.Message, want)
	}
}

// A page of another origin may present a token: the answer to a preflight request names that header.
func TestCORSPreflightAllowsAuthorizationHeader(t *testing.T) {
	s := start(t, handler(open(t, nil), &web.Options{CORS: true, Tokens: []string{"sesame"}}))
	res := s.do("OPTIONS", "/agents/thing/a", "")
	if h := res.Header.Get("Access-Control-Allow-Headers"); res.StatusCode != http.StatusOK || h != "*, Authorization" {
		t.Errorf("%d, headers %q", res.StatusCode, h)
	}
}
