package web_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// refusingObject is an object of a class that refuses every caller in its Authorize function.
type refusingObject struct{ st *dohost.State }

const refusingObjects dohost.Namespace[refusingObject] = "locked"

func refusingClass() dohost.Class {
	return dohost.Bind(refusingObjects, func(_ context.Context, st *dohost.State) (*refusingObject, error) { return &refusingObject{st}, nil },
		&dohost.Handlers[refusingObject]{
			Authorize: func(context.Context, *dohost.AccessRequest) (dohost.Access, error) {
				return dohost.Access{}, dohost.ErrUnauthenticated
			},
			OnHTTP: func(_ *refusingObject, w http.ResponseWriter, r *http.Request) {
				a, _ := dohost.AccessFrom(r.Context())
				fmt.Fprintf(w, "%T %v", a.Identity, a.Rights == dohost.RightsReadWrite)
			},
		},
		dohost.Expose("put", dohost.NoResult(func(l *refusingObject, ctx context.Context, v string) error {
			return dohost.Put(ctx, l.st.Storage(), "v", v)
		})))
}

func TestAuthorizeRunsOnlyForThePublicListener(t *testing.T) {
	var woken atomic.Int64
	h, err := dohost.Open(t.TempDir(), &dohost.Options{Grace: -1, Listener: dohost.Listener{
		Waking: func(dohost.ID, dohost.Epoch) { woken.Add(1) },
	}}, refusingClass())
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
	if there, err := h.Exists(t.Context(), refusingObjects.Get(h, "a").ID()); woken.Load() > 0 || there || err != nil {
		t.Errorf("%d objects were woken, exists: %v, %v", woken.Load(), there, err)
	}
	adm.want("GET", "/agents/locked/a/get-messages", "", 200, "web.Operator true")
}

// TestAuthorizeGetsTheTokenIdentity presents the second of two tokens in each way, and no token to a listener without
// tokens.
func TestAuthorizeGetsTheTokenIdentity(t *testing.T) {
	var got string
	h := openClasses(t, dohost.Bind(refusingObjects, func(_ context.Context, st *dohost.State) (*refusingObject, error) { return &refusingObject{st}, nil },
		&dohost.Handlers[refusingObject]{
			Authorize: func(ctx context.Context, r *dohost.AccessRequest) (dohost.Access, error) {
				identity, ok := web.TokenIdentity(ctx)
				got = fmt.Sprint(identity, " ", ok, " ", r.Request.Header.Get("Authorization"), r.Request.URL.RawQuery)
				return dohost.Access{}, dohost.ErrForbidden
			},
			OnHTTP: func(*refusingObject, http.ResponseWriter, *http.Request) {},
		}))
	tokens := []string{"one", "two"}
	sum := sha256.Sum256([]byte("two"))
	want := fmt.Sprintf("%x true ", sum[:8])
	s := start(t, handler(h, &web.Options{Page: true, Tokens: tokens}))
	asks := func(s *server, header http.Header, method, path, want string) {
		t.Helper()
		got = ""
		s.header = header
		if res := s.do(method, path, ""); res.StatusCode != 403 || got != want {
			t.Errorf("%s %s: %s, the function got %q, want %q", method, path, res.Status, got, want)
		}
	}
	bearer := http.Header{"Authorization": {"Bearer two"}}
	for path, method := range map[string]string{"/objects/locked/a/put": "POST", "/objects/locked/a/http/x": "GET", "/agents/locked/a": "GET"} {
		asks(s, bearer, method, path, want)
	}
	s.header = bearer
	ticket := getJSON[facts](s, "GET", "/page/host.json?socket=/agents/locked/a", "").Ticket
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}
	asks(s, upgrade, "GET", "/agents/locked/a?ticket="+ticket, want)
	asks(start(t, handler(h, nil)), http.Header{}, "GET", "/agents/locked/a", " false ")
}

func TestDocsContainTheTokenExample(t *testing.T) {
	text, err := os.ReadFile("../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_token_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "// byTokenFile authorizes")
	code, _, _ = strings.Cut(code, "// Two users have")
	if !strings.Contains(string(text), strings.TrimSpace(code)) {
		t.Error("docs/agents.md shows another function than example_token_test.go")
	}
}

func TestHandlerServesOnlyListedClasses(t *testing.T) {
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
		there, err := h.Exists(t.Context(), testObjects.Get(h, name[:1]).ID())
		if there != (tt.objects == 200) || err != nil {
			t.Errorf("%s: exists %v, %v", name, there, err)
		}
	}
	if facts := getJSON[struct{ Classes []any }](start(t, web.Handler(h, &web.Options{Page: true})), "GET", "/page/host.json", ""); len(facts.Classes) > 0 {
		t.Errorf("the page names %v", facts.Classes)
	}
}

func TestRootsExcludeSubAgentOnlyClasses(t *testing.T) {
	bind := func(name string, subs ...string) dohost.Class {
		return dohost.Bind(dohost.Namespace[noEntryObject](name), func(context.Context, *dohost.State) (*noEntryObject, error) { return &noEntryObject{}, nil },
			&dohost.Handlers[noEntryObject]{SubObjects: &dohost.SubObjects{
				Classes: subs,
				Path:    func(id dohost.ID) []dohost.ID { return []dohost.ID{id} },
				Next:    func(dohost.ID, *url.URL) (dohost.ID, *url.URL, bool) { return dohost.ID{}, nil, false },
			}})
	}
	got := fmt.Sprint(web.Roots([]dohost.Class{bind("tree", "tree", "leaf"), bind("leaf"), bind("other"), bind("leafy", "leaf")}))
	if want := "[tree other leafy]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestObjectCreationIsLimited(t *testing.T) {
	h := open(t, nil)
	s := start(t, handler(h, &web.Options{NewObjects: 3}))
	for i, path := range []string{"/objects/thing/a/put", "/objects/thing/b/http/x", "/agents/thing/c/x"} {
		for range 3 { // the first one counts
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
	id := testObjects.Get(h, "d").ID()
	if there, err := h.Exists(t.Context(), id); there || h.IsLive(id) || err != nil {
		t.Errorf("exists %v, live %v, %v", there, h.IsLive(id), err)
	}
	s.want("POST", "/objects/thing/a/put", `"w"`, 200, `"was put: w"`)
}
