//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
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
}

func startStreams(t *testing.T, program string, flags ...string) *streamServer {
	t.Helper()
	install(t)
	s := &streamServer{
		t: t, bin: filepath.Join(t.TempDir(), "dohost"), data: filepath.Join(t.TempDir(), "data"), flags: flags, at: "127.0.0.1:0",
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.bin, program).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Cleanup(func() { s.kill() })
	s.start()
	return s
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

// The conformance tests that pass, and those of forks that fail, since the server answers 501.
const refusedForks, conforming = 79, 259

// TestStreamsConform runs the published conformance tests. All pass, except those of forks.
func TestStreamsConform(t *testing.T) {
	startStreams(t, "../cmd/dohost").conform("", conforming, refusedForks)
}

// TestStreamsConformDuringEvictions runs some of the conformance tests while incarnations end, at places that cut off no request but
// concurrent ones for the same object. A client cannot know whether an append that was cut off has had an effect, so the tests of concurrent
// writers are not among them. Neither are those of subscriptions, since a creation that is repeated has another status.
func TestStreamsConformDuringEvictions(t *testing.T) {
	s := startStreams(t, "../cmd/dohost", "--chaos-evict", "0.2", "--chaos-at", "construct,alarm,outcome,committed,sync,durable,release")
	s.conform("^(?!Fork).*("+conformingGroups+"|HTTP Protocol|JSON Mode|SSE Mode|Stream Closure)", 134, 0)
}

// TestStreamsConformBetweenKills runs some of the conformance tests, and kills the server before each.
func TestStreamsConformBetweenKills(t *testing.T) {
	s := startStreams(t, "../cmd/dohost")
	kills := 0
	killer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		kills++
		s.kill()
		s.start() // a failure ends this goroutine, and the test that waits for it
	}))
	defer killer.Close()
	const tests = 50
	s.conform("^(?!Fork).*(Reserved subscription|"+conformingGroups+")", tests, 0, "KILL="+killer.URL)
	if kills != tests {
		t.Errorf("%d kills, want %d", kills, tests)
	}
}

// conformingGroups are quick tests that write.
const conformingGroups = "Idempotent Producer|Append Operations|Read Operations|Read-Your-Writes"

// conform runs the published conformance tests with matching names, and checks the number of those that pass and of those of forks that
// fail. Each other failure is an error.
func (s *streamServer) conform(names string, wantPassed, wantForks int, env ...string) {
	t := s.t
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	cmd := exec.CommandContext(t.Context(), filepath.Join("node_modules", ".bin", "vitest"), "run", "--root", ".", "--testNamePattern", names,
		"--testTimeout", "60000", "--reporter", "json", "--outputFile", report, "js/streams/conformance.test.mjs")
	cmd.Env = append(append(os.Environ(), "STREAMS=http://"+s.at), env...)
	out, runErr := cmd.CombinedOutput() // an error since tests fail
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("%v, %v\n%s", runErr, err, out)
	}
	var results struct {
		TestResults []struct {
			AssertionResults []struct {
				AncestorTitles  []string
				Title, Status   string
				FailureMessages []string
			}
		}
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	passed, forks := 0, 0
	for _, file := range results.TestResults {
		for _, r := range file.AssertionResults {
			switch group := strings.Join(r.AncestorTitles, ", "); {
			case r.Status == "passed":
				passed++
			case r.Status == "failed" && strings.HasPrefix(group, "Fork - "):
				forks++
			case r.Status == "failed":
				t.Errorf("%s: %s: %.500s", group, r.Title, strings.Join(r.FailureMessages, "\n"))
			}
		}
	}
	t.Logf("%d passed, %d of forks failed", passed, forks)
	if passed != wantPassed || forks != wantForks {
		t.Errorf("%d passed and %d of forks failed, want %d and %d", passed, forks, wantPassed, wantForks)
	}
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

// TestStreamDBFollowsRows has two published StreamDBs follow the rows of an object while the server is killed, and the object leaves
// memory between changes. One makes the changes and sees each before the next; both, and a late one, have all rows at the end.
func TestStreamDBFollowsRows(t *testing.T) {
	s := startStreams(t, "./server")
	if read := s.killDuring(3, "changed", "js/streams/statedb.mjs", "http://"+s.at+"/objects/Todo/a", "40"); len(read) != 3 {
		t.Errorf("read %q", read)
	}
}
