//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var rounds = flag.Int("rounds", 2, "questions of TestKillOfEitherProcess, each with a kill")

// asProgram is the environment variable that makes the test binary the program.
const asProgram = "PRINTER_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// api calls methods of the desk.
var api = executor{client: http.DefaultClient}

// shop is a server and an executor, each in a process of its own.
type shop struct {
	t                *testing.T
	ctx              context.Context
	dir, url         string
	server, executor *exec.Cmd
}

func newShop(t *testing.T) *shop {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	s := &shop{t: t, ctx: ctx, dir: t.TempDir()}
	t.Cleanup(func() {
		cancel()
		for _, p := range []*exec.Cmd{s.executor, s.server} {
			s.kill(p)
		}
	})
	s.startServer()
	return s
}

func (s *shop) program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// startServer starts the server, on the address of the last one.
func (s *shop) startServer() {
	s.t.Helper()
	listen := "127.0.0.1:0"
	if s.url != "" {
		listen = strings.TrimPrefix(s.url, "http://")
	}
	s.server = s.program("serve", "--data", filepath.Join(s.dir, "data"), "--listen", listen, "--admin", "127.0.0.1:0")
	out, err := s.server.StdoutPipe()
	if err == nil {
		err = s.server.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for s.url = ""; s.url == "" && lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "http://"); ok {
			s.url = "http://" + strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '/' })[0]
		}
	}
	if s.url == "" {
		s.t.Fatal("the server does not start")
	}
}

// startExecutor starts the executor, which waits between a print and its report.
func (s *shop) startExecutor(delay time.Duration) {
	s.t.Helper()
	s.executor = s.program("print", s.url, "front", s.book(), "--delay", delay.String())
	if err := s.executor.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) book() string { return filepath.Join(s.dir, "book") }

// kill kills a process with SIGKILL.
func (s *shop) kill(p *exec.Cmd) {
	if p == nil || p.Process == nil {
		return
	}
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()         // "signal: killed"
}

// printed returns the lines of the book.
func (s *shop) printed() (list []Job) {
	s.t.Helper()
	text, err := os.ReadFile(s.book())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var j Job
		if err := json.Unmarshal([]byte(line), &j); err != nil {
			s.t.Fatal(err)
		}
		list = append(list, j)
	}
	return list
}

// until calls do until it is true.
func (s *shop) until(what string, do func() bool) {
	s.t.Helper()
	for !do() {
		select {
		case <-s.ctx.Done():
			s.t.Fatalf("waited in vain for %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// call calls a method of the desk, until the server answers.
func (s *shop) call(method string, arg, result any) {
	s.t.Helper()
	s.until(method, func() bool { return api.post(s.ctx, s.url+"/objects/desk/front/"+method, arg, result) == nil })
}

// transcript returns the texts of the conversation; nil if the server does not answer.
func (s *shop) transcript() (texts []string) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url+"/agents/desk/front/get-messages", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	var list []struct{ Parts []struct{ Text string } }
	if data, err := io.ReadAll(res.Body); err != nil || json.Unmarshal(data, &list) != nil {
		return nil
	}
	for _, m := range list {
		text := ""
		for _, p := range m.Parts {
			text += p.Text
		}
		texts = append(texts, text)
	}
	return texts
}

// TestKillOfEitherProcess kills the executor between the print and its report, or the server, or both, in each round. Each call is
// printed once, and each answer has its page.
func TestKillOfEitherProcess(t *testing.T) {
	s := newShop(t)
	for i := range *rounds {
		text, killed := fmt.Sprintf("letter %d", i+1), i%3 != 1
		delay := 100 * time.Millisecond
		if killed {
			delay = time.Hour // it reports nothing before its end
		}
		s.startExecutor(delay)
		s.call("ask", Question{ID: text, Text: text}, new(string))
		s.until("the print", func() bool { return len(s.printed()) > i })
		if killed {
			s.kill(s.executor)
		}
		if i%3 != 0 {
			s.kill(s.server)
			s.startServer()
		}
		if killed {
			s.startExecutor(0)
		}
		want := fmt.Sprintf("It is on page %d.", i+1)
		s.until(want, func() bool { list := s.transcript(); return len(list) == 2*i+2 && list[2*i+1] == want })
		s.kill(s.executor)
	}
	for i, j := range s.printed() {
		if want := fmt.Sprintf("letter %d", i+1); j.Text != want {
			t.Errorf("page %d has %q, want %q", i+1, j.Text, want)
		}
	}
	if n := len(s.printed()); n != *rounds {
		t.Errorf("%d pages for %d rounds", n, *rounds)
	}
	t.Logf("%d rounds", *rounds)
}

// TestRowOfClientIsReplaced has a client with a mirror of the jobs. It inserts a row into its mirror, and adds the job with the id of the row, more
// than once. The row of the desk replaces that of the client, and the job is printed once, although the executor is killed.
func TestRowOfClientIsReplaced(t *testing.T) {
	s := newShop(t)
	mirror := map[string]Job{"mine": {ID: "mine", Text: "a card", State: "optimistic"}}
	var states []string
	s.startExecutor(time.Hour)
	add := func() (j Job) {
		s.call("add", Job{ID: "mine", Text: "a card"}, &j)
		return j
	}
	add()
	add() // the client has got no answer
	s.until("the print", func() bool { return len(s.printed()) > 0 })
	s.kill(s.executor)
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url+"/agents/desk/front/jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	done := errors.New("the job is done")
	err = eachEvent(res.Body, func(event, data string) error {
		var row struct {
			Key   string
			Value Job
		}
		if event != "enter" && event != "update" {
			return nil
		}
		if err := json.Unmarshal([]byte(data), &row); err != nil {
			return err
		}
		mirror[row.Key] = row.Value
		states = append(states, row.Value.State)
		if row.Value.State == "done" {
			return done
		}
		s.startExecutor(0)
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
	if j := add(); j != mirror["mine"] { // after the end of the job
		t.Errorf("another add returns %+v, and the mirror has %+v", j, mirror["mine"])
	}
	if len(mirror) != 1 || mirror["mine"].Result != "on page 1" || strings.Join(states, " ") != "open done" {
		t.Errorf("the mirror has %+v, after the states %q", mirror, states)
	}
	if list := s.printed(); len(list) != 1 || list[0].ID != "mine" {
		t.Errorf("the book has %+v", list)
	}
}

// TestUploadThatIsCutOff cuts off the connection of a report in the middle of its body: the report has no effect, and a whole one has.
func TestUploadThatIsCutOff(t *testing.T) {
	s := newShop(t)
	s.call("add", Job{ID: "mine", Text: "a card"}, new(Job))
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"id": "mine", "output": "cut"}` // all of the JSON, and not all of the bytes
	_, err = fmt.Fprintf(c, "POST /objects/desk/front/report HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body)
	if err = errors.Join(err, c.(*net.TCPConn).CloseWrite()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // until the server has ended the request
		t.Fatal(err)
	}
	_ = c.Close() // the server has closed it
	var j Job
	if s.call("add", Job{ID: "mine", Text: "a card"}, &j); j.State != "open" {
		t.Errorf("after the cut report the job is %+v", j)
	}
	if s.call("report", Result{ID: "mine", Output: "whole"}, &j); j.State != "done" || j.Result != "whole" {
		t.Errorf("after the whole report the job is %+v", j)
	}
}
