//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/providertest"
)

// waitTimeout bounds all waits for processes.
const waitTimeout = time.Minute

// TestMain runs the command itself if the environment asks for it: linking it again takes longer than the test.
func TestMain(m *testing.M) {
	if os.Getenv("DOHOST_TEST_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// serverProcess is a server over a double of a provider.
type serverProcess struct {
	t       *testing.T
	bin     string
	data    string
	env     []string
	objects string // address
	server  *exec.Cmd
}

func newServerProcess(t *testing.T, model string, d *providertest.Double) *serverProcess {
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	provider := httptest.NewServer(d)
	t.Cleanup(func() {
		provider.CloseClientConnections()
		provider.Close()
	})
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that a server can have again
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &serverProcess{t: t, bin: bin, data: t.TempDir(), objects: l.Addr().String()}
	s.env = append(os.Environ(), "DOHOST_TEST_COMMAND=1", "DOHOST_MODEL="+model, "OPENAI_API_KEY="+providertest.Key, "ANTHROPIC_API_KEY="+providertest.Key,
		"OPENAI_BASE_URL="+provider.URL+"/v1", "ANTHROPIC_BASE_URL="+provider.URL)
	return s
}

// start starts the server, and waits until it serves.
func (s *serverProcess) start() {
	s.t.Helper()
	s.server = exec.Command(s.bin, "serve", "--data", s.data, "--listen", s.objects, "--admin", "off")
	s.server.Env = s.env
	out, err := s.server.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var log bytes.Buffer
	s.server.Stderr = &log
	if err := s.server.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.server
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if strings.Contains(log.String(), providertest.Key) {
			s.t.Error("the key is in the log")
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, s.objects) {
		s.t.Fatalf("%q: %v\n%s", line, err, &log)
	}
}

// kill ends the server by SIGKILL.
func (s *serverProcess) kill() {
	_ = s.server.Process.Kill() // it is there
	_ = s.server.Wait()         // killed
}

// If a process dies twice in mid-sentence, its answer is still complete, in the terminal too; and the provider
// bills as few generations as its API allows: one if the answer can be fetched, else one more for each death.
func TestModelAnswersResumeAfterSIGKILL(t *testing.T) {
	for _, c := range []struct {
		model  string
		billed int
	}{{"openai:double", 1}, {"completions:double", 3}, {"anthropic:double", 3}} {
		t.Run(c.model, func(t *testing.T) {
			const words = 30
			d := &providertest.Double{Pace: 20 * time.Millisecond, RefusePrefill: true, Plan: func(n int, _ []byte) providertest.Plan {
				if c.billed > 1 && n < 2 {
					// The process dies after 5 words and after 10: no generation may reach both, however late a kill comes.
					return providertest.Plan{Words: words, After: 8, Silent: true}
				}
				return providertest.Plan{Words: words}
			}}
			s := newServerProcess(t, c.model, d)
			s.start()
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			ask := exec.CommandContext(ctx, s.bin, "chat", "--at", s.objects, "Count.")
			ask.Env = s.env
			out, err := ask.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var failure bytes.Buffer
			ask.Stderr = &failure
			if err := ask.Start(); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(out)
			var text strings.Builder
			kills := 0
			for {
				word, err := in.ReadString(' ')
				text.WriteString(word)
				if err != nil {
					break // the end
				}
				if n := strings.Count(text.String(), " "); kills < 2 && n >= 5*(kills+1) {
					kills++
					s.kill()
					s.start()
				}
			}
			if err := ask.Wait(); err != nil {
				t.Fatalf("%v: %s\n%q", err, &failure, text.String())
			}
			of, err := providertest.SplitText(strings.TrimSuffix(text.String(), "\n"), words)
			billed := len(d.Generations())
			t.Logf("%d kills: %d generations billed, of which %d are in the text; fetched %d times", kills, billed, len(of), d.Fetched())
			if err != nil || kills != 2 || billed != c.billed || len(of) != c.billed || len(d.Refused()) > 0 {
				t.Errorf("%q: %v; refused: %q", text.String(), err, d.Refused())
			}
		})
	}
}

func TestModelNameIsValidated(t *testing.T) {
	for _, name := range []string{"", "gpt", "openai:", "other:m"} {
		if _, err := modelOf(name); err == nil || !strings.Contains(err.Error(), "--model") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
