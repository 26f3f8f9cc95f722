//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram is the environment variable that makes the test binary the program.
const asProgram = "BOOKING_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// office has the processes of a test.
type office struct {
	t   *testing.T
	ctx context.Context
	dir string
	at  string
	env []string

	last string // the latest messages
}

// start starts the program, and returns a function that ends it with SIGKILL.
func (o *office) start(stderr io.Writer, args ...string) (kill func()) {
	o.t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), o.env...)
	cmd.Stderr, cmd.WaitDelay = stderr, 100*time.Millisecond // the worker of a killed daemon holds its output open until it has left
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	o.t.Cleanup(kill)
	return kill
}

func (o *office) serve() (kill func()) {
	return o.start(os.Stderr, "serve", "--listen", o.at, "--admin", "127.0.0.1:0", "--data", filepath.Join(o.dir, "data"))
}

// until waits for a condition.
func (o *office) until(name string, holds func() bool) {
	o.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-o.ctx.Done():
			o.t.Fatalf("waited in vain: %s; bookings %q, messages %s", name, o.bookings(), o.last)
		case <-tick.C:
		}
	}
}

// messages returns the conversation as JSON; empty while there is no server.
func (o *office) messages() string {
	r, err := http.NewRequestWithContext(o.ctx, http.MethodGet, "http://"+o.at+"/agents/clerk/ada/get-messages", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // a server that ends has no messages
	o.last = string(text)
	return o.last
}

// bookings returns the lines of the log.
func (o *office) bookings() []string {
	log, err := os.ReadFile(filepath.Join(o.dir, "log"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(log)), "\n")
}

// TestKillOfWorkerAndServer kills the worker of a call, and then the server, while the script runs. The seat is booked once, and the answer
// arrives.
func TestKillOfWorkerAndServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, ctx: ctx, dir: t.TempDir(), at: l.Addr().String()}
	if err := l.Close(); err != nil { // the server listens there again after its end
		t.Fatal(err)
	}
	printed := filepath.Join(o.dir, "printed")
	o.env = []string{"BOOKINGS=" + filepath.Join(o.dir, "log"), "BOOK_PRINTED=" + printed}
	kill := o.serve()
	o.until("the server", func() bool { return o.messages() != "" })

	workers := make(chan int, 10)
	output, input := io.Pipe()
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var pid int
			if _, err := fmt.Sscanf(lines.Text(), "dohost: the worker %d of the role book has started", &pid); err == nil {
				workers <- pid
			}
		}
	}()
	o.start(input, "daemon", "--at", o.at, "--pool", "tools", "--role", "book", "--", "sh", "book.sh")
	o.start(os.Stderr, "chat", "--at", o.at, "--agent", "clerk/ada", "seat 12, please")
	o.until("the first attempt", func() bool { return len(o.bookings()) == 1 })
	if err := syscall.Kill(<-workers, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-workers: // the daemon has started another one
	case <-ctx.Done():
		t.Fatal("the daemon starts no worker")
	}
	kill()
	o.serve()
	if err := os.WriteFile(printed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.until("the answer", func() bool { return strings.Contains(o.messages(), `"text":"Booked: {\"seat\":12}. Attempt 2."`) })
	if log := o.bookings(); len(log) != 1 || !strings.HasSuffix(log[0], ` {"seat":12}`) {
		t.Errorf("bookings: %q", log)
	}
}
