//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/adminapi"
)

// patience is the longest wait of a test for something immediate.
const patience = 10 * time.Second

// idleAfter is so short that agents leave memory between almost any two actions of a client.
const idleAfter = 100 * time.Millisecond

// server is a process, which may be killed, and the next one on the same data.
type server struct {
	t         *testing.T
	bin, data string

	mu     sync.Mutex
	cmd    *exec.Cmd
	at     string        // address
	log    []string      // of all processes
	logged chan struct{} // closed, and made anew, for each line
	ended  chan struct{} // closed at the end of the process's log
}

func buildServer(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "e2e", "-o", bin, "./server").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

func newServer(t *testing.T, bin string) *server {
	t.Helper()
	s := &server{t: t, bin: bin, data: filepath.Join(t.TempDir(), "data"), logged: make(chan struct{})}
	t.Cleanup(func() {
		if err := s.kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start starts a process and waits until it listens.
func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd = exec.Command(s.bin, "-data", s.data, "-idle", idleAfter.String())
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go s.read(stderr, s.ended)
	out := bufio.NewScanner(stdout)
	if !out.Scan() {
		return fmt.Errorf("the server does not start: %w", errors.Join(out.Err(), io.ErrUnexpectedEOF))
	}
	s.at = out.Text()
	return nil
}

func (s *server) read(log io.Reader, ended chan struct{}) {
	defer close(ended)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		s.mu.Lock()
		s.log = append(s.log, lines.Text())
		close(s.logged)
		s.logged = make(chan struct{})
		s.mu.Unlock()
	}
}

// kill ends the process as SIGKILL does.
func (s *server) kill() error {
	if s.cmd == nil || s.cmd.ProcessState != nil {
		return nil
	}
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	if err := s.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		return fmt.Errorf("the server ended by itself: %v\n%s", err, s.tail())
	}
	return nil
}

func (s *server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// tail is the end of the log.
func (s *server) tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log[max(0, len(s.log)-20):], "\n")
}

// asleep waits until an agent that was just called has left memory because it is idle.
func (s *server) asleep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var o adminapi.Object
	if err := s.ask(ctx, http.MethodGet, "/v1/objects/ChatRoom/"+name, &o); err != nil || !o.Live {
		return err
	}
	want := fmt.Sprintf("msg=fenced object=ChatRoom/%s epoch=%s reason=idle ", name, o.Epoch)
	for {
		s.mu.Lock()
		more, found := s.logged, slices.ContainsFunc(s.log, func(l string) bool { return strings.Contains(l, want) })
		s.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("%s does not fall asleep", name)
		}
	}
}

// restart ends an agent's incarnation as an operator, as a deployment does. It first wakes an agent that is out of
// memory.
func (s *server) restart(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	object := "ChatRoom/" + name
	if strings.Contains(name, "/") { // of another class, which is busy
		object = name
	}
	for {
		var did adminapi.Evicted
		err := s.ask(ctx, http.MethodPost, "/v1/objects/"+object+"/evict?mode=restart", &did)
		if err != nil || did.Evicted {
			return err
		}
		if err := s.ask(ctx, http.MethodPost, "/objects/ChatRoom/"+name+"/null", nil); err != nil {
			return err
		}
	}
}

// ask sends a request and reads the answer into to, unless that is nil.
func (s *server) ask(ctx context.Context, method, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.address()+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, res.Status)
	}
	if to == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(to)
}
