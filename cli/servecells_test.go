package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/cluster"
	"github.com/dohost/dohost/examples/counter"
	"github.com/dohost/dohost/sharedlog"
	"github.com/dohost/dohost/sharedlog/logtest"
)

// memoryCells are the cells of one node, in memory.
type memoryCells struct {
	memoryLog
	Number int `name:"cells" help:"Number of cells."`

	mu    sync.Mutex
	table cluster.Snapshot
	logs  [8]logtest.Log
}

func (m *memoryCells) OpenCells(context.Context, *slog.Logger) (*cluster.Options, error) {
	if m.Number == 0 {
		return nil, nil
	}
	return &cluster.Options{
		Table: m, TTL: time.Minute, Cells: m.Number, Secret: []byte("0123456789abcdef"),
		Log: func(_ context.Context, cell int) (sharedlog.Log, error) { return &m.logs[cell], nil },
	}, nil
}

func (m *memoryCells) Renew(_ context.Context, member cluster.Member) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.Members = []cluster.Member{member}
	return nil
}

func (m *memoryCells) Leave(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.Members = nil
	return nil
}

func (m *memoryCells) Read(context.Context) (cluster.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table, nil
}

func (m *memoryCells) Swap(_ context.Context, revision uint64, p cluster.Plan) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision != m.table.Revision {
		return 0, cluster.ErrConflict
	}
	m.table.Plan, m.table.Revision = p, revision+1
	return revision + 1, nil
}

func (m *memoryCells) Changed() <-chan struct{} { return nil }

// call sends a request until the node serves the object.
func call(t *testing.T, method, url string, want int, content string) string {
	t.Helper()
	for {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusServiceUnavailable {
			continue
		}
		if res.StatusCode != want {
			t.Errorf("%s: %d %s", url, res.StatusCode, body)
		}
		return string(body)
	}
}

// TestServeCells runs one node, with all cells.
func TestServeCells(t *testing.T) {
	const objects = 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cells := &memoryCells{}
	app := App{Classes: []dohost.Class{counter.Class()}, SharedLog: cells}
	r, w := io.Pipe()
	status := make(chan int, 1)
	var log bytes.Buffer // read after the end
	dir := t.TempDir()
	go func() {
		status <- app.Run(ctx, []string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cells", "3"}, strings.NewReader(""), w, &log)
		w.Close()
	}()
	addresses := map[string]string{}
	lines := bufio.NewScanner(r)
	for len(addresses) < 2 && lines.Scan() {
		kind, address, _ := strings.Cut(lines.Text(), " ")
		addresses[kind] = strings.TrimSpace(address)
	}
	if len(addresses) < 2 {
		t.Fatalf("serve has ended with status %d: %s", <-status, &log)
	}
	rest := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		rest <- string(b)
	}()
	for i := range objects {
		if got := call(t, http.MethodPost, fmt.Sprint(addresses["objects"], "/objects/counter/", i, "/add"), http.StatusOK, "1"); strings.TrimSpace(got) != "1" {
			t.Errorf("counter %d: %s", i, got)
		}
	}
	call(t, http.MethodGet, addresses["objects"]+"/", http.StatusOK, "")
	call(t, http.MethodGet, addresses["objects"]+"/nothing", http.StatusNotFound, "")
	call(t, http.MethodGet, addresses["admin"]+"/readyz", http.StatusOK, "")
	var s cluster.Status
	if err := json.Unmarshal([]byte(call(t, http.MethodGet, addresses["admin"]+"/cells", http.StatusOK, "")), &s); err != nil || len(s.Cells) != 3 || s.Node.Address != addresses["objects"] {
		t.Errorf("the status is %v, %v", s, err)
	}
	listed := 0
	for cell := range 3 {
		var out bytes.Buffer
		if status := app.Run(ctx, []string{"ls", "--admin", fmt.Sprint(addresses["admin"], "/cells/", cell)}, strings.NewReader(""), &out, &out); status != 0 {
			t.Errorf("dohost ls: %d %s", status, &out)
		}
		for i := range objects {
			if id := (dohost.ID{Class: "counter", Name: fmt.Sprint(i)}); strings.Contains(out.String(), id.String()) {
				listed++
				if got := cluster.CellOf(id, 3); got != cell {
					t.Errorf("%v is in cell %d, want %d", id, cell, got)
				}
			}
		}
	}
	if listed != objects {
		t.Errorf("%d objects are listed", listed)
	}
	own := cluster.CellOf(dohost.ID{Class: "counter", Name: "0"}, 3)
	export := call(t, http.MethodGet, fmt.Sprint(addresses["admin"], "/cells/", own, "/v1/objects/counter/0/export"), http.StatusOK, "")
	if got := call(t, http.MethodPost, fmt.Sprint(addresses["admin"], "/cells/", (own+1)%3, "/v1/objects/counter/0/import"), http.StatusMisdirectedRequest, export); !strings.Contains(got, "elsewhere") {
		t.Errorf("an import into another cell: %s", got)
	}
	cancel()
	if got := <-rest; got != "" {
		t.Errorf("the output is %q after the addresses, want nothing", got)
	}
	if got := <-status; got != 0 || len(cells.table.Members) != 0 {
		t.Errorf("exit status %d, members %v: %s", got, cells.table.Members, &log)
	}
	for i := range objects {
		id := dohost.ID{Class: "counter", Name: fmt.Sprint(i)}
		if want := fmt.Sprint("msg=request cell=", cluster.CellOf(id, 3), " "); !hasLine(log.String(), want, fmt.Sprint("/objects/counter/", i, "/add")) {
			t.Errorf("the request for %v is not logged with %s: %s", id, want, &log)
		}
	}
	if want := fmt.Sprint("msg=operator cell=", own, " "); !hasLine(log.String(), want, "/export") {
		t.Errorf("the export is not logged with %s: %s", want, &log)
	}
}

// hasLine reports whether a line of a text has all parts.
func hasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

func TestServeCellsRefusesFlags(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("a-token-of-this-test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ flags, want string }{
		{"--ship X", "want none of them"}, {"--shared-log X", "want none of them"}, {"--streams", "want none of them"},
		{"--listen 0.0.0.0:0 --token-file F --behind-proxy", "--advertise"}, {"--cells 2000", "cells: want 1 to"},
	} {
		var out bytes.Buffer
		args := []string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "off", "--cells", "3"}
		flags := strings.ReplaceAll(strings.ReplaceAll(tt.flags, " X", " "+t.TempDir()), " F", " "+tokens)
		status := App{SharedLog: &memoryCells{}}.Run(t.Context(), append(args, strings.Fields(flags)...), strings.NewReader(""), io.Discard, &out)
		if status != 1 || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: exit status %d: %s", tt.flags, status, &out)
		}
	}
}

// deadlineWriter is a response that stores the deadline of its request's body.
type deadlineWriter struct {
	http.ResponseWriter
	deadline time.Time
}

func (d *deadlineWriter) SetReadDeadline(at time.Time) error {
	d.deadline = at
	return nil
}

// TestBodyThatIsPassedOnHasDeadline is for a request to another node, whose body no handler of this one bounds.
func TestBodyThatIsPassedOnHasDeadline(t *testing.T) {
	o := (&server{}).routerOptions(&serveCmd{}, &access{}, 2, []dohost.Class{counter.Class()})
	w := &deadlineWriter{ResponseWriter: httptest.NewRecorder()}
	reached := false
	o.Bound(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("1")))
	if !reached || w.deadline.IsZero() {
		t.Errorf("the handler is reached: %t; the deadline is %v", reached, w.deadline)
	}
	id := dohost.ID{Class: "counter", Name: "0"}
	if cell, ok := o.Cell(httptest.NewRequest(http.MethodPost, "/objects/counter/0/add", nil)); !ok || cell != cluster.CellOf(id, 2) {
		t.Errorf("the cell is %d, %t", cell, ok)
	}
}
