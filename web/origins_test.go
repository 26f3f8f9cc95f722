package web_test

import (
	"net/http"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/web"
)

// TestOriginsOfOtherSitesDoNotWakeObjects sends requests of browsers and of programs, with methods that net/http regards as
// safe, to agents and to objects.
func TestOriginsOfOtherSitesDoNotWakeObjects(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	const origin, site, mode, dest = "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"
	for _, tt := range []struct {
		name   string
		header http.Header
		ok     bool
	}{
		{"program", nil, true},
		{"own page", header(site, "same-origin"), true},
		{"typed address", header(site, "none", mode, "navigate", dest, "document"), true},
		{"link", header(site, "cross-site", mode, "navigate", dest, "document"), true},
		{"trusted page", header(origin, "https://friend.example", site, "cross-site", mode, "cors"), true},
		{"fetch", header(origin, "https://evil.example", site, "cross-site", mode, "cors"), false},
		{"image", header(site, "cross-site", mode, "no-cors", dest, "image"), false},
		{"frame", header(site, "cross-site", mode, "navigate", dest, "iframe"), false},
		{"page of the same site", header(site, "same-site", mode, "no-cors"), false},
		{"old browser", header(origin, "https://evil.example"), false},
		{"sandbox", header(origin, "null"), false},
		{"socket", header(origin, "https://evil.example", site, "cross-site", mode, "websocket", "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-Websocket-Version", "13", "Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), false},
		{"form", header(origin, "https://evil.example", site, "cross-site", mode, "navigate", dest, "document"), false},
	} {
		for _, cors := range []bool{false, true} {
			wakes := 0
			h := openWith(t, &wakes)
			s := start(t, handler(h, &web.Options{Origins: []string{"https://friend.example"}, CORS: cors}))
			s.header = tt.header
			for _, path := range []string{"/objects/thing/a/http/x", "/agents/thing/b/x"} {
				methods := []string{"GET", "HEAD", "OPTIONS"}
				if tt.name == "link" || tt.name == "socket" {
					methods = methods[:1]
				}
				for _, method := range methods {
					want := 200
					if !tt.ok && (!cors || path[1] == 'o' || tt.name == "socket") {
						want = 403
					}
					if res := s.do(method, path, ""); res.StatusCode != want {
						t.Errorf("%s, CORS %v: %s %s = %d, want %d", tt.name, cors, method, path, res.StatusCode, want)
					}
				}
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if !tt.ok && !cors && wakes > 0 {
				t.Errorf("%s: %d objects were woken", tt.name, wakes)
			}
		}
	}
}

func openWith(t *testing.T, wakes *int) *dohost.Host {
	t.Helper()
	return open(t, &dohost.Options{Listener: dohost.Listener{Waking: func(dohost.ID, dohost.Epoch) { *wakes++ }}})
}
