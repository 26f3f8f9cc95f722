package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

func TestAdminCells(t *testing.T) {
	h := openClasses(t, namedClass(namedObjects))
	name := dohost.ID{Class: "NamedThing", Name: "a/b"}
	if err := dohost.Do(t.Context(), h, name, func(ctx context.Context, o any) error {
		return dohost.Put(ctx, o.(*named).st.Storage(), "n", 1)
	}); err != nil {
		t.Fatal(err)
	}
	closing := false
	o := &web.AdminOptions{Tokens: []string{"secret"}, Ready: func() error {
		if closing {
			return dohost.ErrClosed
		}
		return nil
	}}
	cells := &web.Cells{
		Status: func() any { return map[string]int{"cells": 2} },
		Admin: func(cell int) http.Handler {
			if cell != 1 {
				return nil
			}
			return web.Admin(h, o)
		},
	}
	handler := web.AdminCells(cells, o)
	for _, tt := range []struct {
		path, token, host string
		status            int
		body              string
	}{
		{"/cells", "secret", "localhost", 200, `{"cells":2}`},
		{"/cells", "", "localhost", 401, "unauthorized"},
		{"/cells", "wrong", "localhost", 401, "unauthorized"},
		{"/healthz", "secret", "localhost", 200, "ok"},
		{"/readyz", "secret", "localhost", 200, "ok"},
		{"/v1/objects?class=NamedThing", "secret", "localhost", 404, "no_route"},
		{"/cells/1/v1/objects?class=NamedThing", "secret", "localhost", 200, "a/b"},
		{"/cells/1/v1/objects/NamedThing/a%2Fb", "secret", "localhost", 200, "a/b"},
		{"/cells/1/v1/objects/NamedThing/a%2Fb", "", "localhost", 401, "unauthorized"},
		{"/cells/1/page/host.json", "secret", "localhost", 200, "operator"},
		{"/cells/1/", "secret", "localhost", 404, "no_route"},
		{"/cells/1/page/app.js", "secret", "localhost", 404, "no_route"},
		{"/cells/1/", "", "localhost", 401, "unauthorized"},
		{"/cells/1/page/app.js", "", "localhost", 401, "unauthorized"},
		{"/cells/0/", "", "localhost", 401, "unauthorized"},
		{"/cells/0/page/app.js", "", "localhost", 401, "unauthorized"},
		{"/cells/0/v1/objects?class=NamedThing", "", "localhost", 401, "unauthorized"},
		{"/cells/x/healthz", "", "localhost", 401, "unauthorized"},
		{"/cells/0/v1/objects?class=NamedThing", "secret", "localhost", 404, "no_cell"},
		{"/cells/x/healthz", "secret", "localhost", 404, "no_cell"},
		{"/cells/-1/healthz", "secret", "localhost", 404, "no_cell"},
		{"/cells/", "secret", "localhost", 404, "no_route"},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.Host = tt.host
		if tt.token != "" {
			r.Header.Set("Authorization", "Bearer "+tt.token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s with token %q: %d %s, want %d %s", tt.path, tt.token, w.Code, w.Body, tt.status, tt.body)
		}
	}
	closing = true
	open := web.AdminCells(cells, &web.AdminOptions{Ready: o.Ready})
	for host, want := range map[string]int{"localhost": http.StatusServiceUnavailable, "evil.example": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/readyz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if w.Code != want {
			t.Error(fmt.Sprint(host, ": ", w.Code, " ", w.Body))
		}
	}
}
