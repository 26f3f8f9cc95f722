package cluster

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRequestsWithoutSignatureAreLogged sends requests with a wrong signature, from several addresses.
func TestRequestsWithoutSignatureAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &Node{o: Options{Secret: []byte(testSecret)}, log: slog.New(slog.NewTextHandler(&log, nil))}
		h := n.Router(&RouterOptions{Cell: func(*http.Request) (int, bool) { return 0, true }})
		send := func(remote string) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/x", nil)
			r.RemoteAddr = remote
			r.Header.Set(Header, "1 192.0.2.9:9 0123")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusForbidden {
				t.Errorf("status %d", w.Code)
			}
		}
		for _, remote := range []string{"192.0.2.1:1", "192.0.2.2:2", "192.0.2.3:3"} {
			send(remote)
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "remote=192.0.2.1:1 not_logged=0") {
			t.Errorf("the log is %s", got)
		}
		time.Sleep(rareTime)
		send("192.0.2.4:4")
		if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "remote=192.0.2.4:4 not_logged=2") {
			t.Errorf("the log is %s", got)
		}
	})
}
