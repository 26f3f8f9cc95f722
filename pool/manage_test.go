package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost"
)

// processes records the processes of a daemon. A process ends with the next error of ends, or with its context.
type processes struct {
	mu      sync.Mutex // guards the fields below
	started []Process
	active  int
	most    int

	ends chan error
	join func(p Process) // nil: the process does not join
}

func (ps *processes) run(ctx context.Context, p Process) error {
	ps.mu.Lock()
	ps.started = append(ps.started, p)
	ps.active++
	ps.most = max(ps.most, ps.active)
	ps.mu.Unlock()
	defer func() {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.active--
	}()
	if ps.join != nil {
		ps.join(p)
	}
	select {
	case err := <-ps.ends:
		if err == errGoexit {
			runtime.Goexit()
		}
		return err
	case <-ctx.Done():
		time.Sleep(time.Second) // it stops
		return errors.New("stopped")
	}
}

var errGoexit = errors.New("goexit")

// list returns the processes so far. At most one may have been active at a time.
func (ps *processes) list(t *testing.T) []Process {
	t.Helper()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.most > 1 {
		t.Errorf("%d processes were active at a time", ps.most)
	}
	return append([]Process(nil), ps.started...)
}

// count returns the numbers of processes so far, and of active ones.
func (ps *processes) count() (started, active int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.started), ps.active
}

// daemon runs Manage for the role "a" in a bubble until stop is called, which returns its error.
func (s *poolServer) daemon(ctx context.Context, name string, ps *processes) (stop func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() { result <- Manage(ctx, s.client(), &ManageOptions{Role: "a", Name: name}, ps.run) }()
	synctest.Wait()
	return func() error {
		cancel(errStop)
		return <-result
	}
}

// withDaemon runs fn with a server and a daemon whose processes join, and then ends the daemon.
func withDaemon(t *testing.T, o *Options, fn func(ctx context.Context, s *poolServer, ps *processes)) {
	t.Helper()
	withServer(t, o, func(ctx context.Context, s *poolServer) {
		ps := &processes{ends: make(chan error)}
		ps.join = func(p Process) { s.join(p.Role, p.Conn) }
		stop := s.daemon(ctx, "d", ps)
		fn(ctx, s, ps)
		if err := stop(); err != errStop {
			t.Error(err)
		}
		ps.list(t)
		if _, active := ps.count(); active != 0 {
			t.Error("a process is active after the end of its daemon")
		}
		s.left()
	})
}

// TestManageStartsAndRestarts has no process before there is a task. Each process that ends is replaced, and its task is pending again.
func TestManageStartsAndRestarts(t *testing.T) {
	withDaemon(t, nil, func(_ context.Context, s *poolServer, ps *processes) {
		s.sleep(10 * time.Minute)
		if n := len(ps.list(t)); n != 0 || !s.role("a").Managed {
			t.Errorf("%d processes without a task, %+v", n, s.role("a"))
		}
		id := s.post("a", "x")
		for i, want := range []string{"a task was posted", "a process of the role has ended: signal: killed", "a process of the role has ended: the process has ended",
			"a process of the role has ended: the function of the daemon has panicked"} {
			s.sleep(time.Minute)
			list := ps.list(t)
			if len(list) != i+1 {
				t.Fatalf("%d processes, want %d", len(list), i+1)
			}
			if p := list[i]; p.Role != "a" || p.Number != uint64(i+1) || p.Reason != want {
				t.Errorf("%+v, want the reason %q", p, want)
			}
			if i > 0 && list[i].Conn == list[i-1].Conn {
				t.Errorf("two processes have the connection %s", list[i].Conn)
			}
			s.claim("a", list[i].Conn, true)
			s.is(id, fmt.Sprint("running ", i+1))
			ps.ends <- []error{errors.New("signal: killed"), nil, errGoexit, nil}[i]
			s.sleep(0)
			s.is(id, fmt.Sprint("pending ", i+1)) // without a wait for the lease
		}
	})
}

// TestManageStopsAProcessWithoutHeartbeats has processes that never join: each is stopped before the next one starts.
func TestManageStopsAProcessWithoutHeartbeats(t *testing.T) {
	withDaemon(t, nil, func(_ context.Context, s *poolServer, ps *processes) {
		ps.join = nil
		s.post("a", "x")
		s.sleep(90*time.Second + 2*time.Minute + 15*time.Second)
		if list := ps.list(t); len(list) != 2 || list[1].Reason != "the restart has not led to a worker in time" {
			t.Errorf("%+v", list)
		}
		s.sleep(time.Hour)
		if n, r := len(ps.list(t)), s.role("a"); n != 5 || !r.GivenUp {
			t.Errorf("%d processes, %+v", n, r)
		}
	})
}

// TestManageReportsLater has a process that ends while the host does not answer.
func TestManageReportsLater(t *testing.T) {
	withDaemon(t, nil, func(_ context.Context, s *poolServer, ps *processes) {
		id := s.post("a", "x")
		s.sleep(time.Second)
		s.claim("a", ps.list(t)[0].Conn, true)
		s.down.Store(true)
		ps.ends <- errors.New("signal: killed")
		s.sleep(30 * time.Second)
		s.is(id, "running 1")
		s.down.Store(false)
		s.sleep(20 * time.Second)
		s.is(id, "pending 1")
		if n := len(ps.list(t)); n != 2 {
			t.Errorf("%d processes", n)
		}
	})
}

// TestManageLostAnswers loses each answer of the pool once.
func TestManageLostAnswers(t *testing.T) {
	runs := 0
	for lost := range 5 {
		withDaemon(t, nil, func(_ context.Context, s *poolServer, ps *processes) {
			runs++
			s.post("a", "x")
			s.lose.Store(int64(lost))
			s.sleep(time.Minute)
			ps.ends <- nil
			s.lose.Store(int64(lost))
			s.sleep(2 * time.Minute)
			if n := len(ps.list(t)); n != 2 {
				t.Errorf("%d lost answers: %d processes, want 2", lost, n)
			}
		})
	}
	if runs != 5 {
		t.Errorf("%d runs", runs)
	}
}

// TestManageOfTwoDaemonsStartsOnce has two daemons of a role. The one that takes the restart is killed before it starts a process: the other
// takes the next restart.
func TestManageOfTwoDaemonsStartsOnce(t *testing.T) {
	withDaemon(t, nil, func(ctx context.Context, s *poolServer, first *processes) {
		second := &processes{ends: make(chan error), join: first.join}
		stop := s.daemon(ctx, "e", second)
		s.post("a", "x")
		s.sleep(time.Minute)
		if n := len(first.list(t)) + len(second.list(t)); n != 1 {
			t.Fatalf("%d processes", n)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
		s.sleep(time.Minute)
		if n := len(first.list(t)); n != 1 {
			t.Errorf("%d processes of the daemon that remains", n)
		}
	})
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		call(s.fixture, declare, DeclareRequest{"a", true})
		s.post("a", "x")
		s.take("a") // a daemon that is killed then
		ps := &processes{ends: make(chan error), join: func(p Process) { s.join(p.Role, p.Conn) }}
		stop := s.daemon(ctx, "e", ps)
		s.sleep(90*time.Second + 2*time.Minute + 15*time.Second)
		if n := len(ps.list(t)); n != 1 {
			t.Errorf("%d processes after the deadline of a restart", n)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
	})
}

// TestManageRefusals has errors of the caller and of the server. A daemon with an error stops its process.
func TestManageRefusals(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		ps := &processes{ends: make(chan error)}
		for _, o := range []*ManageOptions{nil, {}, {Role: "a", Wait: time.Hour}, {Role: "a", Wait: -1}, {Role: "a b"}} {
			if err := Manage(ctx, s.client(), o, ps.run); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		if err := Manage(ctx, s.client(), &ManageOptions{Role: "a"}, nil); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	})
	for name, tt := range map[string]struct {
		blocked string // a request without a connection
		end     bool   // of the process
		within  time.Duration
	}{
		"poll":                   {"", false, 41 * time.Second},
		"poll, no report":        {"exited", false, 51 * time.Second},
		"report, before a poll":  {"", true, time.Second},
		"no report for any time": {"exited", true, 51 * time.Second},
	} {
		withServer(t, nil, func(ctx context.Context, s *poolServer) {
			s.blocked = tt.blocked
			ps := &processes{ends: make(chan error)}
			result := make(chan error, 1)
			go func() { result <- Manage(ctx, s.client(), &ManageOptions{Role: "a"}, ps.run) }()
			s.sleep(time.Second)
			s.post("a", "x")
			s.sleep(time.Second)
			s.status.Store(401)
			if tt.end {
				ps.ends <- nil
			}
			s.sleep(tt.within)
			select {
			case err := <-result:
				if n, active := ps.count(); err == nil || n != 1 || active != 0 {
					t.Errorf("%s: %v, %d processes, %d active", name, err, n, active)
				}
			default:
				t.Fatalf("%s: Manage has not returned within %v", name, tt.within)
			}
		})
	}
}

// TestManageDoesNotPollHot has a host that answers each poll without a wait, and a pool with too many daemons.
func TestManageDoesNotPollHot(t *testing.T) {
	withDaemon(t, nil, func(_ context.Context, s *poolServer, _ *processes) {
		s.empty.Store(true)
		s.sleep(time.Minute)
		before := s.requests.Load()
		s.sleep(time.Minute)
		if n := s.requests.Load() - before; n < 10 || n > 70 {
			t.Errorf("%d requests in a minute", n)
		}
		for i := range maxPolls {
			go call(s.fixture, (*Pool).Commands, PollRequest{Daemon: fmt.Sprint(i), WaitMS: maxWait.Milliseconds()})
		}
		s.empty.Store(false)
		s.sleep(5 * time.Second)
		before = s.requests.Load()
		s.sleep(40 * time.Second)
		if n := s.requests.Load() - before; n < 20 || n > 45 {
			t.Errorf("%d requests in 40 s of a full pool", n)
		}
		s.sleep(time.Minute)
	})
}

// TestManageDeclaresItsRoleAgain removes the data of the pool while a daemon waits, and declares its role as attached.
func TestManageDeclaresItsRoleAgain(t *testing.T) {
	for name, change := range map[string]func(ctx context.Context, s *poolServer) error{
		"no data": func(ctx context.Context, s *poolServer) error { return s.destroy(ctx) },
		"no data, a worker": func(ctx context.Context, s *poolServer) error {
			err := s.destroy(ctx)
			s.join("a", "attached")
			call(s.fixture, leave, LeaveRequest{"a", "attached"})
			return err
		},
		"another declaration": func(_ context.Context, s *poolServer) error {
			call(s.fixture, declare, DeclareRequest{Role: "a"})
			return nil
		},
	} {
		withDaemon(t, nil, func(ctx context.Context, s *poolServer, ps *processes) {
			s.sleep(10 * time.Second)
			if err := change(ctx, s); err != nil {
				t.Fatal(err)
			}
			s.sleep(45 * time.Second)
			s.post("a", "x")
			s.sleep(time.Second)
			if n := len(ps.list(t)); n != 1 || !s.role("a").Managed {
				t.Errorf("%s: %d processes, %+v", name, n, s.role("a"))
			}
		})
	}
}

// TestManageIgnoresRestartsOfOtherRoles has a host that answers with a restart of a role that the daemon has not asked for.
func TestManageIgnoresRestartsOfOtherRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{of: map[string]string{"commands": `{"commands":[{"role":"b\u001b[31m","number":1}]}`}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ps := &processes{}
		if err := Manage(ctx, a.client(), &ManageOptions{Role: "a"}, ps.run); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if list := ps.list(t); len(list) != 0 {
			t.Errorf("processes %+v", list)
		}
		if a.requests > 70 {
			t.Errorf("%d requests in a minute", a.requests)
		}
	})
}

// destroy deletes the pool.
func (s *poolServer) destroy(ctx context.Context) error {
	err := s.pool().Do(ctx, func(ctx context.Context, p *Pool) error { return p.Destroy(ctx) })
	if errors.Is(err, dohost.ErrFenced) { // it ends the incarnation
		return nil
	}
	return err
}
