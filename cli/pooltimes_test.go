//go:build unix

package cli

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dohost/dohost/pool"
)

var dohostProgram = flag.String("dohost", "", "program of TestPoolNoticesKilledWorkers, whose pools have the default options: the test then takes 4 minutes")

// steadyPool is a pool whose workers lapse soon, but not on a busy machine, where a process may wait for seconds.
var steadyPool = &pool.Options{
	Heartbeat: 500 * time.Millisecond, TTL: 5 * time.Second, Sweep: time.Second, Lease: 5 * time.Second, Acknowledged: 5 * time.Second,
	RestartDelay: 50 * time.Millisecond,
}

// killedWorker has the times from the kill of a worker until the pool has noticed.
type killedWorker struct {
	role                         string
	task                         pool.Task
	unreachable, removed, lapsed time.Duration // zero: not yet
}

// look records the changes that the pool has made until now.
func (k *killedWorker) look(ctx context.Context, p *poolProcesses, role pool.Role, killed time.Time) error {
	var workers pool.WorkerList
	answered := p.list(ctx, "workers", fmt.Sprintf(`{"role":%q}`, k.role), &workers)
	task, err := p.client.Task(ctx, k.task.ID)
	if err != nil || !answered {
		return err
	}
	note := func(at *time.Duration, holds bool) {
		if holds && *at == 0 {
			*at = time.Since(killed)
		}
	}
	note(&k.unreachable, !role.Reachable)
	note(&k.removed, len(workers.Workers) == 0)
	note(&k.lapsed, task.Status == pool.StatusPending)
	return nil
}

// poolTimes are options of a pool.
type poolTimes struct{ ttl, sweep, lease time.Duration }

// check checks and logs the times.
func (k *killedWorker) check(t *testing.T, of poolTimes) {
	const slack = 10 * time.Second // of a busy machine
	if k.unreachable > of.ttl+slack || k.removed > of.ttl+of.sweep+slack || k.lapsed > of.lease+of.sweep+slack {
		t.Errorf("a killed worker of the role %s is noticed late", k.role)
	}
	t.Logf("role %s: unreachable after %v, removed after %v, its task is pending after %v", k.role,
		k.unreachable.Round(time.Millisecond), k.removed.Round(time.Millisecond), k.lapsed.Round(time.Millisecond))
}

// TestPoolNoticesKilledWorkers kills two workers with SIGKILL while they have a task. The daemon of one of them is stopped, so that it does not
// report the end, and no daemon manages the other. The pool counts them as unreachable within the TTL, and its next sweep removes them and
// takes their tasks back. Two posts at the same time request one restart of the managed role. With -dohost the times are those of the default
// options, and otherwise shorter ones.
func TestPoolNoticesKilledWorkers(t *testing.T) {
	t.Parallel()
	times := poolTimes{steadyPool.TTL, steadyPool.Sweep, steadyPool.Lease}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if *dohostProgram != "" {
		program, times = *dohostProgram, poolTimes{time.Minute, 2 * time.Minute, time.Minute}
	}
	p := newPoolProcesses(t, program, "steady")
	p.pause = times.ttl / 200
	for _, name := range []string{"host", "daemon", "worker"} {
		p.start(name)
		defer func() { p.kill(name) }()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	upper, lower := &killedWorker{role: "upper"}, &killedWorker{role: "lower"}
	for _, k := range []*killedWorker{upper, lower} {
		k.task = p.post(k.role, "once "+l.Addr().String(), k.role)
		conn, err := l.Accept() // from the first attempt, which runs until its process is killed
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	daemon := p.running["daemon"].Process
	if err := daemon.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := syscall.Kill(int(p.pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.kill("worker")
	posted := p.notice(killed, upper, lower)
	upper.check(t, times)
	lower.check(t, times)
	roles := p.roles(t.Context())
	if r := roles["upper"]; r.Requested == nil || r.Requested.Number != 2 { // the first one has started the killed worker
		t.Errorf("the managed role: %+v, with the restart %+v", r, r.Requested)
	}
	if r := roles["lower"]; r.Requested != nil || r.Restarts != 0 {
		t.Errorf("the role without a daemon: %+v", r)
	}
	if err := daemon.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.start("worker")
	p.checkRestarted(posted, upper, lower)
	t.Logf("all tasks are done after %v", time.Since(killed).Round(time.Millisecond))
}

// notice waits until the pool has noticed that all workers have ended. It posts two tasks to the first role once it is offline.
func (p *poolProcesses) notice(killed time.Time, workers ...*killedWorker) (posted []pool.Task) {
	p.t.Helper()
	p.until("the pool notices the killed workers", func(ctx context.Context) (bool, error) {
		all, roles := true, p.roles(ctx)
		for _, k := range workers {
			if role, ok := roles[k.role]; ok {
				if err := k.look(ctx, p, role, killed); err != nil {
					return false, err
				}
			}
			all = all && k.removed > 0 && k.lapsed > 0
		}
		if r, ok := roles[workers[0].role]; ok && !r.Reachable && !r.Busy && posted == nil {
			posted = p.postTwo(r.Name)
		}
		return all && posted != nil, nil
	})
	return posted
}

// checkRestarted checks that one restart has led to the results of all tasks: those of the killed workers have that of the second attempt.
func (p *poolProcesses) checkRestarted(posted []pool.Task, workers ...*killedWorker) {
	p.t.Helper()
	want := map[string]string{}
	for _, task := range posted {
		want[task.ID] = "1"
	}
	for _, k := range workers {
		want[k.task.ID] = "2"
	}
	for id, want := range want {
		if task := p.done(id); string(task.Result) != want {
			p.t.Errorf("the task %+v has the result %s, want %s", task, task.Result, want)
		}
	}
	if n := p.started.Load(); n != 2 {
		p.t.Errorf("the daemon has started %d workers, want 2: one restart", n)
	}
	if r := p.roles(p.t.Context())["upper"]; r.Requested != nil || r.Restarts != 0 {
		p.t.Errorf("the managed role in the end: %+v", r)
	}
}

// postTwo posts two tasks at the same time.
func (p *poolProcesses) postTwo(role string) []pool.Task {
	posted := make([]pool.Task, 2)
	var posts sync.WaitGroup
	for i := range posted {
		posts.Go(func() {
			var err error
			if posted[i], err = p.client.Post(p.t.Context(), pool.NewTask{Role: role, Text: "attempt", Key: fmt.Sprint("at the same time ", i)}); err != nil {
				p.t.Error(err)
			}
		})
	}
	posts.Wait()
	return posted
}
