package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHostThatNetHTTPChangesIsSigned has requests with a Host that another node does not get as it is.
func TestHostThatNetHTTPChangesIsSigned(t *testing.T) {
	for host, want := range map[string]string{
		"": "owner", "x:80": "x:80", "[fe80::1]:80": "[fe80::1]:80", "[fe80::1%25en0]:80": "[fe80::1]:80", "[fe80::1%en0%1]": "[fe80::1]", "x%y]": "x%y]", "[x%]y]z": "[x]z",
		"[x%y": "[x%y", "[x]%y": "[x]%y",
	} {
		echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "host "+r.Host) }
		inMemory(t, echo, func(t *testing.T, _ *routed, dial func() net.Conn) {
			request := "GET /x HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n"
			if got := answerOf(t, dial(), time.Second, request); !strings.HasSuffix(got, "\r\n\r\nhost "+want) {
				t.Errorf("%s: %q, want host %s", host, got, want)
			}
		})
	}
}

// TestFailuresOfNodesAreLoggedRarely has requests for a node that refuses connections.
func TestFailuresOfNodesAreLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &Node{o: Options{Secret: []byte(testSecret)}, cells: []*localCell{{}}, log: slog.New(slog.NewTextHandler(&log, nil))}
		n.known.Store(newView(&Snapshot{Plan: Plan{Cells: []Cell{{Holder: "b"}}}, Members: []Member{{ID: "b", Address: "http://b"}}}))
		refuses := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }}
		h := n.Router(&RouterOptions{Transport: refuses, Cell: func(*http.Request) (int, bool) { return 0, true }})
		send := func() {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)); w.Code != http.StatusServiceUnavailable {
				t.Errorf("status %d", w.Code)
			}
		}
		for range 3 {
			send()
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "node=http://b") || !strings.Contains(got, "not_logged=0") {
			t.Errorf("the log is %s", got)
		}
		time.Sleep(rareTime)
		send()
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "not_logged=2") {
			t.Errorf("the log is %s", got)
		}
	})
}
