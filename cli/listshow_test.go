package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCloseClosesSockets uses a host with fixed answers.
func TestCloseClosesSockets(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		n := 0
		if r.URL.Query().Get("tag") != "nobody" {
			n = 2
		}
		fmt.Fprintf(w, `{"closed": %d}`, n)
	}))
	defer s.Close()
	for _, c := range []struct{ args, asked, said string }{
		{"room/a x", "DELETE /v1/objects/room/a/sockets?tag=x", "closed 2 WebSockets of room/a\n0"},
		{"room/a --all", "DELETE /v1/objects/room/a/sockets", "closed 2 WebSockets of room/a\n0"},
		{"room/a nobody", "DELETE /v1/objects/room/a/sockets?tag=nobody", "dohost: room/a has no WebSocket with tag \"nobody\"\n1"},
		{"room/a", "", "dohost: want a tag, as show --sockets lists it, or --all\n1"},
		{"room/a x --all", "", "dohost: --all and a tag: want one of them\n1"},
	} {
		var out strings.Builder
		asked = ""
		args := append([]string{"close"}, strings.Fields(c.args)...)
		args = append(args, "--admin", strings.TrimPrefix(s.URL, "http://"))
		status := App{}.run(t.Context(), args, stdio{strings.NewReader(""), &out, &out})
		if printed := fmt.Sprintf("%s%d", out.String(), status); printed != c.said || asked != c.asked {
			t.Errorf("%s: asked %q, said %q; want %q, %q", c.args, asked, printed, c.asked, c.said)
		}
	}
}

// TestLsNamesDamagedBlocks lists two pages, which skip three blocks.
func TestLsNamesDamagedBlocks(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"objects": [{"id": "a/1"}], "damaged": ["x: 1", "x: 2"], "next": "a/1"}`
		if r.URL.Query().Get("after") != "" {
			answer = `{"objects": [{"id": "a/2"}], "damaged": ["x: 2", "x: 3"]}`
		}
		_, _ = io.WriteString(w, answer) // the test notices a missing part
	}))
	defer s.Close()
	var out, stderr strings.Builder
	status := App{}.run(t.Context(), []string{"ls", "--admin", strings.TrimPrefix(s.URL, "http://")}, stdio{strings.NewReader(""), &out, &stderr})
	const note = "dohost: 3 damaged blocks of the disk were skipped: the objects in them are missing (see dohost check)\n"
	if out.String() != "a/1  cold\na/2  cold\n" || stderr.String() != note || status != 0 {
		t.Errorf("printed %q and %q, status %d", out.String(), stderr.String(), status)
	}
}

// TestShowListsSockets has an object with sockets and no incarnation.
func TestShowListsSockets(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"id": "room/a", "durable": true, "sockets": 2}`
		if strings.HasSuffix(r.URL.Path, "/sockets") {
			answer = `{"sockets": [{"tags": ["x", "y z"], "since": "2026-01-02T03:04:05Z", "state": "hibernating"},
				{"since": "2026-01-02T03:04:06Z", "state": "closing", "waiting_bytes": 7}]}`
		}
		_, _ = io.WriteString(w, answer) // the test below finds a missing answer
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
		status := App{}.run(t.Context(), args, stdio{strings.NewReader(""), &out, &err})
		if out.String() != want || status != 0 {
			t.Errorf("%v: status %d, %s\n%s, want\n%s", args, status, err.String(), out.String(), want)
		}
	}
}
