package web_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// TestHandlersAreGuarded sends requests for further handlers past the checks of the listener.
func TestHandlersAreGuarded(t *testing.T) {
	h := open(t, nil)
	mounted := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := h.AuthorizeHTTP(r, dohost.ID{Class: string(testObjects), Name: r.URL.Query().Get("object")}); r.URL.RawQuery != "" && err != nil {
				h.WriteError(w, err)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", "*")
			fmt.Fprint(w, name, r.URL.Path, r.Header.Get("Authorization"))
		})
	}
	o := web.Options{Handlers: map[string]http.Handler{"/v1/": mounted("a"), "/v1/stream/": mounted("b")}, NewObjects: 1, Tokens: []string{"secret"}}
	o.OwnTokens = func(r *http.Request) bool { return r.URL.Path == "/v1/own" || r.URL.Path == "/own" }
	cors := o
	cors.CORS = true
	for _, tt := range []struct {
		o              *web.Options
		method, path   string
		token, foreign bool
		status         int
		want           string
	}{
		{&o, "GET", "/v1/x", true, false, 200, "a/v1/x"},
		{&o, "POST", "/v1/stream/x/y", true, false, 200, "b/v1/stream/x/y"},
		{&o, "GET", "/v2/x", true, false, 404, ""},
		{&o, "GET", "/v1/x", false, false, 401, ""},
		{&o, "OPTIONS", "/v1/x", false, false, 401, ""},
		{&o, "POST", "/v1/own", false, false, 200, "a/v1/own"},
		{&o, "POST", "/v1/own", false, true, 403, ""},
		{&o, "POST", "/v1/own/x", false, false, 401, ""},
		{&o, "POST", "/own", false, false, 401, ""},
		{&cors, "POST", "/v1/own", false, true, 200, "a/v1/own"},
		{&o, "GET", "/v1/x", true, true, 403, ""},
		{&cors, "GET", "/v1/x", true, true, 200, "a/v1/x"},
		{&cors, "GET", "/v1/x", false, true, 401, ""},
		{&cors, "OPTIONS", "/v1/x", false, true, 200, "a/v1/x"},
		{&o, "GET", "/v1/x?object=one", true, false, 200, "a/v1/x"},
	} {
		s := start(t, web.Handler(h, tt.o))
		if tt.token {
			s.header.Set("Authorization", "Bearer secret")
		}
		if tt.foreign {
			s.header.Set("Origin", "https://elsewhere.example")
		}
		res, body := answer(t, s, tt.method, tt.path)
		if res.StatusCode != tt.status || tt.want != "" && body != tt.want {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, res.StatusCode, body, tt.status, tt.want)
		}
	}
	s := start(t, web.Handler(h, &o))
	s.header.Set("Authorization", "Bearer secret")
	for i, want := range []int{200, 429} { // the objects are new
		if res, body := answer(t, s, "GET", fmt.Sprint("/v1/x?object=", i)); res.StatusCode != want {
			t.Errorf("object %d: %d %s, want %d", i, res.StatusCode, body, want)
		}
	}
}

func answer(t *testing.T, s *server, method, path string) (*http.Response, string) {
	t.Helper()
	res := s.do(method, path, "")
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}
