package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/recovery"
	"github.com/dohost/dohost/pool"
)

const (
	// pollPause is the time between two polls of a pool, the resolution of the times.
	pollPause = 500 * time.Microsecond
)

// killPlan is the extent of a measurement.
type killPlan struct {
	beat    time.Duration
	managed int // kills of a daemon's worker
	roles   int // without a daemon, whose workers are killed concurrently
	each    int // kills in each of them
}

// killPlan returns a short plan for short rounds.
func (b *bench) killPlan() killPlan {
	if b.duration < 100*time.Millisecond {
		return killPlan{beat: 300 * time.Millisecond, managed: 2, roles: 2, each: 1}
	}
	return killPlan{beat: time.Second, managed: 20 * b.rounds, roles: 8, each: 4 * b.rounds}
}

// killTimes are the times from the SIGKILL of a worker.
type killTimes struct{ unreachable, pending, running time.Duration }

// killedRole is a role of a pool. Its workers run one task at a time, which connects to the listener.
type killedRole struct {
	*poolHost
	name string
	net.Listener
	draw *rand.Rand
	// again starts a worker in the place of one that was killed. Nil: a daemon does so.
	again func() error
	all   []*exec.Cmd // of the role, for the end
	took  []killTimes
}

// start starts dohost with arguments for the role.
func (k *killedRole) start(ctx context.Context, at string, args ...string) error {
	cmd, err := startTool(ctx, append(args, "--at", at, "--pool", "bench", "--role", k.name)...)
	if err == nil {
		k.all = append(k.all, cmd)
	}
	return err
}

// end ends the processes of the role.
func (k *killedRole) end() (err error) {
	for _, cmd := range k.all {
		err = errors.Join(err, endTool(cmd))
	}
	return errors.Join(err, k.Close())
}

// Close closes the listener.
func (k *killedRole) Close() error { return k.Listener.Close() }

// warmUp lets a worker complete a task. The start of the first worker of a daemon counts as a restart until then, so the next restart would
// wait for RestartDelay.
func (k *killedRole) warmUp(ctx context.Context) error {
	task, err := dohost.Call(ctx, k.stub(), (*pool.Pool).Post, pool.NewTask{Role: k.name, Text: k.Addr().String()})
	if err != nil {
		return err
	}
	a, err := nextAttempt(k.Listener)
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	return k.done(ctx, task.ID, a.number)
}

// kill posts a task, kills the worker that runs it after a random time, up to d, and waits until another worker runs it, and then for its
// end.
func (k *killedRole) kill(ctx context.Context, d time.Duration) error {
	task, err := dohost.Call(ctx, k.stub(), (*pool.Pool).Post, pool.NewTask{Role: k.name, Text: k.Addr().String()})
	if err != nil {
		return err
	}
	first, err := nextAttempt(k.Listener)
	if err != nil {
		return err
	}
	defer first.Conn.Close()
	if err := dohost.Sleep(ctx, time.Duration(k.draw.Int64N(int64(d)))); err != nil {
		return err
	}
	if task, err = k.task(ctx, task.ID); err != nil {
		return err
	}
	if task.Status != pool.StatusRunning || task.Attempts != first.number {
		return fmt.Errorf("the task of a worker that was not killed is %s, attempt %d of %d", task.Status, first.number, task.Attempts)
	}
	process, err := os.FindProcess(first.worker)
	if err != nil {
		return err
	}
	killed := time.Now()
	if err := process.Kill(); err != nil {
		return err
	}
	took, err := k.follow(ctx, task, killed)
	if err != nil {
		return err
	}
	k.took = append(k.took, took)
	second, err := nextAttempt(k.Listener)
	if err != nil {
		return err
	}
	if err := errors.Join(first.Conn.Close(), second.Close()); err != nil {
		return err
	}
	if k.again != nil {
		if err := k.again(); err != nil {
			return err
		}
	}
	return k.done(ctx, task.ID, second.number)
}

func (k *killedRole) task(ctx context.Context, id string) (pool.Task, error) {
	return dohost.Call(ctx, k.stub(), (*pool.Pool).Task, pool.TaskQuery{Task: id})
}

// follow polls the pool until another worker runs the task of a killed one.
func (k *killedRole) follow(ctx context.Context, was pool.Task, killed time.Time) (t killTimes, err error) {
	for t.running == 0 || t.unreachable == 0 {
		at := time.Since(killed)
		if at > 2*time.Minute {
			return t, fmt.Errorf("the task of a killed worker is not running again after %v: %+v", at, t)
		}
		if t.unreachable == 0 {
			reachable, err := k.reachable(ctx, was.Conn)
			if err != nil {
				return t, err
			}
			if !reachable {
				t.unreachable = at
			}
		}
		now, err := k.task(ctx, was.ID)
		if err != nil {
			return t, err
		}
		if t.pending == 0 && (now.Status == pool.StatusPending || now.Fence > was.Fence) {
			t.pending = at
		}
		if t.running == 0 && now.Status == pool.StatusRunning && now.Fence > was.Fence {
			t.running = at
		}
		if err := dohost.Sleep(ctx, pollPause); err != nil {
			return t, err
		}
	}
	return t, nil
}

// reachable reports whether the pool counts a worker as reachable.
func (k *killedRole) reachable(ctx context.Context, conn string) (bool, error) {
	l, err := dohost.Call(ctx, k.stub(), (*pool.Pool).Workers, pool.ListQuery{Role: k.name})
	for _, w := range l.Workers {
		if w.Conn == conn {
			return w.Reachable, err
		}
	}
	return false, err
}

// done waits for the end of a task, and returns an error unless its result is that of the attempt.
func (k *killedRole) done(ctx context.Context, id string, attempt int) error {
	for end := time.Now().Add(time.Minute); ; {
		t, err := k.task(ctx, id)
		switch {
		case err != nil:
			return err
		case t.Status == pool.StatusDone && (string(t.Result) != fmt.Sprint(attempt) || t.Attempts != attempt):
			return fmt.Errorf("the result of a task is %s of %d attempts, want that of attempt %d", t.Result, t.Attempts, attempt)
		case t.Status == pool.StatusDone:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("a task is %s, a minute after its command has ended", t.Status)
		}
		if err := dohost.Sleep(ctx, pollPause); err != nil {
			return err
		}
	}
}

// options returns those of the pool: the relations are those of the default options.
func (p *killPlan) options() *pool.Options {
	return &pool.Options{
		Heartbeat: p.beat, TTL: 2 * p.beat, Lease: 2 * p.beat, Sweep: 4 * p.beat, Acknowledged: 4 * p.beat, MaxAttempts: 1000, Progress: -1,
	}
}

// workerKills measures the time from the SIGKILL of a worker until its task runs again, with a daemon and without one.
func workerKills(ctx context.Context, b *bench) (err error) {
	plan := b.killPlan()
	p := &poolHost{options: plan.options()}
	if err := b.openPool(ctx, p); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	at, stop, err := p.serve()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := dohost.Sleep(ctx, p.options.TTL); err != nil { // nothing lapses in the first TTL of a host
		return err
	}
	c := recoveryCurve("PK", "workers of a pool")
	managed, err := b.killManaged(ctx, p, at, plan)
	if err != nil {
		return err
	}
	o := p.options
	times := fmt.Sprintf("Heartbeat %v, TTL %v, Lease %v, Sweep %v: the defaults, divided by %.0f", o.Heartbeat, o.TTL, o.Lease, o.Sweep, 30/o.Heartbeat.Seconds())
	const how = "the processes are dohost daemon, dohost work and its command; the host is in the process that measures, which looks at the pool every 0.5 ms"
	c.Lines = append(c.Lines, b.addKills(1, "a worker of dohost daemon, SIGKILL", managed, how, times)...)
	alone, err := b.killUnmanaged(ctx, p, at, plan)
	if err != nil {
		return err
	}
	c.Lines = append(c.Lines, b.addKills(4, "a worker without a daemon, SIGKILL; another one of the role waits", alone, times)...)
	b.result.Curves = append(b.result.Curves, c)
	return nil
}

// addKills adds the rows of the times from a SIGKILL, with ids from that number on.
func (b *bench) addKills(id int, what string, all []killTimes, notes ...string) (lines []Line) {
	for i, r := range []struct {
		until string
		of    func(killTimes) time.Duration
	}{
		{"until the pool counts it as unreachable", func(t killTimes) time.Duration { return t.unreachable }},
		{"until its task is pending again", func(t killTimes) time.Duration { return t.pending }},
		{"until another process runs its task", func(t killTimes) time.Duration { return t.running }},
	} {
		d := recovery.Distribution{ID: fmt.Sprint("PK", id+i), What: what + ": " + r.until}
		for _, t := range all {
			d.Took = append(d.Took, r.of(t))
		}
		slices.Sort(d.Took)
		lines = append(lines, b.addDistribution(d, Target{}, notes...))
		notes = nil
	}
	return lines
}

// openRole returns a role of the pool.
func (p *poolHost) openRole(ctx context.Context, name string, seed uint64) (*killedRole, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &killedRole{poolHost: p, name: name, Listener: l, draw: rand.New(rand.NewPCG(seed, 0))}
	_, err = dohost.Call(ctx, p.stub(), dohost.NoResult((*pool.Pool).Declare), pool.DeclareRequest{Role: name})
	return k, err
}

// killManaged kills the worker of a daemon several times.
func (b *bench) killManaged(ctx context.Context, p *poolHost, at string, plan killPlan) (took []killTimes, err error) {
	k, err := p.openRole(ctx, "managed", b.seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.end()) }()
	if err := k.start(ctx, at, "daemon"); err != nil {
		return nil, err
	}
	if err := k.warmUp(ctx); err != nil {
		return nil, err
	}
	for i := range plan.managed {
		if err := k.kill(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
		b.progress("kill %d of %d", i+1, plan.managed)
	}
	return k.took, nil
}

// killUnmanaged kills workers of several roles, which have two workers each.
func (b *bench) killUnmanaged(ctx context.Context, p *poolHost, at string, plan killPlan) (took []killTimes, err error) {
	var mu sync.Mutex // guards took
	err = together(plan.roles, func(i int) (err error) {
		k, err := p.openRole(ctx, fmt.Sprint("role-", i), b.seed+uint64(i))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.end()) }()
		k.again = func() error { return k.start(ctx, at, "work") }
		if err := errors.Join(k.again(), k.again()); err != nil {
			return err
		}
		for n := range plan.each {
			if err := k.kill(ctx, p.options.Sweep); err != nil {
				return err
			}
			if i == 0 {
				b.progress("kill %d of %d, of each of %d roles", n+1, plan.each, plan.roles)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, k.took...)
		return nil
	})
	return took, err
}
