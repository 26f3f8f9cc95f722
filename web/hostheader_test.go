package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/dohost/dohost/web"
)

// TestHostCheckRefusesForeignNames sends the request of a page after DNS rebinding: its own name as Host and Origin.
func TestHostCheckRefusesForeignNames(t *testing.T) {
	h := openClasses(t, chatProtocolClass, echoClass, testClass())
	public := start(t, handler(h, &web.Options{Page: true, Hosts: []string{"App.example"}}))
	admin := start(t, web.Admin(h, &web.AdminOptions{Hosts: []string{"app.example"}}))
	for _, s := range []*server{public, admin} {
		own := strings.TrimPrefix(s.url, "http://")
		for host, ok := range map[string]bool{
			own: true, "localhost:1": true, "LOCALHOST.": true, "[::1]:1": true, "10.1.2.3": true, "app.example": true, "APP.example:8787": true,
			"rebind.evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "": false,
		} {
			if host == "" {
				continue // net/http's client sends the address instead
			}
			s.header = http.Header{"Host": {host}, "Origin": {"http://" + host}, "Sec-Fetch-Site": {"same-origin"}}
			if ok {
				if _, res := s.text("/page/host.json"); res.StatusCode != 200 {
					t.Errorf("%s: %s", host, res.Status)
				}
				continue
			}
			for _, path := range []string{"/page/host.json", "/", "/agents/big-mirror/a", "/healthz"} {
				s.wantError("GET", path, "", 403, "foreign_host")
			}
			s.wantError("POST", "/objects/thing/a/put", `"x"`, 403, "foreign_host")
			url := strings.Replace(s.url, "http", "ws", 1) + "/agents/small-talk/a"
			_, res, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Host: host, HTTPHeader: http.Header{"Origin": {"http://" + host}}})
			if err == nil || res == nil || res.StatusCode != 403 {
				t.Errorf("%s: a WebSocket: %v", host, err)
			}
		}
	}
}

// TestHostCheckIsOffWithTokensUnlessConfigured leaves the name to a proxy, unless names are given.
func TestHostCheckIsOffWithTokensUnlessConfigured(t *testing.T) {
	h := openClasses(t, testClass())
	for _, tt := range []struct {
		tokens, hosts []string
		ok            bool
	}{
		{nil, nil, false}, {[]string{"x"}, nil, true}, {[]string{"x"}, []string{"app.example"}, false}, {nil, []string{"ops.example"}, true},
	} {
		s := start(t, web.Admin(h, &web.AdminOptions{Tokens: tt.tokens, Hosts: tt.hosts}))
		s.header = http.Header{"Host": {"ops.example"}, "Authorization": {"Bearer x"}}
		if tt.ok {
			s.want("GET", "/healthz", "", 200, "{\"status\":\"ok\"}\n")
		} else {
			s.wantError("GET", "/healthz", "", 403, "foreign_host")
		}
	}
	s := start(t, handler(h, nil))
	s.header.Set("Host", "anything.example")
	s.want("POST", "/objects/thing/a/put", `"x"`, 200, `"was put: x"`)
}
