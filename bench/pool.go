package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/kernel"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/pool"
	"github.com/dohost/dohost/runtime"
)

// Sizes of the pools that are measured; those of tests are smaller.
const (
	poolWorkers = 1000
	poolTasks   = 10_000
	// poolRole is the only role.
	poolRole = "builder"
)

// poolSize returns the workers and the tasks of a large pool.
func (b *bench) poolSize() (workers, tasks int) {
	workers = min(poolWorkers, b.objects/10)
	return workers, workers * poolTasks / poolWorkers
}

// poolHost is a host with one pool.
type poolHost struct {
	*dohost.Host
	fs             *objectstore.FS
	reads          objectstore.Reads
	dir            string
	options        *pool.Options
	listener       dohost.Listener
	workers, tasks int
}

// openPool opens a host with a pool. Each worker has a task that it runs, as far as there are tasks; the other tasks are pending.
func (b *bench) openPool(ctx context.Context, p *poolHost) (err error) {
	if p.dir, err = b.newDir(); err != nil {
		return err
	}
	if err := p.open(); err != nil {
		return err
	}
	if err := p.fill(ctx); err != nil {
		return errors.Join(err, p.Close())
	}
	return nil
}

func (p *poolHost) open() (err error) {
	p.fs = objectstore.DiskFS()
	o := kernel.OnFS(&dohost.Options{IdleAfter: -1, Listener: p.listener}, p.fs)
	kernel.Tune(o, func(ro *runtime.Options) { ro.Store.Reads = &p.reads })
	p.Host, err = dohost.Open(p.dir, o, pool.Class(p.options))
	return err
}

func (p *poolHost) stub() dohost.Stub[pool.Pool] { return pool.Pools.Get(p, "bench") }

// conn is the connection of the i-th worker.
func conn(i int) string { return fmt.Sprintf("conn-%05d", i) }

// fill adds the workers and the tasks.
func (p *poolHost) fill(ctx context.Context) error {
	if _, err := dohost.Call(ctx, p.stub(), dohost.NoResult((*pool.Pool).Declare), pool.DeclareRequest{Role: poolRole}); err != nil {
		return err
	}
	return together(fillers, func(c int) error {
		for i := c; i < max(p.workers, p.tasks); i += fillers {
			if err := p.fillOne(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// fillOne adds the i-th worker and the i-th task.
func (p *poolHost) fillOne(ctx context.Context, i int) error {
	if i < p.tasks {
		if _, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Post, pool.NewTask{Role: poolRole, Text: "build it"}); err != nil {
			return err
		}
	}
	if i >= p.workers {
		return nil
	}
	if _, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Join, pool.JoinRequest{Role: poolRole, Conn: conn(i)}); err != nil || i >= p.tasks {
		return err
	}
	claimed, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Claim, pool.ClaimRequest{Role: poolRole, Conn: conn(i)})
	if err == nil && claimed.Task == nil {
		err = fmt.Errorf("the worker %s gets no task of %d", conn(i), p.tasks)
	}
	if err != nil {
		return err
	}
	_, err = dohost.Call(ctx, p.stub(), (*pool.Pool).Start, pool.ClaimRef{Task: claimed.Task.ID, Conn: conn(i), Fence: claimed.Task.Fence})
	return err
}

// beat sends a heartbeat of the i-th worker, and returns the time until which it is reachable.
func (p *poolHost) beat(ctx context.Context, i int) (time.Time, error) {
	b, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Heartbeat, pool.HeartbeatRequest{Role: poolRole, Conn: conn(i)})
	return b.Until, err
}

// list returns all workers of the pool.
func (p *poolHost) list(ctx context.Context) (all []pool.Worker, err error) {
	for q := (pool.ListQuery{Role: poolRole, Limit: 1000}); ; {
		l, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Workers, q)
		if err != nil {
			return nil, err
		}
		if all, q.After = append(all, l.Workers...), l.Next; l.Next == "" {
			return all, nil
		}
	}
}

// countTasks returns the number of tasks with a status.
func (p *poolHost) countTasks(ctx context.Context, s pool.Status) (n int, err error) {
	for q := (pool.ListQuery{Role: poolRole, Status: s, Limit: 1000}); ; {
		l, err := dohost.Call(ctx, p.stub(), (*pool.Pool).Tasks, q)
		if err != nil {
			return 0, err
		}
		if n, q.After = n+len(l.Tasks), l.Next; l.Next == "" {
			return n, nil
		}
	}
}

// verifyTasks returns an error unless the pool has the tasks of fill.
func (p *poolHost) verifyTasks(ctx context.Context) error {
	held := min(p.workers, p.tasks)
	for status, want := range map[pool.Status]int{pool.StatusRunning: held, pool.StatusPending: p.tasks - held} {
		n, err := p.countTasks(ctx, status)
		if err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%d tasks are %s, want %d", n, status, want)
		}
	}
	return nil
}
