package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// named is an object that answers with its id.
type named struct{ st *dohost.State }

const (
	namedObjects dohost.Namespace[named] = "NamedThing"
	notServed    dohost.Namespace[named] = "hidden"
)

func (n *named) id(context.Context, struct{}) (string, error) { return n.st.ID().String(), nil }

func namedClass(ns dohost.Namespace[named]) dohost.Class {
	return dohost.Bind(ns, func(_ context.Context, st *dohost.State) (*named, error) { return &named{st}, nil },
		&dohost.Handlers[named]{OnHTTP: func(n *named, w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(n.st.ID().String())
		}},
		dohost.Expose("id", (*named).id))
}

// TestObjectOfIsTheObjectThatAnswers compares the two for URLs of all forms.
func TestObjectOfIsTheObjectThatAnswers(t *testing.T) {
	classes := []dohost.Class{namedClass(namedObjects), namedClass(notServed)}
	h, err := dohost.Open(t.TempDir(), nil, classes...)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	o := &web.Options{Classes: []string{"NamedThing"}, Page: true}
	handler, of := web.Handler(h, o), web.ObjectOf(classes, o)
	noObjects := *o
	noObjects.NoObjects = true
	answered := 0
	for _, path := range []string{
		"/objects/NamedThing/a/id", "/objects/NamedThing/a%2Fb/id", "/objects/NamedThing/a/http/x/y", "/objects/Named%54hing/a/id",
		"/objects/NamedThing/%C3%A4/http", "/objects/NamedThing/a/http/..%2Fb/id", "/objects/NamedThing/a%20b/id?x=1", "/objects//NamedThing/a/id",
		"/agents/named-thing/a", "//agents///named-thing//a//rest", "/agents/named-thing/a%2Fb/x", "/agents/named-thing/a/sub/other/b",
		"/agents/NamedThing/a", "/agents/named-thing", "/agents/hidden/a", "/objects/hidden/a/id", "/objects/NamedThing//id", "/objects/NamedThing/a",
		"/", "/page/host.json", "/nothing",
	} {
		method := http.MethodGet
		if strings.HasSuffix(strings.SplitN(path, "?", 2)[0], "/id") {
			method = http.MethodPost
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", strings.NewReader("{}"))
		if u, err := r.URL.Parse(path); err != nil {
			t.Fatal(err)
		} else {
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
		}
		if strings.HasPrefix(path, "//") { // net/url takes it for a host
			r.URL.Path, r.URL.RawPath = path, ""
		}
		id, ok := of(r)
		handler.ServeHTTP(w, r)
		body, _ := io.ReadAll(w.Body)
		var answer string
		if w.Code != http.StatusOK || json.Unmarshal(body, &answer) != nil {
			continue
		}
		answered++
		if !ok || id.String() != answer {
			t.Errorf("%s: ObjectOf returns %v, %v, and %s has answered", path, id, ok, answer)
		}
		if _, ok := web.ObjectOf(classes, &noObjects)(r); ok != strings.Contains(path, "agents") {
			t.Errorf("%s: without objects: %v", path, ok)
		}
	}
	if answered != 11 {
		t.Errorf("%d requests were answered by objects", answered)
	}
	ticket := httptest.NewRequest(http.MethodGet, "/page/host.json?socket=/agents/named-thing/a", nil)
	if id, ok := of(ticket); !ok || id.Name != "a" || id.Class != "NamedThing" {
		t.Errorf("a ticket is of %v, %v", id, ok)
	}
	for _, path := range []string{"/", "/page/host.json", "/nothing", "/page/host.json?socket=x", "/page/host.json?socket=/nothing"} {
		if id, ok := of(httptest.NewRequest(http.MethodGet, path, nil)); ok {
			t.Errorf("%s is for %v", path, id)
		}
	}
}
