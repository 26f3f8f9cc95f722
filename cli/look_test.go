package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestShowTellsOfSockets has an object with sockets and no incarnation.
func TestShowTellsOfSockets(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"id": "room/a", "durable": true, "sockets": 2}`
		if strings.HasSuffix(r.URL.Path, "/sockets") {
			answer = `{"sockets": [{"tags": ["x", "y z"], "since": "2026-01-02T03:04:05Z", "state": "hibernating"},
				{"since": "2026-01-02T03:04:06Z", "state": "closing", "waiting_bytes": 7}]}`
		}
		_, _ = io.WriteString(w, answer) // what is not sent is missed below
	}))
	defer s.Close()
	const short = `object   room/a
durable  yes
alarm    none
live     no
sockets  2, hibernating
`
	const long = short + `socket   hibernating since 2026-01-02T03:04:05Z "x" "y z"
socket   closing since 2026-01-02T03:04:06Z, 7 bytes unsent
`
	for want, args := range map[string][]string{short: {"show", "room/a"}, long: {"show", "--sockets", "room/a"}} {
		var out, err strings.Builder
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		status := App{}.run(t.Context(), args, streams{strings.NewReader(""), &out, &err})
		if out.String() != want || status != 0 {
			t.Errorf("%v: status %d, %s\n%s, want\n%s", args, status, err.String(), out.String(), want)
		}
	}
}
