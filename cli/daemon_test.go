package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

// quickPool is a pool that notices the end of its workers soon.
var quickPool = &pool.Options{
	Heartbeat: 200 * time.Millisecond, TTL: time.Second, Sweep: 500 * time.Millisecond, Pending: 5 * time.Second, Acknowledged: 2 * time.Second,
	Lease: time.Second, Starting: 5 * time.Second, Stable: time.Second, RestartDelay: 50 * time.Millisecond, MaxRestarts: 1000, MaxAttempts: 1000,
	Progress: -1,
}

// readPID reads the output of a daemon until it has started a worker.
func readPID(t *testing.T, lines *bufio.Scanner) (pid int) {
	t.Helper()
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "dohost: the worker %d of the role upper has started", &pid); err == nil {
			return pid
		}
	}
	t.Fatal("the daemon has started no worker")
	return 0
}

// TestDaemonCommand posts a task for a role of a daemon, and kills the worker during another one. The command of the killed worker is killed
// too, before the next worker runs it again.
func TestDaemonCommand(t *testing.T) {
	_, s, client, self := servePool(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	output, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		defer w.Close()
		args := []string{"daemon", "--at", s.URL, "--pool", "build", "--role", "upper", "--", self}
		ended <- (App{}).run(ctx, args, stdio{strings.NewReader(""), w, w})
	}()
	post := func(text string) (task pool.Task) {
		t.Helper()
		for { // until the daemon has declared the role
			task, err := client.Post(t.Context(), pool.NewTask{Role: "upper", Text: text})
			if err == nil {
				return task
			}
			if !strings.Contains(err.Error(), "no role") {
				t.Fatal(err)
			}
		}
	}
	done := func(task pool.Task, want string) {
		t.Helper()
		var err error
		for task.Status != pool.StatusDone && task.Status != pool.StatusFailed {
			if task, err = client.Task(t.Context(), task.ID); err != nil {
				t.Fatal(err)
			}
		}
		if string(task.Result) != want {
			t.Errorf("the task %+v has the result %s, want %s", task, task.Result, want)
		}
	}
	lines := bufio.NewScanner(output)
	first := post("paint it")
	pid := readPID(t, lines)
	done(first, `"PAINT IT"`)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	second := post("once " + l.Addr().String())
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	worker, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil || n != 0 || errors.Is(err, os.ErrDeadlineExceeded) { // it ends with its process
		t.Errorf("a process of the command of the killed worker remains: %d bytes, %v", n, err)
	}
	if next := readPID(t, lines); next == pid {
		t.Errorf("the worker %d again", pid)
	}
	done(second, "2")
	go func() { _, _ = io.Copy(io.Discard, output) }()

	third := post("hang")
	for third.Status != pool.StatusRunning {
		if third, err = client.Task(t.Context(), third.ID); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // as Ctrl-C
	<-ended
	if task, err := client.Task(t.Context(), third.ID); err != nil || task.Status != pool.StatusPending || task.Attempts != 0 {
		t.Errorf("the task of the worker that has ended: %+v, %v", task, err)
	}
}

// TestDaemonPassesItsFlagsOn has a daemon whose role and name begin as flags do.
func TestDaemonPassesItsFlagsOn(t *testing.T) {
	h, s, client, self := servePool(t, nil)
	declare := dohost.NoResult((*pool.Pool).Declare)
	if _, err := dohost.Call(t.Context(), pool.Pools.Get(h, "build"), declare, pool.DeclareRequest{Role: "-x", Managed: true}); err != nil {
		t.Fatal(err)
	}
	task, err := client.Post(t.Context(), pool.NewTask{Role: "-x", Text: "paint it"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		args := []string{"daemon", "--at", s.URL, "--pool", "build", "--role=-x", "--name=--name", "--", self}
		ended <- (App{}).run(ctx, args, stdio{strings.NewReader(""), io.Discard, io.Discard})
	}()
	for task.Status != pool.StatusDone {
		if task, err = client.Task(ctx, task.ID); err != nil {
			t.Fatal(err)
		}
	}
	if string(task.Result) != `"PAINT IT"` {
		t.Errorf("%+v", task)
	}
	cancel()
	<-ended
}

// TestDaemonReportsAWorkerThatCannotStart has a worker whose program is no program.
func TestDaemonReportsAWorkerThatCannotStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(path, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	d := &daemon{command: []string{path}, std: stdio{strings.NewReader(""), &out, &out}}
	if err := d.run(t.Context(), pool.Process{Role: "upper"}); err == nil || !strings.Contains(out.String(), "no worker of the role upper can be started: ") {
		t.Errorf("%v, %q", err, out.String())
	}
}
