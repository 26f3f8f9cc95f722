//go:build e2e

package e2e

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// killable is a process that is started again after each end.
type killable struct {
	t    *testing.T
	args []string
	// ready is the beginning of the line that the process prints when it can be used; empty: it prints none.
	ready string
	cmd   *exec.Cmd
}

func (p *killable) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stderr = io.Discard // errors of requests to the process that was killed
	if p.ready == "" {
		p.cmd.Stdout = io.Discard
	}
	out, err := p.output()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if p.ready == "" {
		return
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), p.ready) {
			go func() { _, _ = io.Copy(io.Discard, out) }() // until the process ends
			return
		}
	}
	p.t.Fatalf("%s has ended", p.args)
}

func (p *killable) output() (io.Reader, error) {
	if p.ready == "" {
		return nil, nil
	}
	return p.cmd.StdoutPipe()
}

// kill ends the process as SIGKILL does.
func (p *killable) kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // the error is the signal
	}
}

// freeAddress returns an address of the loopback interface that no process uses.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func build(t *testing.T, program string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), filepath.Base(program))
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "e2e", "-o", bin, program).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// killFor is the least time of the kills of a consumer and its server. The default is a share for each run of the checks.
var killFor = flag.Duration("kill-for", 0, "kill the processes of the consumers of streams for at least this time")

// ticketTest is the example tickets, and a server of streams in another process.
type ticketTest struct {
	t               *testing.T
	root            string // of the streams
	hook            string // address of the tickets
	server, tickets *killable
	proxy           *ackProxy // between them
}

// newTicketTest returns a test with a server at an address. tickets returns the arguments of the tickets for the root of the streams.
func newTicketTest(t *testing.T, at string, server *killable, tickets ...string) *ticketTest {
	c := &ticketTest{t: t, root: "http://" + at + "/v1/stream", hook: freeAddress(t), server: server, proxy: newAckProxy(at)}
	proxy := httptest.NewServer(c.proxy)
	t.Cleanup(proxy.Close)
	t.Cleanup(proxy.CloseClientConnections) // of long polls
	args := append(tickets, "-addr", c.hook, "-data", filepath.Join(t.TempDir(), "tickets"), proxy.URL+"/v1/stream")
	c.tickets = &killable{t: t, args: args}
	return c
}

// ask sends a request until it has a response of a status below 500, since the process may be killed at any time.
func (c *ticketTest) ask(method, url, body string, header ...string) (int, string) {
	c.t.Helper()
	for range 200 {
		r, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for _, field := range header {
			name, value, _ := strings.Cut(field, ": ")
			r.Header.Set(name, value)
		}
		w, err := http.DefaultClient.Do(r)
		if err == nil {
			text, err := io.ReadAll(w.Body)
			if _ = w.Body.Close(); err == nil && w.StatusCode < 500 {
				return w.StatusCode, string(text)
			}
		}
		pause(c.t)
	}
	c.t.Fatalf("%s %s has no response", method, url)
	return 0, ""
}

// pause waits for another process.
func pause(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(50 * time.Millisecond):
	}
}

// until repeats a request until its response has a text. After many kills the retries of a consumer are up to a minute apart.
func (c *ticketTest) until(url, want string) {
	c.t.Helper()
	got := ""
	for range 2400 {
		if _, got = c.ask("GET", url, ""); strings.Contains(got, want) {
			return
		}
		pause(c.t)
	}
	c.t.Fatalf("%s: %s, want %s", url, got, want)
}

// run appends messages, and kills one of the processes at random after every fifth one. Each ticket has its messages once and in order, and the answer
// to each. Acknowledgements do not go backward, and the server refuses those of ended wakes. Answers are compared exactly if the server
// keeps its producers.
func (c *ticketTest) run(exactAnswers bool) {
	const least, names = 90, 3
	t := c.t
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(c.server.kill)
	t.Cleanup(c.tickets.kill)
	c.server.start()
	for n := range names {
		if status, text := c.ask("PUT", fmt.Sprint(c.root, "/tickets/", n), ""); status > 299 {
			t.Fatalf("%d %s", status, text)
		}
	}
	c.tickets.start()
	subscription := c.root + "/__ds/subscriptions/tickets"
	c.until(subscription, "tickets")
	kills := [2]int{}
	message := func(i int) {
		status, text := c.ask("POST", fmt.Sprint(c.root, "/tickets/", i%names), fmt.Sprintf("%d", i),
			"Producer-Id: p", "Producer-Epoch: 0", fmt.Sprint("Producer-Seq: ", i/names))
		if status > 299 {
			t.Fatalf("message %d: %d %s", i, status, text)
		}
	}
	messages := 0
	for begin := time.Now(); messages < least || time.Since(begin) < *killFor; messages++ {
		i := messages
		if i%5 == 4 {
			side := random.IntN(2)
			p := []*killable{c.server, c.tickets}[side]
			killed := make(chan struct{})
			go func() { p.kill(); close(killed) }()
			if side == 1 {
				message(i)
			}
			<-killed
			kills[side]++
			p.start()
			if side == 0 {
				message(i)
			}
			continue
		}
		message(i)
		for range random.IntN(8) {
			pause(t)
		}
	}
	c.until(subscription, "tickets") // a subscription that is created again begins at the tails
	for n := range names {
		message(messages + n)
	}
	for n := range names {
		want, answers := "", []string{}
		for i := n; i < messages+names; i += names {
			want += fmt.Sprintf("%d %d true\n", i/names+1, i)
			answers = append(answers, fmt.Sprintf(`"about %d: we are on it"`, i))
		}
		c.until(fmt.Sprintf("http://%s/tickets/%d", c.hook, n), want) // an answer to an early message may be late, after failed attempts
		if _, got := c.ask("GET", fmt.Sprintf("http://%s/tickets/%d", c.hook, n), ""); got != want {
			t.Errorf("ticket %d has\n%s\nwant\n%s", n, got, want)
		}
		_, got := c.ask("GET", fmt.Sprint(c.root, "/answers/", n), "")
		for _, answer := range answers {
			if k := strings.Count(got, answer); k == 0 || exactAnswers && k != 1 {
				t.Errorf("%d times the answer %s", k, answer)
			}
		}
	}
	c.proxy.check(t)
	t.Logf("%d messages, %d kills of the server, %d of the tickets", messages+names, kills[0], kills[1])
	if kills[0] == 0 || kills[1] == 0 {
		t.Error("one of the processes was not killed")
	}
}

// TestConsumerSurvivesSIGKILL has the server of this repository: by a webhook, and by a stream of wakes.
func TestConsumerSurvivesSIGKILL(t *testing.T) {
	t.Parallel() // with the tests below: they wait for leases
	server, tickets := build(t, "../cmd/dohost"), build(t, "../examples/tickets")
	for _, mode := range []string{"-pull=false", "-pull=true"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			at := freeAddress(t)
			args := []string{server, "serve", "--streams", "--local-webhooks", "--listen", at, "--admin", "off",
				"--data", filepath.Join(t.TempDir(), "streams"), "--new-objects=-1", "--log", "off"}
			newTicketTest(t, at, &killable{t: t, ready: "http://", args: args}, tickets, mode).run(true)
		})
	}
}

// TestConsumerOfReferenceServerSurvivesSIGKILL has the published reference server, with streams in files.
func TestConsumerOfReferenceServerSurvivesSIGKILL(t *testing.T) {
	install(t)
	t.Parallel()
	at := freeAddress(t)
	_, port, _ := strings.Cut(at, ":")
	data := filepath.Join(t.TempDir(), "streams")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	server := &killable{t: t, ready: "listening", args: []string{tool(t, "node"), "js/streams/reference.mjs", port, data}}
	newTicketTest(t, at, server, build(t, "../examples/tickets")).run(false)
}
