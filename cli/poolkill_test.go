//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/pool"
)

var (
	killRounds = flag.Int("kill-rounds", 12, "kills of TestPoolSurvivesSIGKILL")
	killSeed   = flag.Uint64("kill-seed", 0, "seed of TestPoolSurvivesSIGKILL; 0: a random one")
)

// poolProcesses are a host, a daemon of the role "upper" and a worker of the role "lower" that no daemon manages.
type poolProcesses struct {
	t       *testing.T
	program string        // dohost
	pause   time.Duration // between two polls of until
	at, dir string
	options string // of the pool: a key of poolsOfTests
	client  *pool.Client
	running map[string]*exec.Cmd
	pid     atomic.Int64 // of the daemon's worker
	started atomic.Int64 // workers that the daemons have started
}

// newPoolProcesses prepares processes of a program with the given options of the pool, and closes the idle connections to them in the end.
func newPoolProcesses(t *testing.T, program, options string) *poolProcesses {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &poolProcesses{t: t, program: program, at: l.Addr().String(), dir: t.TempDir(), options: options, pause: 5 * time.Millisecond, running: map[string]*exec.Cmd{}}
	l.Close() // its port is free for the host
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	p.client = &pool.Client{URL: "http://" + p.at + "/objects/pool/build"}
	return p
}

// start starts a process of dohost.
func (p *poolProcesses) start(name string) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	args := map[string][]string{
		"host":   {"serve", "--listen", p.at, "--admin", "127.0.0.1:0", "--data", p.dir},
		"daemon": {"daemon", "--at", p.at, "--pool", "build", "--role", "upper", "--", self},
		"worker": {"work", "--at", p.at, "--pool", "build", "--role", "lower", "--", self},
	}[name]
	cmd := exec.Command(p.program, args...)
	cmd.Env = append(os.Environ(), taskCommand+"=1", poolOptions+"="+p.options)
	output, err := cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var pid int
			if _, err := fmt.Sscanf(lines.Text(), "dohost: the worker %d of the role upper has started", &pid); err == nil {
				p.pid.Store(int64(pid))
				p.started.Add(1)
			}
		}
	}()
	p.running[name] = cmd
}

// kill kills a process with SIGKILL, and waits for its end.
func (p *poolProcesses) kill(name string) {
	p.t.Helper()
	cmd := p.running[name]
	if err := cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// end ends the daemon's worker with SIGKILL, or stops it until the pool has noticed.
func (p *poolProcesses) end(stop bool) {
	p.t.Helper()
	var pid int
	p.until("a worker of the daemon", func(context.Context) (bool, error) {
		pid = int(p.pid.Load())
		return pid != 0, nil
	})
	if !stop {
		p.pid.CompareAndSwap(int64(pid), 0)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		return
	}
	if syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return
	}
	p.until("the pool notices a stopped worker", func(ctx context.Context) (bool, error) {
		role, ok := p.roles(ctx)["upper"]
		return ok && !role.Reachable, nil
	})
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// post posts a task, when its role is declared.
func (p *poolProcesses) post(role, text, key string) (task pool.Task) {
	p.t.Helper()
	p.until("post", func(ctx context.Context) (ok bool, err error) {
		task, err = p.client.Post(ctx, pool.NewTask{Role: role, Text: text, Key: key})
		return err == nil, err
	})
	return task
}

// done waits for the end of a task.
func (p *poolProcesses) done(id string) (task pool.Task) {
	p.t.Helper()
	p.until("the task "+id+" is done", func(ctx context.Context) (ok bool, err error) {
		task, err = p.client.Task(ctx, id)
		return task.Status == pool.StatusDone, err
	})
	return task
}

// list reads a list of the pool, and reports whether the host has answered.
func (p *poolProcesses) list(ctx context.Context, method, body string, list any) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.client.URL+"/"+method, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(list) == nil
}

// roles returns the roles of the pool, none while the host is down.
func (p *poolProcesses) roles(ctx context.Context) map[string]pool.Role {
	var page pool.RoleList
	if !p.list(ctx, "roles", "{}", &page) {
		return nil
	}
	roles := map[string]pool.Role{}
	for _, role := range page.Roles {
		roles[role.Name] = role
	}
	return roles
}

// until polls the pool until a condition holds. While the host is down it continues.
func (p *poolProcesses) until(event string, holds func(ctx context.Context) (bool, error)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), max(time.Minute, 1000*p.pause))
	defer cancel()
	for {
		ok, err := holds(ctx)
		if ok {
			return
		}
		if ctx.Err() != nil {
			p.t.Fatalf("%s: not in time: %v", event, err)
		}
		_ = dohost.Sleep(ctx, p.pause) // its error is that of ctx
	}
}

// TestPoolSurvivesSIGKILL kills a host, a daemon and workers with SIGKILL, and stops workers with SIGSTOP until the pool has given their task to
// another, while tasks are posted. Each task ends with the result of its last attempt: that of an earlier one is refused.
func TestPoolSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := newPoolProcesses(t, self, "")
	names := []string{"host", "daemon", "worker"}
	for _, name := range names {
		p.start(name)
		defer func() { p.kill(name) }()
	}
	var posted []pool.Task
	post := func(role string) pool.Task {
		t.Helper()
		posted = append(posted, p.post(role, "attempt", fmt.Sprint("task-", len(posted))))
		return posted[len(posted)-1]
	}
	counts := map[string]int{}
	var recovery []time.Duration
	for range *killRounds {
		upper := post("upper")
		post("lower")
		for range rng.IntN(20) { // a random time
			_, _ = p.client.Task(t.Context(), upper.ID) // the host is up
		}
		victim := []string{"host", "daemon", "worker", "all", "process", "stopped process"}[rng.IntN(6)]
		counts[victim]++
		begun := time.Now()
		switch victim {
		case "all":
			for _, name := range names {
				p.kill(name)
			}
			for _, name := range names {
				p.start(name)
			}
		case "process", "stopped process":
			p.end(victim == "stopped process")
		default:
			p.kill(victim)
			p.start(victim)
		}
		p.done(upper.ID)
		recovery = append(recovery, time.Since(begun))
	}
	for _, task := range posted {
		if task = p.done(task.ID); string(task.Result) != fmt.Sprint(task.Attempts) {
			t.Errorf("the task %+v has the result %s of an earlier attempt", task, task.Result)
		}
	}
	if roles := p.roles(t.Context()); roles["lower"].Restarts != 0 || roles["lower"].Requested != nil || !roles["upper"].Managed {
		t.Errorf("roles %+v", roles)
	}
	slices.Sort(recovery)
	share := func(percent int) time.Duration {
		return recovery[(len(recovery)-1)*percent/100].Round(time.Millisecond)
	}
	t.Logf("seed %d: %d tasks, kills %v; the task of a round was done after %v (median), %v (90 %%), %v (99 %%), %v (longest)",
		seed, len(posted), counts, share(50), share(90), share(99), share(100))
}

// TestWorkCommandEndsAfterSIGTERM ends a worker with SIGTERM, and another one by the end of its daemon, while they have a task: they release it,
// and leave.
func TestWorkCommandEndsAfterSIGTERM(t *testing.T) {
	h, s, client, self := servePool(t, nil)
	if _, err := dohost.Call(t.Context(), pool.Pools.Get(h, "build"), dohost.NoResult((*pool.Pool).Declare), pool.DeclareRequest{Role: "upper"}); err != nil {
		t.Fatal(err)
	}
	task, err := client.Post(t.Context(), pool.NewTask{Role: "upper", Text: "hang"})
	if err != nil {
		t.Fatal(err)
	}
	for _, managed := range []bool{false, true} {
		args := []string{"work", "--at", s.URL, "--pool", "build", "--role", "upper"}
		if managed {
			args = append(args, "--managed")
		}
		cmd := exec.Command(self, append(args, "--", self)...)
		cmd.Env = append(os.Environ(), connEnv+"=conn-1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for task.Status != pool.StatusRunning {
			if task, err = client.Task(t.Context(), task.ID); err != nil {
				t.Fatal(err)
			}
		}
		if (task.Conn == "conn-1") != managed {
			t.Errorf("managed %v: the connection is %s", managed, task.Conn)
		}
		if managed {
			err = in.Close()
		} else {
			err = terminate(cmd.Process)
		}
		if err := errors.Join(err, cmd.Wait()); (err == nil) == managed {
			t.Errorf("managed %v: the worker has ended with %v", managed, err)
		}
		if task, err = client.Task(t.Context(), task.ID); err != nil || task.Status != pool.StatusPending || task.Attempts != 0 {
			t.Errorf("managed %v: the task of the worker that has ended: %+v, %v", managed, task, err)
		}
		workers, err := dohost.Call(t.Context(), pool.Pools.Get(h, "build"), (*pool.Pool).Workers, pool.ListQuery{Role: "upper"})
		if err != nil || len(workers.Workers) != 0 {
			t.Errorf("managed %v: workers %+v, %v", managed, workers, err)
		}
	}
}
