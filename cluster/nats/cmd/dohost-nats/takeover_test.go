//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster/nats/internal/natstest"
)

// programEnv makes the test binary a program.
const programEnv = "DOHOST_NATS_TEST"

const builtin = "builtin"

var programs = map[string]func(){builtin: main, "tally": tallyProgram, "hall": hallProgram}

func TestMain(m *testing.M) {
	natstest.Serve()
	if program := programs[os.Getenv(programEnv)]; program != nil {
		program()
		return
	}
	if err := flag.Set("test.parallel", "4"); err != nil { // the tests wait, and use little of the processors
		panic(err)
	}
	os.Exit(m.Run())
}

// node is a process of the program.
type node struct {
	t       *testing.T
	cmd     *exec.Cmd
	objects chan string // the address, once the node listens
	admins  chan string // the address of the admin listener
	errors  output

	at, admin, data string // the same addresses, and the directory, of a node with cells
}

// output is the output of a process so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the output.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns the output.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// serve starts the program with the built-in classes.
func serve(t *testing.T, s *natstest.Servers, args ...string) *node {
	t.Helper()
	args = append([]string{"--data", t.TempDir(), "--admin", "off", "--cluster-lease", "10s"}, args...) // long, for a busy machine
	return start(t, s, builtin, args...)
}

func start(t *testing.T, s *natstest.Servers, program string, args ...string) *node {
	t.Helper()
	return launch(t, program, append([]string{"--cluster", s.URL("app"), "--cluster-system", s.URL("system")}, args...)...)
}

// launch starts the program with the servers that its arguments name.
func launch(t *testing.T, program string, args ...string) *node {
	t.Helper()
	args = append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	n := &node{t: t, cmd: exec.Command(os.Args[0], args...), objects: make(chan string, 1), admins: make(chan string, 1)}
	n.cmd.Env, n.cmd.Stderr = append(os.Environ(), programEnv+"="+program), &n.errors
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = n.cmd.Process.Kill() // it has ended, or the test has
		_ = n.cmd.Wait()
		if t.Failed() {
			t.Logf("%s, process %d:\n%s", program, n.cmd.Process.Pid, &n.errors)
		}
	})
	go func() {
		defer close(n.objects)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if address, found := strings.CutPrefix(lines.Text(), "objects "); found {
				n.objects <- strings.TrimSpace(address)
			}
			if address, found := strings.CutPrefix(lines.Text(), "admin "); found {
				n.admins <- strings.TrimSpace(address)
			}
		}
	}()
	return n
}

// address waits until the node listens: a node without cells listens once it is the owner.
func (n *node) address() string {
	n.t.Helper()
	address, started := <-n.objects
	if !started {
		n.t.Fatalf("the node has ended: %v\n%s", n.cmd.Wait(), &n.errors)
	}
	return address
}

// add adds to a counter. ran is false if the counter certainly has not changed.
func add(t *testing.T, address, name string, delta int) (total int, ran bool, err error) {
	ran, err = call(t.Context(), http.DefaultClient, address+"/objects/counter/"+name+"/add", delta, &total)
	return total, ran, err
}

// call calls a method. ran is false if it certainly has not run.
func call(ctx context.Context, c *http.Client, url string, in, out any) (ran bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	res, err := c.Do(req)
	if err != nil {
		failed, ok := errors.AsType[*net.OpError](err)
		return !ok || failed.Op != "dial", err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		return true, json.NewDecoder(res.Body).Decode(out)
	}
	r := &refusal{status: res.StatusCode, retryAfter: res.Header.Get("Retry-After")}
	err = json.NewDecoder(res.Body).Decode(r)
	return r.Ran != "no", errors.Join(err, r)
}

// refusal is an answer with another status than 200.
type refusal struct {
	status       int
	retryAfter   string // the header
	Ran, Message string
}

// Error returns the status and the message.
func (r *refusal) Error() string { return fmt.Sprintf("status %d: %s", r.status, r.Message) }

// isUnavailable reports whether an error is an answer with the status 503. Then it returns an error if the answer has no number of seconds
// in Retry-After.
func isUnavailable(err error) (unavailable bool, fault error) {
	r, ok := errors.AsType[*refusal](err)
	if !ok || r.status != http.StatusServiceUnavailable {
		return false, nil
	}
	if seconds, err := strconv.Atoi(r.retryAfter); err != nil || seconds < 1 {
		return true, fmt.Errorf("%w; Retry-After is %q", r, r.retryAfter)
	}
	return true, nil
}

const counters = 4

// load adds until a request fails, with a client for each counter. It returns the increments that were acknowledged, and those
// without an outcome.
func load(t *testing.T, address string, enough int, then func()) (acknowledged, unknown [counters]int) {
	var clients sync.WaitGroup
	left := make(chan struct{}, enough)
	for i := range counters {
		clients.Go(func() {
			for {
				_, ran, err := add(t, address, fmt.Sprint(i), 1)
				if err != nil {
					if ran {
						unknown[i]++
					}
					return
				}
				acknowledged[i]++
				select {
				case left <- struct{}{}:
				default:
				}
			}
		})
	}
	go func() {
		clients.Wait()
		close(left) // if all clients have failed early
	}()
	for range enough {
		<-left
	}
	then()
	clients.Wait()
	return acknowledged, unknown
}

// TestStandbyContinuesTheObjectsOfAKilledNode kills the owner among its clients. The standby has every acknowledged increment. Then a
// node with an empty directory replaces the standby, which ends in good order.
func TestStandbyContinuesTheObjectsOfAKilledNode(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 3, "always")
	owner := serve(t, s)
	address := owner.address()
	standby := serve(t, s)
	begun := time.Time{}
	acknowledged, unknown := load(t, address, 200, func() {
		begun = time.Now()
		if err := owner.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	address = standby.address()
	var totals [counters]int
	check := func(address string) {
		t.Helper()
		for i := range counters {
			n, _, err := add(t, address, fmt.Sprint(i), 0)
			if err != nil || n < acknowledged[i] || n > acknowledged[i]+unknown[i] {
				t.Errorf("counter %d is %d, want %d, or up to %d more: %v", i, n, acknowledged[i], unknown[i], err)
			}
			totals[i] = n
		}
	}
	check(address)
	t.Logf("the standby had answered %v after the kill", time.Since(begun).Round(time.Millisecond))
	acknowledged, unknown = totals, [counters]int{}

	third := serve(t, s)
	if _, _, err := add(t, address, "0", 5); err != nil {
		t.Error(err)
	}
	acknowledged[0] += 5
	begun = time.Now()
	if err := standby.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	check(third.address())
	t.Logf("the third node had answered %v after the signal", time.Since(begun).Round(time.Millisecond))
	if err := standby.cmd.Wait(); err != nil {
		t.Errorf("the standby has ended with %v:\n%s", err, &standby.errors)
	}
}

func TestFlagsWithoutTheSystemAccount(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, 1, "always")
	n := serve(t, s, "--cluster-system", "")
	if _, started := <-n.objects; started {
		t.Error("the node has started")
	}
	if err := n.cmd.Wait(); err == nil || !strings.Contains(n.errors.String(), "--unsafe-sync") {
		t.Errorf("the node has ended with %v: %s", err, &n.errors)
	}
}
