package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// poolServer is a server of the pool without a network. While it is down, each connection fails.
type poolServer struct {
	*fixture
	down     atomic.Bool
	lose     atomic.Int64 // how many of the next answers are lost
	requests atomic.Int64
	status   atomic.Int64 // of all answers; zero: the pool's
	empty    atomic.Bool  // no claim waits
	blocked  string       // a method without a connection
}

func (s *poolServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	if err := context.Cause(r.Context()); err != nil || s.down.Load() || path.Base(r.URL.Path) == s.blocked {
		return nil, errors.Join(err, errors.New("connection refused"))
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if status := s.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return w.Result(), nil
	}
	if s.empty.Load() {
		body = bytes.Replace(body, []byte(`"wait_ms":30000`), []byte(`"wait_ms":0`), 1)
	}
	result, err := s.host.Invoke(r.Context(), s.pool().ID(), path.Base(r.URL.Path), body)
	if cause := context.Cause(r.Context()); cause != nil {
		return nil, cause
	}
	if s.lose.Add(-1) >= 0 {
		return nil, errors.New("connection reset by peer")
	}
	if err != nil {
		s.host.WriteError(w, err)
	} else {
		w.Write(result)
	}
	return w.Result(), nil
}

// worker runs Work in a bubble until stop is called, which returns its error.
func (s *poolServer) worker(ctx context.Context, do func(context.Context, *Task) (json.RawMessage, error)) (stop func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	result := make(chan error, 1)
	go func() { result <- Work(ctx, s.client(), &WorkOptions{Role: "a", Name: "tester"}, do) }()
	synctest.Wait()
	return func() error {
		cancel(errStop)
		synctest.Wait()
		return <-result
	}
}

var errStop = errors.New("stop")

func (s *poolServer) client() *Client {
	return &Client{URL: "http://pool/objects/pool/p/", HTTP: &http.Client{Transport: s}}
}

// withServer runs fn with a server of a pool.
func withServer(t *testing.T, o *Options, fn func(ctx context.Context, s *poolServer)) {
	t.Helper()
	inPool(t, o, func(ctx context.Context, f *fixture) {
		call(f, declare, DeclareRequest{Role: "a"})
		fn(ctx, &poolServer{fixture: f})
	})
}

// left fails the test if the role has a worker.
func (s *poolServer) left() {
	s.t.Helper()
	if ws := call(s.fixture, (*Pool).Workers, ListQuery{Role: "a"}).Workers; len(ws) != 0 {
		s.t.Errorf("workers remain: %+v", ws)
	}
}

// TestWorkHandsResultsOff has a worker with two tasks that take longer than a lease and a TTL.
func TestWorkHandsResultsOff(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		stop := s.worker(ctx, func(ctx context.Context, task *Task) (json.RawMessage, error) {
			Progress(ctx, "working on "+task.Text)
			time.Sleep(5 * time.Minute)
			return json.Marshal("did " + task.Text)
		})
		first, err := s.client().Post(ctx, NewTask{Role: "a", Text: "x"})
		second, err2 := s.client().Post(ctx, NewTask{Role: "a", Text: "y", Key: "k"})
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		s.sleep(4 * time.Minute)
		if task, err := s.client().Task(ctx, first.ID); err != nil || task.Status != StatusRunning || task.Progress != "working on x" || !s.role("a").Reachable {
			t.Errorf("%+v, %v, %+v", task, err, s.role("a"))
		}
		s.is(second.ID, "pending 0")
		s.sleep(7 * time.Minute)
		for id, want := range map[string]string{first.ID: `"did x"`, second.ID: `"did y"`} {
			if task := s.task(id); task.Status != StatusDone || string(task.Result) != want || task.Attempts != 1 {
				t.Errorf("%+v", task)
			}
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
		s.left()
	})
}

// TestWorkLeavesOnEachPath ends a worker in each way while it has a task.
func TestWorkLeavesOnEachPath(t *testing.T) {
	for name, tt := range map[string]struct {
		do     func(ctx context.Context, task *Task) (json.RawMessage, error)
		want   string
		reason string
	}{
		"context":   {func(ctx context.Context, _ *Task) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }, "pending 0", "its worker has released it"},
		"after it":  {func(ctx context.Context, _ *Task) (json.RawMessage, error) { <-ctx.Done(); return nil, nil }, "done 1", ""},
		"error":     {func(context.Context, *Task) (json.RawMessage, error) { return nil, errors.New("it broke") }, "failed 2", "it broke"},
		"no retry":  {func(context.Context, *Task) (json.RawMessage, error) { return nil, fmt.Errorf("no: %w", ErrNoRetry) }, "failed 1", "no: " + ErrNoRetry.Error()},
		"not JSON":  {func(context.Context, *Task) (json.RawMessage, error) { return json.RawMessage("{"), nil }, "failed 1", "pool: the result is not JSON: " + ErrNoRetry.Error()},
		"too large": {func(context.Context, *Task) (json.RawMessage, error) { return json.Marshal(strings.Repeat("x", 1<<20)) }, "failed 1", "pool: invalid: result has 1048578 bytes: want at most 262144"},
		"long errors": {func(context.Context, *Task) (json.RawMessage, error) {
			return nil, errors.New(strings.Repeat("é", maxError))
		}, "failed 2", strings.Repeat("é", maxError/2)},
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, &Options{MaxAttempts: 2}, func(ctx context.Context, s *poolServer) {
				id := s.post("a", "x")
				stop := s.worker(ctx, tt.do)
				s.sleep(10 * time.Second)
				if err := stop(); err != errStop {
					t.Error(err)
				}
				s.left()
				s.is(id, tt.want)
				if got := s.task(id).Reason; got != tt.reason {
					t.Errorf("%q, want %q", got, tt.reason)
				}
			})
		})
	}
}

// TestWorkReleasesATaskThatItCannotStart ends a worker that has claimed a task and gets no answer to the start.
func TestWorkReleasesATaskThatItCannotStart(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		s.blocked = "start"
		stop := s.worker(ctx, func(context.Context, *Task) (json.RawMessage, error) { return nil, nil })
		id := s.post("a", "x")
		s.sleep(10 * time.Second)
		s.is(id, "acknowledged 1")
		if err := stop(); err != errStop {
			t.Error(err)
		}
		s.is(id, "pending 0")
		s.left()
	})
}

// TestWorkDoesNotPollHot has a host that closes: it answers each claim without a wait.
func TestWorkDoesNotPollHot(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		s.empty.Store(true)
		stop := s.worker(ctx, func(context.Context, *Task) (json.RawMessage, error) { return nil, nil })
		s.sleep(time.Minute)
		if n := s.requests.Load(); n > 70 {
			t.Errorf("%d requests in a minute", n)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
	})
}

// TestWorkPollsAFullPool has a pool with as many workers that wait as it may have. A further worker asks for a task each second.
func TestWorkPollsAFullPool(t *testing.T) {
	withServer(t, &Options{MaxWorkers: 2 * maxWaits}, func(ctx context.Context, s *poolServer) {
		for i := range maxWaits {
			conn := fmt.Sprint(i)
			s.join("b", conn)
			go call(s.fixture, (*Pool).Claim, ClaimRequest{"b", conn, 50_000})
		}
		synctest.Wait()
		stop := s.worker(ctx, func(context.Context, *Task) (json.RawMessage, error) { return json.RawMessage("1"), nil })
		s.sleep(10 * time.Second)
		if n := s.requests.Load(); n < 8 || n > 15 {
			t.Errorf("%d requests in 10 s", n)
		}
		id := s.post("a", "x")
		s.sleep(2 * time.Second)
		s.is(id, "done 1")
		if err := stop(); err != errStop {
			t.Error(err)
		}
		s.sleep(time.Minute)
	})
}

// TestWorkLeavesAfterAPanic has a function that panics. The task has failed, the worker has left, and the panic continues.
func TestWorkLeavesAfterAPanic(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		id := s.post("a", "x")
		done := make(chan any, 1)
		go func() {
			defer func() { done <- recover() }()
			_ = Work(ctx, s.client(), &WorkOptions{Role: "a"}, func(context.Context, *Task) (json.RawMessage, error) { panic("boom") })
		}()
		if got := <-done; got != "boom" {
			t.Errorf("recovered %v", got)
		}
		s.left()
		s.is(id, "failed 1")
		if !s.task(id).Uncertain {
			t.Error("the attempt had no effect")
		}
	})
}

// TestWorkSurvivesTheServer has a server that is down for less than a lease, then loses answers, and then is down for an hour: the worker
// loses its task, joins again and gets it again.
func TestWorkSurvivesTheServer(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		var causes []error
		stop := s.worker(ctx, func(ctx context.Context, task *Task) (json.RawMessage, error) {
			select {
			case <-ctx.Done():
				causes = append(causes, context.Cause(ctx))
				return nil, context.Cause(ctx)
			case <-time.After(10 * time.Minute):
				return json.RawMessage(`"done"`), nil
			}
		})
		id := s.post("a", "x")
		s.sleep(5 * time.Second)
		s.down.Store(true)
		s.sleep(35 * time.Second)
		s.down.Store(false)
		s.lose.Store(2)
		s.sleep(time.Minute)
		s.is(id, "running 1")
		s.down.Store(true)
		s.sleep(time.Hour)
		s.down.Store(false)
		s.sleep(9 * time.Minute)
		s.is(id, "running 2")
		s.lose.Store(3)
		s.sleep(3 * time.Minute)
		if task := s.task(id); task.Status != StatusDone || task.Attempts != 2 || len(task.Late) != 0 {
			t.Errorf("%+v", task)
		}
		if err := stop(); err != errStop || len(causes) != 1 || !errors.Is(causes[0], ErrClaimLost) {
			t.Errorf("%v, %v", err, causes)
		}
		s.left()
	})
}

// TestWorkJoinsAgainWhileItWorks removes a worker from its role during a task.
func TestWorkJoinsAgainWhileItWorks(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		stop := s.worker(ctx, func(ctx context.Context, _ *Task) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		s.post("a", "x")
		s.sleep(time.Second)
		conn := call(s.fixture, (*Pool).Workers, ListQuery{Role: "a"}).Workers[0].Conn
		call(s.fixture, leave, LeaveRequest{"a", conn})
		s.sleep(30 * time.Second)
		if r := s.role("a"); !r.Reachable || !r.Busy {
			t.Errorf("%+v", r)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
		s.left()
	})
}

// TestWorkEndsATaskThatIsTakenBack releases the task of a worker, which notices it with the next renewal.
func TestWorkEndsATaskThatIsTakenBack(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		var ended []time.Duration
		stop := s.worker(ctx, func(ctx context.Context, task *Task) (json.RawMessage, error) {
			begun := time.Now()
			<-ctx.Done()
			ended = append(ended, time.Since(begun))
			return nil, ctx.Err()
		})
		id := s.post("a", "x")
		s.sleep(time.Second)
		task := s.task(id)
		call(s.fixture, (*Pool).Release, ClaimRef{id, task.Conn, task.Fence})
		s.sleep(30 * time.Second)
		if len(ended) != 1 || ended[0] != 20*time.Second {
			t.Errorf("ended after %v", ended)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
	})
}

// TestWorkResultThatIsLateIsKept has a worker whose function returns a result after it has lost the task.
func TestWorkResultThatIsLateIsKept(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		n := 0
		stop := s.worker(ctx, func(ctx context.Context, task *Task) (json.RawMessage, error) {
			if n++; n == 1 {
				<-ctx.Done()
				return json.RawMessage(`"late"`), nil
			}
			return json.RawMessage(`"new"`), nil
		})
		id := s.post("a", "x")
		s.sleep(5 * time.Second)
		s.down.Store(true)
		s.sleep(5 * time.Minute)
		s.down.Store(false)
		s.sleep(5 * time.Minute)
		if task := s.task(id); string(task.Result) != `"new"` || task.Fence != 2 {
			t.Errorf("%+v", task)
		}
		if err := stop(); err != errStop {
			t.Error(err)
		}
	})
}

// TestWorkReturnsErrorsOfRequests has a server that refuses the worker.
func TestWorkReturnsErrorsOfRequests(t *testing.T) {
	withServer(t, &Options{MaxWorkers: 1}, func(ctx context.Context, s *poolServer) {
		do := func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }
		for _, o := range []*WorkOptions{nil, {}, {Role: "a b"}, {Role: "a", Wait: -1}, {Role: "a", Wait: time.Minute}} {
			if err := Work(ctx, s.client(), o, do); !errors.Is(err, ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
		s.status.Store(http.StatusUnauthorized)
		if err := Work(ctx, s.client(), &WorkOptions{Role: "a"}, do); err == nil || !strings.Contains(err.Error(), "401") {
			t.Error(err)
		}
		s.status.Store(0)
		s.join("a", "1")
		before := s.requests.Load()
		if err := Work(ctx, s.client(), &WorkOptions{Role: "a"}, do); !errors.Is(err, ErrFull) || s.requests.Load() != before+1 {
			t.Errorf("%v after %d requests", err, s.requests.Load()-before)
		}
		if _, err := s.client().Post(ctx, NewTask{Role: "none"}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		if _, err := s.client().Task(ctx, "77"); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
		s.down.Store(true)
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := Work(limited, s.client(), &WorkOptions{Role: "a"}, do); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if _, err := s.client().Post(ctx, NewTask{Role: "a"}); err == nil || isRefusal(err) {
			t.Error(err)
		}
	})
}

// TestClientsCheckTheirArguments has arguments that no pool accepts, while no server answers: the errors come without a request.
func TestClientsCheckTheirArguments(t *testing.T) {
	withServer(t, nil, func(ctx context.Context, s *poolServer) {
		s.down.Store(true)
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		do := func(context.Context, *Task) (json.RawMessage, error) { return nil, nil }
		run := func(context.Context, Process) error { return nil }
		for name, err := range map[string]error{
			"role of Work":     Work(limited, s.client(), &WorkOptions{Role: "a b"}, do),
			"name of Work":     Work(limited, s.client(), &WorkOptions{Role: "a", Name: "\xff"}, do),
			"conn of Work":     Work(limited, s.client(), &WorkOptions{Role: "a", Conn: "a b"}, do),
			"no role of Work":  Work(limited, s.client(), &WorkOptions{}, do),
			"role of Manage":   Manage(limited, s.client(), &ManageOptions{Role: strings.Repeat("a", maxName+1)}, run),
			"name of Manage":   Manage(limited, s.client(), &ManageOptions{Role: "a", Name: "a b"}, run),
			"role of Post":     postError(s.client().Post(limited, NewTask{Role: "", Key: "k"})),
			"no URL":           Work(limited, &Client{}, &WorkOptions{Role: "a"}, do),
			"no scheme":        Work(limited, &Client{URL: "127.0.0.1:8787/objects/pool/p"}, &WorkOptions{Role: "a"}, do),
			"another protocol": Manage(limited, &Client{URL: "ftp://host/objects/pool/p"}, &ManageOptions{Role: "a"}, run),
			"no host":          postError((&Client{URL: "http:///objects/pool/p"}).Post(limited, NewTask{Role: "a", Key: "k"})),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := s.requests.Load(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func postError(_ Task, err error) error { return err }

// TestShorten cuts texts at the borders of characters.
func TestShorten(t *testing.T) {
	for _, tt := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"é", 1, ""}, {"\xff", 3, "\uFFFD"}, {"\xff", 2, ""}} {
		if got := shorten(tt.text, tt.most); got != tt.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}
