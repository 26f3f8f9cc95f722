package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAlarmParkedAndRevive asks a host with three parked alarms; the object sets one of them again before its revival.
func TestAlarmParkedAndRevive(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		answer := `{"parked": [
			{"object": "a/1", "scheduled": "2026-01-02T03:04:05Z", "reason": "handler failed", "attempts": 7, "err": "no\u001b"},
			{"object": "a/2", "scheduled": "2026-01-02T03:04:05Z", "reason": "process ended in handler", "deaths": 6, "lost": 1}
		], "next": "a/2"}`
		switch {
		case r.URL.Query().Get("class") == "damaged":
			answer = `{"parked": [{"object": "a/1", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"}], "damaged": ["x: 1"], "next": "a/1"}`
			if r.URL.Query().Get("after") != "" {
				answer = `{"parked": [], "damaged": ["x: 1", "x: 2"]}`
			}
		case r.URL.Query().Get("after") != "":
			answer = `{"parked": [{"object": "b/3", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"}]}`
		case r.URL.Query().Get("class") == "gone":
			answer = `{"parked": [
				{"object": "gone/\u202e2J", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"},
				{"object": "a/1", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"},
				{"object": "gone/2", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"}
			]}`
		case strings.HasPrefix(r.URL.Path, "/v1/objects/gone/") && strings.HasSuffix(r.URL.Path, "/alarm/revive") && !strings.Contains(r.URL.Path, "well"):
			w.WriteHeader(http.StatusNotFound)
			answer = `{"message": "no such class", "code": "no_class", "ran": "no"}`
		case strings.HasSuffix(r.URL.Path, "/alarm/revive"):
			answer = fmt.Sprintf(`{"revived": %v}`, !strings.Contains(r.URL.Path, "/a/2/"))
		case r.URL.Path == "/v1/objects/a/1":
			answer = `{"id": "a/1", "parked": {"object": "a/1", "scheduled": "2026-01-02T03:04:05Z", "reason": "no handler"}}`
		case strings.HasSuffix(r.URL.Path, "/details"):
			answer = `{"details": []}`
		}
		_, _ = io.WriteString(w, answer) // the test below finds a missing answer
	}))
	defer s.Close()
	const listed = `a/1  handler failed, due 2026-01-02T03:04:05Z, 7 failed runs, "no\x1b"
a/2  process ended in handler, due 2026-01-02T03:04:05Z, 6 processes ended in the handler, 1 processes ended before the handler
b/3  no handler, due 2026-01-02T03:04:05Z
`
	for _, c := range []struct{ args, asked, printed string }{
		{"alarm parked", "GET /v1/parked?limit=1000 GET /v1/parked?after=a%2F2&limit=1000", listed + "0"},
		{"alarm parked a --page 5", "GET /v1/parked?class=a&limit=5 GET /v1/parked?after=a%2F2&class=a&limit=5", listed + "0"},
		{"alarm revive a/1", "POST /v1/objects/a/1/alarm/revive", "revived the alarm of a/1\n0"},
		{"alarm revive a/2", "POST /v1/objects/a/2/alarm/revive", "dohost: a/2 has no parked alarm\n1"},
		{"alarm revive --all --class a", "GET /v1/parked?class=a&limit=1000 POST /v1/objects/a/1/alarm/revive POST /v1/objects/a/2/alarm/revive " +
			"GET /v1/parked?after=a%2F2&class=a&limit=1000 POST /v1/objects/b/3/alarm/revive", "revived 2 alarms\n0"},
		{"alarm parked gone", "GET /v1/parked?class=gone&limit=1000", strings.Join([]string{
			`"gone/\u202e2J"  no handler, due 2026-01-02T03:04:05Z`, `a/1              no handler, due 2026-01-02T03:04:05Z`,
			`gone/2           no handler, due 2026-01-02T03:04:05Z`, "0"}, "\n")},
		{"alarm revive gone/well\u202e", "POST /v1/objects/gone/well%E2%80%AE/alarm/revive", "revived the alarm of \"gone/well\\u202e\"\n0"},
		{"alarm revive --all --class gone", "GET /v1/parked?class=gone&limit=1000 POST /v1/objects/gone/%E2%80%AE2J/alarm/revive " +
			"POST /v1/objects/a/1/alarm/revive POST /v1/objects/gone/2/alarm/revive", "revived 1 alarms\ndohost: \"gone/\\u202e2J\": no such class\ngone/2: no such class\n1"},
		{"alarm revive", "", "dohost: want an object, or --all\n1"},
		{"alarm revive a/1 --all", "", "dohost: want an object, or --all\n1"},
		{"alarm revive a/1 --class a", "", "dohost: --class needs --all\n1"},
		{"alarm parked damaged", "GET /v1/parked?class=damaged&limit=1000 GET /v1/parked?after=a%2F1&class=damaged&limit=1000",
			"dohost: 2 damaged blocks of the disk were skipped: the alarms in them are missing (see dohost check)\n" +
				"a/1  no handler, due 2026-01-02T03:04:05Z\n0"},
		{"show a/1", "GET /v1/objects/a/1 GET /v1/objects/a/1/details?limit=100",
			"object   a/1\ndurable  no\nalarm    parked: no handler, due 2026-01-02T03:04:05Z\nlive     no\n0"},
	} {
		var out strings.Builder
		asked = nil
		args := append(strings.Fields(c.args), "--admin", strings.TrimPrefix(s.URL, "http://"))
		status := App{}.run(t.Context(), args, stdio{strings.NewReader(""), &out, &out})
		printed := fmt.Sprintf("%s%d", out.String(), status)
		if got := strings.Join(asked, " "); printed != c.printed || got != c.asked {
			t.Errorf("%s: asked %q, printed %q; want %q, %q", c.args, got, printed, c.asked, c.printed)
		}
	}
}
