package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTextIsPrintedWithoutControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"a b-ö 漢 \"x\"": "a b-ö 漢 \"x\"", "": "", "\x1b]52;c;x\a": `"\x1b]52;c;x\a"`, "a\nobject b": `"a\nobject b"`, "a\tb": `"a\tb"`,
		"\u202eabc": `"\u202eabc"`, "\xff": `"\xff"`, "\u009b31m": `"\u009b31m"`,
	} {
		if got := printable(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	if got := plain("a\x1b[2J\nb\tc\r\u202ed"); got != "a[2J\nb\tcd" {
		t.Errorf("%q", got)
	}
}

// TestCommandsPrintNoControlCharacters asks a host with control characters in all of its data.
func TestCommandsPrintNoControlCharacters(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	const evil = `\u001b]0;title\u0007\nobject   forged\t\u202e`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"id": "X", "epoch": "X", "live": true, "pins": [{"why": "X"}]}`
		switch {
		case strings.HasSuffix(r.URL.Path, "/v1/objects"):
			answer = `{"objects": [{"id": "X"}, {"id": "X", "live": true}]}`
		case strings.HasSuffix(r.URL.Path, "/sockets"):
			answer = `{"sockets": [{"tags": ["X"], "state": "X", "since": "2026-01-02T03:04:05Z"}]}`
		case strings.HasSuffix(r.URL.Path, "/details"):
			answer = `{"details": [{"kind": "X", "id": "X", "state": "X", "text": "X", "fault": "X"}]}`
		case strings.HasSuffix(r.URL.Path, "/alarm"):
			w.WriteHeader(500)
			answer = `{"code": "X", "message": "X", "op": "X", "object": "X", "ran": "no"}`
		}
		fmt.Fprint(w, strings.ReplaceAll(answer, "X", evil))
	}))
	defer s.Close()
	for _, args := range [][]string{{"ls"}, {"ls", "--live"}, {"show", "a/b", "--sockets"}, {"pins", "a/b"}, {"alarm", "show", "a/b"}, {"evict", "a/\x1b[2J"}} {
		var out, err strings.Builder
		App{}.run(t.Context(), append(args, "--admin", strings.TrimPrefix(s.URL, "http://")), stdio{strings.NewReader(""), &out, &err})
		text := out.String() + err.String()
		if text == "" || strings.ContainsAny(text, "\x1b\a\u202e\u009b") || strings.Contains(text, "\nobject   forged") {
			t.Errorf("%q prints %q", args, text)
		}
	}
	var out strings.Builder
	talk := &chatClient{out: plainWriter{&out}, err: io.Discard}
	if err := talk.print("red \x1b[31m text\n"); err != nil || out.String() != "red [31m text\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
