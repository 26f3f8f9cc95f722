package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
	"github.com/dohost/dohost/web/page"
)

// facts are the facts that the page gets.
type facts struct {
	Process, Agents, Ticket    string
	Operator, Kill, Supervised bool
	Classes                    []struct {
		Name, URL string
		Chat      bool
		Questions []string
	}
}

// chatProtocolClass is a class with sockets that speak the protocol of a chat agent.
var chatProtocolClass = dohost.Bind(dohost.Namespace[broadcastObject]("SmallTalk"), func(_ context.Context, st *dohost.State) (*broadcastObject, error) {
	return &broadcastObject{st}, nil
}, &dohost.Handlers[broadcastObject]{
	OnHTTP:    (*broadcastObject).serve,
	OnSocket:  &dohost.SocketHandlers[broadcastObject]{Message: (*broadcastObject).onMessage},
	Protocols: []string{"agent", "chat"},
})

func (s *server) text(path string) (string, *http.Response) {
	s.t.Helper()
	res := s.do("GET", path, "")
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b), res
}

// TestPageIsServedByBothListeners reads each file on both listeners, with the headers that exclude other origins.
func TestPageIsServedByBothListeners(t *testing.T) {
	h := openClasses(t, chatProtocolClass, testClass())
	for name, handler := range map[string]http.Handler{
		"public": handler(h, &web.Options{Page: true}), "admin": web.Admin(h, nil),
	} {
		s := start(t, handler)
		files := 0
		err := fs.WalkDir(page.Files, ".", func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			files++
			at := map[bool]string{true: "/", false: "/page/" + file}[file == "index.html"]
			want, err := fs.ReadFile(page.Files, file)
			if err != nil {
				return err
			}
			got, res := s.text(at)
			kind := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.Ext(file)]
			csp := res.Header.Get("Content-Security-Policy")
			if res.StatusCode != 200 || got != string(want) || !strings.HasPrefix(res.Header.Get("Content-Type"), kind) ||
				res.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(csp, "default-src 'self'") ||
				!strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "ws") || res.Header.Get("Cross-Origin-Opener-Policy") != "same-origin" || strings.Contains(csp, "unsafe") {
				t.Errorf("%s: %s: %d, %v", name, at, res.StatusCode, res.Header)
			}
			s.header.Set("If-None-Match", res.Header.Get("ETag"))
			if again := s.do("GET", at, ""); again.StatusCode != http.StatusNotModified || res.Header.Get("Cache-Control") != "no-cache" {
				t.Errorf("%s: %s again: %d, %v", name, at, again.StatusCode, res.Header)
			}
			s.header.Del("If-None-Match")
			return nil
		})
		if err != nil || files < 10 {
			t.Errorf("%s: %d files, %v", name, files, err)
		}
		s.wantError("POST", "/", "x", 404, "no_route")
		s.wantError("GET", "/page/nothing.js", "", 404, "no_route")
	}
	s := start(t, handler(h, nil))
	s.wantError("GET", "/", "", 404, "no_route")
	s.wantError("GET", "/page/host.json", "", 404, "no_route")
}

var (
	inline    = regexp.MustCompile(`(?i)<script>|<style|\son\w+=|\sstyle=|javascript:`)
	unsafe    = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`)
	reference = regexp.MustCompile(`(?:src|href)="(/page/[^"]+)"|from '\./([^']+)'`)
)

// TestPageFilesFitTheirContentPolicy reads them: nothing that its policy forbids, nothing that takes a text for HTML,
// nothing from elsewhere, and all that they name is there.
func TestPageFilesFitTheirContentPolicy(t *testing.T) {
	names, err := fs.Glob(page.Files, "*")
	if err != nil {
		t.Fatal(err)
	}
	references := 0
	for _, name := range names {
		data, err := fs.ReadFile(page.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(data, []byte("\n")); lines > 400 {
			t.Errorf("%s: %d lines", name, lines)
		}
		if name == "index.html" && inline.Match(data) {
			t.Errorf("%s: %s", name, inline.Find(data))
		}
		if unsafe.Match(data) {
			t.Errorf("%s: %s", name, unsafe.Find(data))
		}
		for _, m := range reference.FindAllSubmatch(data, -1) {
			file := strings.TrimPrefix(string(m[1])+string(m[2]), "/page/")
			if _, err := fs.Stat(page.Files, file); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			references++
		}
	}
	if references < 15 {
		t.Errorf("%d references", references)
	}
}

// TestPageFactsPerListener asks both listeners: the public one has only conversations.
func TestPageFactsPerListener(t *testing.T) {
	h := openClasses(t, chatProtocolClass, echoClass, testClass())
	ask := web.Questions{"SmallTalk": {"Nice weather?"}}
	public := getJSON[facts](start(t, handler(h, &web.Options{Page: true, Questions: ask, AgentsPrefix: "/x//y/"})), "GET", "/page/host.json", "")
	if got := fmt.Sprintf("%+v", public.Classes); got != "[{Name:SmallTalk URL:small-talk Chat:true Questions:[Nice weather?]}]" {
		t.Error(got)
	}
	if public.Operator || public.Kill || public.Supervised || public.Agents != "/x/y" || public.Ticket != "" {
		t.Errorf("%+v", public)
	}
	nobody := func() error { return nil }
	admin := getJSON[facts](start(t, web.Admin(h, &web.AdminOptions{Kill: nobody, Supervised: true})), "GET", "/page/host.json", "")
	if len(admin.Classes) != 3 || !admin.Operator || !admin.Kill || !admin.Supervised || admin.Agents != "/agents" {
		t.Errorf("%+v", admin)
	}
	other := getJSON[facts](start(t, web.Admin(h, nil)), "GET", "/page/host.json", "")
	if other.Process == admin.Process || other.Process == "" || other.Kill || other.Supervised {
		t.Errorf("%+v", other)
	}
}

// TestAdminReachesAgentSocketsAndTranscripts opens the page's sockets on the operators' listener, from its own pages
// only.
func TestAdminReachesAgentSocketsAndTranscripts(t *testing.T) {
	h := openClasses(t, chatProtocolClass, echoClass)
	s := start(t, web.Admin(h, nil))
	s.wantError("POST", "//agents/big-mirror/a/x?q=1", "body", 403, "not_here")
	s.wantError("GET", "/agents/big-mirror/a/page", "", 403, "not_here")
	s.wantError("POST", "/agents/big-mirror/a/get-messages", "", 403, "not_here")
	if res := s.want("GET", "/agents/big-mirror/a/get-messages?q=1", "", 200, "GET BigMirror/a/get-messages?q=1 "); res.Header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "sandbox;") {
		t.Errorf("a page of an agent: %v", res.Header)
	}
	if body, res := s.text("/agents/nobody/a/get-messages"); res.StatusCode != 400 || body != "Invalid request\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	url := strings.Replace(s.url, "http", "ws", 1) + "/agents/small-talk/a"
	for origin, want := range map[string]int{"": 101, s.url: 101, "https://evil.example": 403, "http://127.0.0.1:1": 403} {
		ws, res, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
		if res == nil || res.StatusCode != want {
			t.Errorf("origin %q: %v", origin, err)
		}
		if err == nil {
			ws.CloseNow()
		}
	}
	s.header.Set("Host", "evil.example")
	s.wantError("GET", "/agents/big-mirror/a/get-messages", "", 403, "foreign_host")
	s.wantError("GET", "/", "", 403, "foreign_host")
	s.wantError("GET", "/page/app.js", "", 403, "foreign_host")
}

// TestPageOpensByForeignLinkButNothingElse sends requests of a page of another origin.
func TestPageOpensByForeignLinkButNothingElse(t *testing.T) {
	s := start(t, web.Admin(openClasses(t, chatProtocolClass), nil))
	s.header.Set("Sec-Fetch-Site", "cross-site")
	s.header.Set("Sec-Fetch-Dest", "document")
	if _, res := s.text("/"); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	s.wantError("POST", "/", "x", 403, "foreign_origin")
	s.wantError("GET", "/v1/objects", "", 403, "foreign_origin")
	s.wantError("GET", "/page/host.json", "", 403, "foreign_origin")
	s.header.Set("Sec-Fetch-Dest", "iframe")
	s.wantError("GET", "/", "", 403, "foreign_origin")
	s.header.Set("Sec-Fetch-Dest", "document")
	s.header.Set("Origin", "https://evil.example")
	s.wantError("GET", "/", "", 403, "foreign_origin")
}

// TestKillAnswersFirstAndNeedsToken checks that the answer precedes the kill, and that a client needs a token.
func TestKillAnswersFirstAndNeedsToken(t *testing.T) {
	h := openClasses(t, chatProtocolClass)
	killed := make(chan struct{}, 8)
	answered := make(chan struct{})
	s := start(t, web.Admin(h, &web.AdminOptions{Tokens: []string{"secret"}, Kill: func() error {
		<-answered // the client has the answer
		killed <- struct{}{}
		return nil
	}}))
	s.wantError("POST", "/v1/kill", "", 401, "unauthorized")
	s.header.Set("Authorization", "Bearer secret")
	s.header.Set("Origin", "https://evil.example")
	s.wantError("POST", "/v1/kill", "", 403, "foreign_origin")
	s.header.Del("Origin")
	s.wantError("GET", "/v1/kill", "", 404, "no_route")
	if n := len(killed); n != 0 {
		t.Fatalf("killed %d times", n)
	}
	s.want("POST", "/v1/kill", "", 200, "{\"killed\":true}\n")
	close(answered)
	<-killed // after its answer, so maybe later than this test reads that
	if n := len(killed); n != 0 {
		t.Errorf("killed %d times more", n)
	}
	start(t, web.Admin(h, nil)).wantError("POST", "/v1/kill", "", 404, "no_route")
	start(t, handler(h, &web.Options{Page: true})).wantError("POST", "/v1/kill", "", 404, "no_route")
}

// TestTicketOpensOnlyASocket is how the page gets one on a listener with tokens.
func TestTicketOpensOnlyASocket(t *testing.T) {
	h := openClasses(t, chatProtocolClass, echoClass, testClass())
	tokens := []string{"one", "two"}
	servers := map[string]*server{
		"public": start(t, handler(h, &web.Options{Page: true, Tokens: tokens})),
		"admin":  start(t, web.Admin(h, &web.AdminOptions{Tokens: tokens})),
	}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Version": {"13"}}
	for name, s := range servers {
		if _, res := s.text("/"); res.StatusCode != 200 {
			t.Errorf("%s: the page wants a token: %s", name, res.Status)
		}
		s.wantError("GET", "/page/host.json", "", 401, "unauthorized")
		issue := func(path string) string {
			s.header = http.Header{"Authorization": {"Bearer two"}}
			defer func() { s.header = http.Header{} }()
			return getJSON[facts](s, "GET", "/page/host.json?socket="+path, "").Ticket
		}
		if got := issue(""); got != "" {
			t.Errorf("%s: a ticket for no path: %q", name, got)
		}
		dial := func(at *server, ticket string, want int) {
			t.Helper()
			url := strings.Replace(at.url, "http", "ws", 1) + "/agents/small-talk/a?tag=x&ticket="
			ws, res, err := websocket.Dial(t.Context(), url+ticket, nil)
			if res == nil || res.StatusCode != want {
				t.Errorf("%s: ticket %q: %v, want %d", name, ticket, err, want)
			}
			if err == nil {
				ws.CloseNow()
			}
		}
		const path = "/agents/small-talk/a"
		ticket := issue(path)
		dial(s, ticket, 101)
		dial(s, ticket, 401) // it was used
		dial(s, "", 401)
		dial(s, "x", 401)
		dial(s, issue(path)+"0", 401)
		dial(s, issue("/agents/small-talk/b"), 401)
		for _, other := range servers {
			if other != s {
				dial(other, issue(path), 401)
			}
		}
		s.wantError("GET", path+"?ticket="+issue(path), "", 401, "unauthorized")
		for _, elsewhere := range []string{"/page/host.json", "/objects/thing/a/put", "/v1/objects", "/debug/pprof/"} {
			ticket := issue(elsewhere)
			s.header = upgrade.Clone()
			s.wantError("GET", elsewhere+"?ticket="+ticket, "", 401, "unauthorized")
		}
	}
}
