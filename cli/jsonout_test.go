package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/dohost/dohost"
)

var updateJSON = flag.Bool("update", false, "write the JSON of the commands to testdata/json.txt")

// fixedAnswers are the answers of the host of TestJSONOfCommands: the first prefix of a request decides.
var fixedAnswers = []struct{ prefix, answer string }{
	{"GET /v1/objects/room/a/sockets", `{"sockets": [{"tags": ["x"], "since": "2026-01-02T03:04:05Z", "state": "live", "waiting_bytes": 7}]}`},
	{"DELETE /v1/objects/room/a/sockets", `{"closed": 2}`},
	{"POST /v1/objects/room/a/evict", `{"evicted": true}`},
	{"POST /v1/objects/room/b/evict", `{"evicted": false}`},
	{"GET /v1/objects/room/a/pins", `{"id": "room/a", "pins": [{"why": "task"}, {"why": "hold", "for_seconds": 1.5}]}`},
	{"GET /v1/objects/room/b/alarm", `{"at": null}`},
	{"DELETE /v1/objects/room/a/alarm", `{"at": null}`},
	{"GET /v1/objects/room/a/alarm", `{"at": "2026-01-02T03:04:05Z"}`},
	{"PUT /v1/objects/room/a/alarm", `{"at": "2026-01-02T03:04:05Z"}`},
	{"POST /v1/objects/room/a/alarm/revive", `{"revived": true}`},
	{"POST /v1/objects/room/c/import", `{"id": "room/c", "durable": true}`},
	{"POST /v1/objects/room/a/operate", `{"done": true}`},
	{"GET /v1/objects/room/a/details?can=approve&kind=budget", `{"details": [{"kind": "budget", "id": "b1", "state": "waiting", "can": ["approve", "deny"]}]}`},
	{"GET /v1/objects/room/a/details?kind=budget-event", `{"details": [{"kind": "budget-event", "id": "1", "state": "requested"}]}`},
	{"GET /v1/objects/room/a/details?kind=budget", `{"details": []}`},
	{"GET /v1/objects/room/a/details?can=approve", `{"details": [` + fixedCall + `], "more": true}`},
	{"GET /v1/objects/room/a/details?can=retry", `{"details": [{"kind": "fiber", "id": "f1"}]}`},
	{"GET /v1/objects/room/a/details?kind=approval", `{"details": [{"kind": "approval", "id": "1", "state": "approved", "text": "call c1"}]}`},
	{"GET /v1/objects/room/a/details", `{"details": [` + fixedCall + `], "more": true}`},
	{"GET /v1/objects/room/a", `{"id": "room/a", "durable": true, "live": true, "alarm": "2026-01-02T03:04:05Z", "sockets": 1, "epoch": "1.2",
		"age_seconds": 3, "idle_seconds": 1.5, "events": 4, "queued": 5, "pins": [{"why": "task"}]}`},
	{"GET /v1/objects?limit=1000&live=true", `{"objects": [{"id": "room/a", "durable": true, "live": true, "age_seconds": 3}]}`},
	{"GET /v1/objects", `{"objects": [{"id": "room/a", "durable": true, "live": true}, {"id": "room/\u202eb", "durable": true, "live": false}]}`},
	{"GET /v1/parked", `{"parked": [{"object": "room/a", "scheduled": "2026-01-02T03:04:05Z", "reason": "handler failed", "attempts": 7, "err": "no"}]}`},
	{"POST /v1/objects/room/a/restore", `{"undo": "0000000000000007-5f0c3a91-01ARZ3NDEKTSV4RRFFQ69G5FAV"}`},
	{"POST /v1/backup", `{}`},
	{"GET /v1/standby", `{"store": "01ARZ3NDEKTSV4RRFFQ69G5FAV/5f0c3a91", "record": 7, "made": "2026-01-02T03:04:05Z", "archived": 9,
		"lag_records": 2, "lag_seconds": 1.5, "waiting": "record 8 is missing in the archive"}`},
	{"POST /v1/promote", `{"store": "01ARZ3NDEKTSV4RRFFQ69G5FAV/5f0c3a91", "record": 9, "made": "2026-01-02T03:04:05Z", "archived": 9, "promoted": true}`},
}

const fixedCall = `{"kind": "call", "id": "c1", "state": "approval", "text": "\"book\" {}", "digest": "d1",
	"counts": {"size": 2}, "fields": {"tool": "book"}, "can": ["approve", "deny"]}`

// fixedHost is a host with fixed answers.
func fixedHost(t *testing.T) string {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, f := range fixedAnswers {
			if strings.HasPrefix(r.Method+" "+r.URL.String(), f.prefix) {
				_, _ = io.WriteString(w, f.answer) // the test notices a missing answer
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

const brokens dohost.Namespace[broken] = "broken"

// broken is an object with a fault.
type broken struct{ *dohost.State }

func brokenClass() dohost.Class {
	return dohost.Bind(brokens, func(_ context.Context, st *dohost.State) (*broken, error) { return &broken{st}, nil }, &dohost.Handlers[broken]{
		OnInspect: func(context.Context, *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			return func(yield func(dohost.Resource, error) bool) {
				yield(dohost.Resource{Kind: "leg", ID: "1", Fault: "the leg is broken"}, nil)
			}
		},
		OnAlarm: func(*broken, context.Context, dohost.AlarmInfo) error { return nil },
	})
}

// TestJSONOfCommands compares the output of each command with --json with testdata/json.txt, and requires that this file has
// every command that prints data.
func TestJSONOfCommands(t *testing.T) {
	dir, class := filepath.Join(t.TempDir(), "store"), brokenClass()
	h, err := dohost.Open(dir, nil, class)
	if err != nil {
		t.Fatal(err)
	}
	err = brokens.Get(h, "a").Do(t.Context(), func(ctx context.Context, b *broken) error { return b.SetAlarm(ctx, time.Now().Add(time.Hour)) })
	if err := errors.Join(err, h.Close()); err != nil {
		t.Fatal(err)
	}
	export := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(export, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	admin := fixedHost(t)
	shipped := t.TempDir()
	shipOneRecord(t, shipped)
	places := strings.NewReplacer(dir, "DIR", shipped, "SHIPPED", export, "FILE")
	varying := regexp.MustCompile(`"(store|fork|version|go|bytes|made|record)":("[^"]*"|\d+)`)
	var text strings.Builder
	commands := []string{
		"ls", "ls --live", "show room/a", "show room/a --sockets", "pins room/a",
		"cancel room/a fiber f1", "retry room/a fiber --all", "delete room/a fiber f1",
		"approvals room/a", "approvals room/a --log", "approve room/a c1 --actor mia", "deny room/a c1 --reason full",
		"complete room/a c1 --result 1", "complete room/a c1 --failed jammed", "resolve room/a op_1 --done 1", "resolve room/a op_1 --not-done",
		"close room/a x", "close room/a --all", "evict room/a", "evict room/b",
		"alarm show room/a", "alarm show room/b", "alarm set room/a 2026-01-02T03:04:05Z", "alarm delete room/a",
		"alarm parked", "alarm revive room/a", "alarm revive --all",
		"import room/c " + export, "backup /b", "check " + dir, "restore --from " + shipped + " --data " + dir + "/new",
		"restore --object room/a --at 3 --over", "standby --status", "promote --as-is", "version",
	}
	for _, c := range commands {
		args := append(strings.Fields(c), "--json")
		if c != "version" && !strings.HasPrefix(c, "check ") && !strings.HasPrefix(c, "restore --from") {
			args = append(args, "--admin", admin)
		}
		var out, stderr strings.Builder
		status := App{Classes: []dohost.Class{class}}.run(t.Context(), args, stdio{strings.NewReader(""), &out, &stderr})
		if (status == 0) == strings.HasPrefix(c, "check ") { // the store has a problem
			t.Errorf("%s: status %d: %s", c, status, stderr.String())
		}
		lines := 0
		for line := range strings.Lines(out.String()) {
			if lines++; !json.Valid([]byte(line)) {
				t.Errorf("%s: no JSON: %s", c, line)
			}
		}
		if lines == 0 {
			t.Errorf("%s prints nothing", c)
		}
		fmt.Fprintf(&text, "$ dohost %s --json\n%s%s", c, out.String(), stderr.String())
	}
	compareJSON(t, varying.ReplaceAllString(places.Replace(text.String()), `"$1":"…"`))
	requireAllCommands(t, text.String())
}

// compareJSON compares a text with the golden file, or writes the file.
func compareJSON(t *testing.T, text string) {
	t.Helper()
	const golden = "testdata/json.txt"
	if *updateJSON {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("the JSON differs from %s; if that is intended: go test ./cli -run JSON -update\n%s", golden, text)
	}
}

// requireAllCommands requires that the text has each command, apart from those without data of their own.
func requireAllCommands(t *testing.T, text string) {
	t.Helper()
	var cmds commands
	parser, err := kong.New(&cmds)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, leaf := range parser.Model.Leaves(false) {
		name := strings.TrimPrefix(leaf.FullPath(), parser.Model.Name+" ")
		switch name {
		case "serve", "chat", "export", "post", "work", "daemon": // they are no commands of an operator, or print a file
			continue
		}
		n++
		if !strings.Contains(text, "$ dohost "+name+" ") {
			t.Errorf("no JSON of the command %s", name)
		}
	}
	if n < 20 {
		t.Errorf("%d commands, want at least 20", n)
	}
}
