package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// locked is an object of a class whose Authorize function refuses every caller.
type locked struct{ st *dohost.State }

const lockeds dohost.Namespace[locked] = "locked"

func lockedClass() dohost.Class {
	return dohost.Bind(lockeds, func(_ context.Context, st *dohost.State) (*locked, error) { return &locked{st}, nil },
		dohost.Authorize[locked](func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
			return dohost.Access{}, dohost.ErrUnauthenticated
		}),
		dohost.Expose("put", func(l *locked, ctx context.Context, v string) (struct{}, error) {
			return struct{}{}, dohost.Put(ctx, l.st.Storage(), "v", v)
		}),
		dohost.OnHTTP(func(_ *locked, w http.ResponseWriter, r *http.Request) {
			a, _ := dohost.AccessFrom(r.Context())
			fmt.Fprintf(w, "%T %v", a.Identity, a.Rights == dohost.ReadWrite)
		}))
}

func TestAuthorizeIsAskedOnThePublicListenerAlone(t *testing.T) {
	var woken atomic.Int64
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1, Listener: dohost.Listener{
		Waking: func(dohost.ID, dohost.Epoch) { woken.Add(1) },
	}}, lockedClass())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	pub, adm := start(t, handler(h, nil)), start(t, web.Admin(h, nil))
	for _, path := range []string{"/objects/locked/a/put", "/objects/locked/a/none", "/objects/locked/a/http/x", "/agents/locked/a", "/agents/locked/a/x"} {
		_, res := pub.wantError("POST", path, `"v"`, 401, "unauthenticated")
		if res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", path)
		}
	}
	if there, err := h.Exists(t.Context(), lockeds.Get(h, "a").ID()); woken.Load() > 0 || there || err != nil {
		t.Errorf("%d objects were woken, exists: %v, %v", woken.Load(), there, err)
	}
	adm.want("GET", "/agents/locked/a/get-messages", "", 200, "web.Operator true")
}

func TestHandlerServesTheListedClassesAlone(t *testing.T) {
	h := open(t, nil)
	for name, tt := range map[string]struct {
		o       web.Options
		objects int
		agents  int
	}{
		"none":              {web.Options{}, 404, 400},
		"another":           {web.Options{Classes: []string{"mute", "unbound"}}, 404, 400},
		"listed":            {web.Options{Classes: []string{"thing"}}, 200, 200},
		"without /objects/": {web.Options{Classes: []string{"thing"}, NoObjects: true}, 404, 200},
	} {
		s := start(t, web.Handler(h, &tt.o))
		for path, want := range map[string]int{
			"/objects/thing/" + name[:1] + "/put": tt.objects, "/objects/thing/" + name[:1] + "/http/x": tt.objects, "/agents/thing/" + name[:1] + "/x": tt.agents,
		} {
			if res := s.do("POST", path, `"v"`); res.StatusCode != want {
				t.Errorf("%s: %s: %d, want %d", name, path, res.StatusCode, want)
			}
		}
		there, err := h.Exists(t.Context(), things.Get(h, name[:1]).ID())
		if there != (tt.objects == 200) || err != nil {
			t.Errorf("%s: exists %v, %v", name, there, err)
		}
	}
	if facts := getJSON[struct{ Classes []any }](start(t, web.Handler(h, &web.Options{Page: true})), "GET", "/page/host.json", ""); len(facts.Classes) > 0 {
		t.Errorf("the page names %v", facts.Classes)
	}
}

func TestRootsAreNotUsedAsSubAgentsOnly(t *testing.T) {
	sub := func(classes ...string) dohost.Entry[mute] {
		return dohost.HasSubObjects[mute](dohost.SubObjects{
			Classes: classes,
			Path:    func(id dohost.ID) []dohost.ID { return []dohost.ID{id} },
			Next:    func(dohost.ID, *url.URL) (dohost.ID, *url.URL, bool) { return dohost.ID{}, nil, false },
		})
	}
	bind := func(name string, subs ...string) dohost.Class {
		return dohost.Bind(dohost.Namespace[mute](name), func(context.Context, *dohost.State) (*mute, error) { return &mute{}, nil }, sub(subs...))
	}
	got := fmt.Sprint(web.Roots([]dohost.Class{bind("tree", "tree", "leaf"), bind("leaf"), bind("other"), bind("leafy", "leaf")}))
	if want := "[tree other leafy]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNewObjectsAreBounded(t *testing.T) {
	h := open(t, nil)
	s := start(t, handler(h, &web.Options{NewObjects: 3}))
	for i, path := range []string{"/objects/thing/a/put", "/objects/thing/b/http/x", "/agents/thing/c/x"} {
		for range 3 { // of which the first one counts
			if res := s.do("POST", path, `"v"`); res.StatusCode != 200 {
				t.Errorf("object %d: %d", i, res.StatusCode)
			}
		}
	}
	for _, path := range []string{"/objects/thing/d/put", "/objects/thing/d/http/x", "/agents/thing/d/x"} {
		if _, res := s.wantError("POST", path, `"v"`, 429, "too_many_new"); res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	id := things.Get(h, "d").ID()
	if there, err := h.Exists(t.Context(), id); there || h.IsLive(id) || err != nil {
		t.Errorf("exists %v, live %v, %v", there, h.IsLive(id), err)
	}
	s.want("POST", "/objects/thing/a/put", `"w"`, 200, `"was put: w"`)
}
