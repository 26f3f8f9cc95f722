package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
	"github.com/dohost/dohost/web"
)

// taskCommand is the variable that makes the test binary a command of a worker.
const taskCommand = "DOHOST_TEST_TASK_COMMAND"

// runTaskCommand is the command, which acts by the text of the task. It returns the exit status.
func runTaskCommand() int {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 3
	}
	switch task := string(text); {
	case task == "attempt":
		fmt.Print(os.Getenv("DOHOST_ATTEMPT"))
	case strings.HasPrefix(task, "once "): // the first attempt hangs, with a process that has a connection to the test
		if os.Getenv("DOHOST_ATTEMPT") == "1" {
			if cmd, err := startHolder(strings.TrimPrefix(task, "once ")); err != nil || cmd.Wait() != nil {
				return 4
			}
		}
		fmt.Print(os.Getenv("DOHOST_ATTEMPT"))
	case strings.HasPrefix(task, "hold "): // the command itself has the connection
		hold(strings.TrimPrefix(task, "hold "))
	case strings.HasPrefix(task, "leave "): // it leaves such a process
		if _, err := startHolder(strings.TrimPrefix(task, "leave ")); err != nil {
			return 4
		}
		fmt.Print("left it")
	case task == "fail":
		fmt.Fprintf(os.Stderr, "no paper in attempt %s\n", os.Getenv("DOHOST_ATTEMPT"))
		return 1
	case strings.HasPrefix(task, "status "):
		status, err := strconv.Atoi(strings.TrimPrefix(task, "status "))
		if err != nil {
			return 5
		}
		return status
	case task == "json":
		fmt.Printf("{\"key\": %q}\n", os.Getenv("DOHOST_KEY"))
	case task == "long":
		fmt.Print(strings.Repeat("a", maxOutput+1))
	case task == "hang":
		fmt.Fprintln(os.Stderr, "hanging")
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		<-ended
	default:
		fmt.Print(strings.ToUpper(task))
	}
	return 0
}

// holdEnv is the variable that makes the test binary a process that holds its output, and a connection to the address in the variable.
const holdEnv = "DOHOST_TEST_HOLD"

// startHolder starts such a process.
func startHolder(addr string) (*exec.Cmd, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+addr)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, cmd.Start()
}

// hold is the process.
func hold(addr string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		os.Exit(5)
	}
	_, _ = conn.Read(make([]byte, 1)) // until the test ends it, or the process
}

// servePool serves pools of a host in this process, and makes commands of the test binary, which is self. client is one of the pool "build".
func servePool(t *testing.T, o *pool.Options) (h *dohost.Host, s *httptest.Server, client *pool.Client, self string) {
	t.Helper()
	t.Setenv(taskCommand, "1")
	h, err := dohost.Open(t.TempDir(), nil, pool.Class(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	s = httptest.NewServer(web.Handler(h, &web.Options{Classes: []string{string(pool.Pools)}}))
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections) // of pool.Client
	if self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return h, s, &pool.Client{URL: s.URL + "/objects/pool/build"}, self
}

// TestWorkCommand posts tasks by dohost post, and works on them by dohost work.
func TestWorkCommand(t *testing.T) {
	h, s, client, self := servePool(t, &pool.Options{MaxAttempts: 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run := func(ctx context.Context, args ...string) (int, string) {
		var out strings.Builder
		status := (App{}).run(ctx, append(args, "--at", s.URL, "--pool", "build"), stdio{strings.NewReader(""), &out, &out})
		return status, out.String()
	}
	worker := make(chan string, 1)
	started := make(chan struct{})
	go func() {
		var out strings.Builder
		close(started)
		status := (App{}).run(ctx, []string{"work", "--at", s.URL, "--pool", "build", "--role", "upper", "--", self}, stdio{strings.NewReader(""), &out, &out})
		worker <- fmt.Sprint(status, " ", out.String())
	}()
	<-started
	post := func(text string, more ...string) (int, string) {
		t.Helper()
		for {
			status, out := run(t.Context(), append([]string{"post", "--role", "upper", "--wait", text}, more...)...)
			if status == 0 || !strings.Contains(out, "no role") { // the worker has not joined yet
				return status, out
			}
		}
	}
	for _, c := range []struct {
		text, key string
		status    int
		want      string
	}{
		{"paint it", "", 0, `"PAINT IT"`},
		{"clear \u009b2J it", "", 0, `"CLEAR \u009b2J IT"`},   // not as the terminal's control character
		{strings.Repeat("<", 60_000), "", 0, `"\u003c\u003c`}, // it has the length of the command's output for the pool
		{"json", "k1", 0, `{"key":"k1"}`},
		{"json", "k1", 0, `{"key":"k1"}`},
		{"fail", "", 1, "no paper in attempt 2"},
		{"long", "", 1, "more than 65536 bytes"},
	} {
		status, out := post(c.text, "--key", c.key)
		if compact := strings.ReplaceAll(out, ": ", ":"); status != c.status || !strings.Contains(compact, strings.ReplaceAll(c.want, ": ", ":")) {
			t.Errorf("post %.40q: status %d, %.200s; want %d, %s", c.text, status, out, c.status, c.want)
		}
	}
	status, id := run(t.Context(), "post", "--role", "upper", "hang")
	if status != 0 {
		t.Fatal(id)
	}
	var task pool.Task
	var err error
	for task.Progress != "hanging" && task.Status != pool.StatusRunning { // progress is passed on with the next renewal
		if task, err = client.Task(t.Context(), strings.TrimSpace(id)); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // as Ctrl-C
	if got := <-worker; !strings.HasPrefix(got, "1 ") && !strings.HasPrefix(got, "130 ") {
		t.Errorf("the worker ended with %s", got)
	}
	if task, err = client.Task(t.Context(), task.ID); err != nil || task.Status != pool.StatusPending || task.Attempts != 0 {
		t.Errorf("the task of the worker that has ended: %+v, %v", task, err)
	}
	workers, err := dohost.Call(t.Context(), pool.Pools.Get(h, "build"), (*pool.Pool).Workers, pool.ListQuery{Role: "upper"})
	if text, _ := json.Marshal(workers); err != nil || strings.Contains(string(text), `"upper"`) {
		t.Errorf("workers after the end: %s, %v", text, err)
	}
}

func TestPoolCommandsRefuse(t *testing.T) {
	for want, args := range map[string][]string{
		"--pool":              {"work", "--role", "r", "--", "true"},
		"--role":              {"work", "--pool", "p", "--", "true"},
		"not found":           {"work", "--pool", "p", "--role", "r", "--", "no-such-program-here"},
		"--token-file":        {"post", "--pool", "p", "--role", "r", "--token-file", "/no/such/file", "x"},
		"--at, or DOHOST_AT,": {"post", "--pool", "p", "--role", "r", "--at", "", "x"},
		`role is "a b"`:       {"work", "--pool", "p", "--role", "a b", "--", "true"},
		`role is "\x1b[31m"`:  {"daemon", "--pool", "p", "--role", "\x1b[31m", "--", "true"},
		`role is "a\tb"`:      {"post", "--pool", "p", "--role", "a\tb", "--key", "k", "x"},
		"http or https":       {"work", "--at", "ftp://host", "--pool", "p", "--role", "r", "--", "true"},
		"no host answers at ": {"post", "--pool", "p", "--role", "r", "--at", "127.0.0.1:1", "x"},
		"has 2000 bytes":      {"post", "--pool", strings.Repeat("p", 2000), "--role", "r", "x"},
	} {
		var out strings.Builder
		if status := (App{}).run(t.Context(), args, stdio{strings.NewReader(""), &out, &out}); status == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%q: status %d, %s; want %q", args, status, out.String(), want)
		}
	}
}
