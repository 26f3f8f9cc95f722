package web

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func handshake(t *testing.T, method, path, ticket string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), method, path+"?ticket="+ticket, nil)
	r.Header.Set("Connection", "keep-alive, Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	return r
}

func TestTicketExpiresAfterAMinute(t *testing.T) {
	made := time.Unix(1000, 0)
	for after, valid := range map[time.Duration]bool{0: true, ticketTime: true, ticketTime + time.Second: false} {
		tk := newTickets()
		r := handshake(t, "GET", "/agents/a/b", tk.issue("/agents/a/b", "token", made))
		if token, got := tk.use(r, made.Add(after)); got != valid || got != (token == "token") {
			t.Errorf("after %v: %q, %t", after, token, got)
		}
		if after == 0 && r.URL.RawQuery != "" {
			t.Errorf("the object sees %q", r.URL.RawQuery)
		}
	}
}

func TestTicketIsValidForOneHandshakeAtItsPath(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		path   string
		change func(*http.Request)
		valid  bool
	}{
		"its path":             {path: "/agents/a/b", valid: true},
		"its path, as clients": {path: "//agents/a//b", valid: true},
		"another path":         {path: "/agents/a/c"},
		"a path below it":      {path: "/agents/a/b/sub/c/d"},
		"a POST":               {path: "/agents/a/b", change: func(r *http.Request) { r.Method = "POST" }},
		"no Upgrade":           {path: "/agents/a/b", change: func(r *http.Request) { r.Header.Del("Upgrade") }},
		"no Connection":        {path: "/agents/a/b", change: func(r *http.Request) { r.Header.Del("Connection") }},
		"no key":               {path: "/agents/a/b", change: func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }},
	} {
		tk := newTickets()
		ticket := tk.issue("/agents/a/b", "token", now)
		r := handshake(t, "GET", tt.path, ticket)
		if tt.change != nil {
			tt.change(r)
		}
		if _, got := tk.use(r, now); got != tt.valid {
			t.Errorf("%s: %t", name, got)
		}
		if _, again := tk.use(handshake(t, "GET", tt.path, ticket), now); tt.valid && again {
			t.Errorf("%s: used twice", name)
		}
		if _, ok := newTickets().use(handshake(t, "GET", "/agents/a/b", tk.issue("/agents/a/b", "token", now)), now); ok {
			t.Errorf("%s: valid on another listener", name)
		}
	}
}

func TestTicketsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	tk := newTickets()
	first := tk.issue("/agents/a/b", "token", now)
	var last string
	for range maxTickets {
		last = tk.issue("/agents/a/b", "token", now)
	}
	if len(tk.issued) != maxTickets || len(tk.order) != maxTickets {
		t.Errorf("%d issued, %d in order, want %d", len(tk.issued), len(tk.order), maxTickets)
	}
	_, oldest := tk.use(handshake(t, "GET", "/agents/a/b", first), now)
	if _, newest := tk.use(handshake(t, "GET", "/agents/a/b", last), now); oldest || !newest {
		t.Error("want the oldest to be invalid, and the newest valid")
	}
	tk.issue("/agents/a/b", "token", now.Add(ticketTime+time.Second))
	if len(tk.issued) != 1 || len(tk.order) != 1 {
		t.Errorf("%d issued, %d in order after a minute", len(tk.issued), len(tk.order))
	}
}
