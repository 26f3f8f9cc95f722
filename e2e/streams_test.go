//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// streamServer is the command serve --streams of a program.
type streamServer struct {
	t         *testing.T
	bin, data string
	flags     []string
	at        string // host:port, the same for each process
	cmd       *exec.Cmd
	before    string // URL that gets a request before each conformance test; empty: none
}

func startStreams(t *testing.T, program string, flags ...string) *streamServer {
	t.Helper()
	install(t)
	s := &streamServer{t: t, bin: build(t, program), flags: flags}
	s.begin()
	return s
}

// begin starts the first process.
func (s *streamServer) begin() {
	s.t.Helper()
	s.data, s.at = filepath.Join(s.t.TempDir(), "data"), "127.0.0.1:0"
	s.t.Cleanup(func() { s.kill() })
	s.start()
}

func (s *streamServer) start() {
	s.t.Helper()
	args := []string{
		"serve", "--streams", "--local-webhooks", "--cors", "--listen", s.at, "--admin", "off", "--data", s.data,
		"--new-objects=-1", "--log", "off", "--idle", idleAfter.String(),
	}
	s.cmd = exec.Command(s.bin, append(args, s.flags...)...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	_, s.at, _ = strings.Cut(strings.TrimSpace(line), "http://")
}

// kill ends the process as SIGKILL does.
func (s *streamServer) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()         // the error is the signal
}

// conforming is the number of conformance tests that pass, which docs/streams.md has too.
const conforming = 259

// Groups of the conformance tests: the beginnings of their names, and their numbers.
const (
	// forks are the tests of forks: see TestStreamsRefuseForks.
	forks, refusedForks, forksThatPass = "Fork", 79, 3
	// timed are the tests that expect an effect within a second or two, or none for as long.
	timed, timedTests = "TTL Expiration Behavior|Reserved subscription APIs", 20
	// live are about half of the other tests, in time.
	live, liveTests = "SSE Mode|Stream Closure|Long-Poll|Property-Based|Offset Validation", 109
	others          = conforming - forksThatPass - timedTests - liveTests
	// concurrent are the tests of live that have several writers of one stream: the end of an incarnation cuts off the requests that wait.
	concurrent, concurrentTests = "Property-Based Tests .fast-check. Concurrent Writer", 4
)

func named(beginnings string) string { return "^(" + beginnings + ")" }

func notNamed(beginnings ...string) string { return "^(?!" + strings.Join(beginnings, "|") + ")" }

// evictions returns the flags of a server whose incarnations end with a chance at each place that cuts off no request but those that wait.
func evictions(t *testing.T, chance string) []string {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return []string{"--chaos-evict", chance, "--chaos-seed", fmt.Sprint(seed), "--chaos-at", "construct,alarm,outcome,committed,sync,durable,release"}
}

// TestStreamsConform runs the published conformance tests: alone, while incarnations of the objects end, and with a SIGKILL of the server
// before each test. All pass; those of forks do not run, and those with concurrent writers do not while incarnations end.
//
// Each end of an incarnation delays a request or a wake, so fewer of them end during the timed tests. A timed test, and a test while
// incarnations end, may try again, also since the machine is busy.
func TestStreamsConform(t *testing.T) {
	install(t)
	t.Parallel() // each test waits for most of its time
	bin := build(t, "../cmd/dohost")
	for _, c := range []struct {
		kind, group, tests string
		want               int
		evict              string // the chance at each place
		kills              bool
	}{
		{"alone", "others", notNamed(forks, timed), liveTests + others, "", false},
		{"alone", "timed", named(timed), timedTests, "", false},
		{"evictions", "others", notNamed(forks, timed, concurrent), liveTests + others - concurrentTests, "0.2", false},
		{"evictions", "timed", named(timed), timedTests, "0.02", false},
		{"kills", "live", named(live), liveTests, "", true},
		{"kills", "others", notNamed(forks, timed, live), others, "", true},
		{"kills", "timed", named(timed), timedTests, "", true},
	} {
		t.Run(c.kind+"/"+c.group, func(t *testing.T) {
			t.Parallel()
			s := &streamServer{t: t, bin: bin}
			if c.evict != "" {
				s.flags = evictions(t, c.evict)
			}
			s.begin()
			if c.kills {
				defer s.killOnRequest(c.want)()
			}
			s.conform(c.tests, c.want, c.group == "timed" || c.evict != "")
		})
	}
}

// killOnRequest has the conformance tests kill the server before each of them. No two of them run at a time then. end checks the number of
// kills.
func (s *streamServer) killOnRequest(want int) (end func()) {
	kills := 0
	killer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		kills++
		s.kill()
		s.start() // a failure ends this goroutine, and the test that waits for it
	}))
	s.before = killer.URL
	return func() {
		killer.Close()
		if kills < want {
			s.t.Errorf("%d kills, want %d", kills, want)
		}
	}
}

// conform runs the published conformance tests with matching names. All pass, and there are as many as wanted. retry lets tests try again.
func (s *streamServer) conform(names string, want int, retry bool) {
	s.t.Helper()
	var flags []string
	if retry {
		flags = []string{"--retry", "3"}
	}
	passed := 0
	for _, r := range runConformance(s.t, "http://"+s.at, s.before, names, flags...) {
		if r.Status == "passed" {
			passed++
		} else {
			s.t.Errorf("%s: %s: %.500s", strings.Join(r.AncestorTitles, ", "), r.Title, strings.Join(r.FailureMessages, "\n"))
		}
	}
	s.t.Logf("%d passed", passed)
	if passed != want {
		s.t.Errorf("%d passed, want %d", passed, want)
	}
}

// conformanceTest is the result of a conformance test.
type conformanceTest struct {
	AncestorTitles  []string
	Title, Status   string
	FailureMessages []string
}

// runConformance runs the published conformance tests with matching names, with further flags of vitest, against the server at a URL, and
// returns their results. If before is a URL, it gets a request before each test, and no two tests run at a time.
func runConformance(t *testing.T, server, before, names string, flags ...string) (ran []conformanceTest) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "vitest"), "run", "--root", ".", "--testNamePattern", names,
		"--testTimeout", "60000", "--reporter", "json", "--outputFile", report)
	if before != "" {
		cmd.Args = append(cmd.Args, "--maxConcurrency", "1")
	}
	cmd.Args = append(append(cmd.Args, flags...), "js/streams/conformance.test.mjs")
	cmd.Env = append(os.Environ(), "STREAMS="+server, "BEFORE="+before)
	out, runErr := cmd.CombinedOutput() // an error since tests fail
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v, %v\n%s", runErr, err, out)
	}
	var results struct {
		TestResults []struct{ AssertionResults []conformanceTest }
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	for _, file := range results.TestResults {
		for _, r := range file.AssertionResults {
			if r.Status == "passed" || r.Status == "failed" {
				ran = append(ran, r)
			}
		}
	}
	return ran
}

// killDuring runs a program of a published client, and kills the server after every tenth line with a prefix. It returns the other lines
// with the prefix read.
func (s *streamServer) killDuring(kills int, prefix string, args ...string) (read []string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), tool(s.t, "node"), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var failure strings.Builder
	cmd.Stderr = &failure
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	killed := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if of, ok := strings.CutPrefix(line, "read "); ok {
			read = append(read, of)
		}
		if killed < kills && line == fmt.Sprint(prefix, " ", 10*(killed+1)) {
			killed++
			s.kill() // during the next write, or before it
			s.start()
		}
	}
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("the client: %v\n%s", err, failure.String())
	}
	if killed != kills {
		s.t.Errorf("%d kills, want %d", killed, kills)
	}
	return read
}

// TestStreamsPublishedClient has the published client append and read while the server is killed. Each reader gets each message once.
func TestStreamsPublishedClient(t *testing.T) {
	s := startStreams(t, "../cmd/dohost")
	if read := s.killDuring(5, "appended", "js/streams/client.mjs", "http://"+s.at+"/v1/stream/a/b", "60"); len(read) != 3 {
		t.Errorf("read %q", read)
	}
}

// TestStreamDBFollowsRows has two published StreamDBs follow the rows of an object while the server is killed, and incarnations of the object
// end, also during the readers' requests. One makes the changes and sees each before the next; both, and a late one, have all rows at the end.
func TestStreamDBFollowsRows(t *testing.T) {
	s := startStreams(t, "./server", evictions(t, "0.05")...)
	if read := s.killDuring(3, "changed", "js/streams/statedb.mjs", "http://"+s.at+"/objects/Todo/a", "40"); len(read) != 3 {
		t.Errorf("read %q", read)
	}
}
