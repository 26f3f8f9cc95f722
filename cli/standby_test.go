package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dohost/dohost"
)

// lines is the output of a command that runs, line by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l <- line
	}
	return len(p), nil
}

// until reads lines up to one with a part, and returns it.
func (l lines) until(t *testing.T, part string) string {
	t.Helper()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, part) {
				return line
			}
		case <-t.Context().Done():
			t.Fatalf("no line with %q", part)
		}
	}
}

// standbyProcess is a running dohost standby.
type standbyProcess struct {
	out, log lines
	admin    string
	ended    chan int
}

func startStandby(t *testing.T, ctx context.Context, folder, data string, flags ...string) *standbyProcess {
	t.Helper()
	p := &standbyProcess{make(lines, 1000), make(lines, 1000), "", make(chan int, 1)}
	go func() {
		args := append([]string{"standby", "--from", folder, "--data", data, "--admin", "127.0.0.1:0"}, flags...)
		p.ended <- App{Classes: []dohost.Class{tallyClass()}}.Run(ctx, args, strings.NewReader(""), p.out, p.log)
	}()
	p.admin = strings.TrimSpace(strings.TrimPrefix(p.out.until(t, "admin "), "admin"))
	return p
}

// TestStandbyCommand follows a folder that is empty at first, with the commands of an operator, and promotes.
func TestStandbyCommand(t *testing.T) {
	root := t.TempDir()
	data, folder, copied := filepath.Join(root, "data"), filepath.Join(root, "shipped"), filepath.Join(root, "standby")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(want int, part string, args ...string) {
		t.Helper()
		var out strings.Builder
		s := App{Classes: []dohost.Class{tallyClass()}}.Run(t.Context(), args, strings.NewReader(""), &out, &out)
		if s != want || !strings.Contains(out.String(), part) {
			t.Errorf("dohost %s: status %d, %q; want %d, %q", strings.Join(args, " "), s, &out, want, part)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	p := startStandby(t, ctx, folder, copied)
	p.log.until(t, "no complete base")
	run(0, "has no record yet; it lags by 0 records, for 0s\nit waits: the archive has no complete base yet", "standby", "--status", "--admin", p.admin)
	run(1, "the archive has no complete base yet", "promote", "--admin", p.admin)
	run(1, "locked by another host", "standby", "--from", folder, "--data", copied, "--admin", "off")
	run(1, "want folders that are not within each other", "standby", "--from", folder, "--data", filepath.Join(folder, "x"))
	run(1, "want --from and --data", "standby", "--from", folder)
	run(1, "want --from and --data", "standby", "--data", filepath.Join(root, "x"))
	run(1, "want --from and --data", "standby", "--from", folder, "--data", filepath.Join(root, "x"), "--json")
	run(1, "want host:port on loopback", "standby", "--from", folder, "--data", filepath.Join(root, "x"), "--admin", "0.0.0.0:0")
	shipCalls(t, data, folder, 3)
	p.log.until(t, "the standby continues")
	interrupt()
	if s := <-p.ended; s != 0 {
		t.Errorf("an interrupted standby has status %d", s)
	}
	run(1, "the directory is a standby that was not promoted", "serve", "--data", copied, "--listen", "127.0.0.1:0", "--admin", "off")
	run(0, "", "check", copied)
	shipCalls(t, data, folder, 5)
	p = startStandby(t, t.Context(), folder, copied)
	run(0, "tally/a", "ls", "--admin", p.admin)
	run(0, "durable  yes", "show", "tally/a", "--admin", p.admin)
	run(1, "it runs no object", "evict", "tally/a", "--admin", p.admin)
	run(1, "it runs no object", "backup", filepath.Join(root, "b"), "--admin", p.admin)
	wantStandbyMetrics(t, p.admin)
	run(0, "its process ends", "promote", "--admin", p.admin)
	if s := <-p.ended; s != 0 {
		t.Errorf("a promoted standby has status %d", s)
	}
	p.out.until(t, "promoted as of record ")
	run(1, "a store that is no standby", "standby", "--from", folder, "--data", copied, "--admin", "off")
	h, err := dohost.Open(copied, nil, tallyClass())
	if err != nil {
		t.Fatal(err)
	}
	n, err := dohost.Call(t.Context(), tallies.Get(h, "a"), (*tally).get, 0)
	if err = errors.Join(err, h.Close()); err != nil || n != 5 {
		t.Errorf("the promoted object has %d, %v", n, err)
	}
	run(1, "the archive is not of this store's history", "serve", "--data", copied, "--ship", folder, "--listen", "127.0.0.1:0", "--admin", "off")
}

// TestStandbyCommandGuardsItsListener has a token and a host name.
func TestStandbyCommandGuardsItsListener(t *testing.T) {
	root := t.TempDir()
	tokens, folder := filepath.Join(root, "tokens"), filepath.Join(root, "shipped")
	if err := os.WriteFile(tokens, []byte("secret-of-the-operators\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	p := startStandby(t, ctx, folder, filepath.Join(root, "standby"), "--admin-token-file", tokens, "--host", "ops.example")
	for _, c := range []struct {
		host, token string
		want        int
	}{
		{"", "", http.StatusUnauthorized},
		{"", "wrong", http.StatusUnauthorized},
		{"", "secret-of-the-operators", http.StatusOK},
		{"ops.example", "secret-of-the-operators", http.StatusOK},
		{"evil.example", "secret-of-the-operators", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.admin+"/v1/standby", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != c.want {
			t.Errorf("host %q, token %q: status %d, want %d; %v", c.host, c.token, res.StatusCode, c.want, err)
		}
	}
	interrupt()
	if s := <-p.ended; s != 0 {
		t.Errorf("an interrupted standby has status %d", s)
	}
}

func wantStandbyMetrics(t *testing.T, admin string) {
	t.Helper()
	res, err := http.Get(admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	for _, name := range []string{"record ", "archived_record ", "record_timestamp_seconds ", "lag_records ", "lag_seconds ", "waiting 0"} {
		if err != nil || !strings.Contains(string(text), "\ndohost_standby_"+name) {
			t.Errorf("no metric %q, %v", name, err)
		}
	}
}
