package pool

import (
	"context"
	"errors"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
)

// Pools is the namespace of pools.
const Pools dohost.Namespace[Pool] = "pool"

// Pool is a pool of workers: see the package. All methods are events of the object, and need a ctx that holds its turn: call them by
// [dohost.Call]. They return the errors that they name, [ErrInvalid] for an argument, and the errors of the storage.
type Pool struct {
	*agent.Agent[struct{}]
	options *Options // resolved
	clock   func() time.Time

	claimers map[string]*waiters // by role
	daemons  waiters
}

// sweeping is the callback of the sweep's schedule.
const sweeping agent.Callback[struct{}] = "sweep"

// Class returns the class of pools with the options o. [dohost.Open] returns the errors in o.
func Class(o *Options) dohost.Class { return classWith(o, time.Now) }

// classWith is Class with a clock.
func classWith(o *Options, clock func() time.Time) dohost.Class {
	options, err := o.resolved()
	c := agent.Bind(Pools, func(_ context.Context, a *agent.Agent[struct{}]) (*Pool, error) {
		return &Pool{Agent: a, options: &options, clock: clock, claimers: map[string]*waiters{}}, nil
	}, &agent.Handlers[Pool, struct{}]{
		Authorize:  options.Authorize,
		Extensions: []dohost.ClassExtension{extension(&options)},
		Validate:   func(*Pool, context.Context, struct{}, *agent.Conn) error { return errNoState },
	},
		agent.Extend(agent.Extension[Pool]{Protocol: "pool"}),
		agent.OnSchedule(sweeping, func(p *Pool, ctx context.Context, _ struct{}) error { return p.sweep(ctx) }),
		agent.OnRows(&tasks, "notify", (*Pool).notify, notifyOptions),
		agent.Callable("join", (*Pool).Join),
		agent.Callable("beat", (*Pool).Heartbeat),
		agent.Callable("leave", dohost.NoResult((*Pool).Leave)),
		agent.Callable("post", (*Pool).Post),
		agent.Callable("claim", (*Pool).Claim),
		agent.Callable("start", (*Pool).Start),
		agent.Callable("renew", (*Pool).Renew),
		agent.Callable("handoff", (*Pool).Handoff),
		agent.Callable("fail", (*Pool).Fail),
		agent.Callable("release", (*Pool).Release),
		agent.Callable("cancel", (*Pool).Cancel),
		agent.Callable("declare", dohost.NoResult((*Pool).Declare)),
		agent.Callable("commands", (*Pool).Commands),
		agent.Callable("take", (*Pool).Take),
		agent.Callable("exited", dohost.NoResult((*Pool).Exited)),
		agent.Callable("task", (*Pool).Task),
		agent.Callable("tasks", (*Pool).Tasks),
		agent.Callable("workers", (*Pool).Workers),
		agent.Callable("roles", dohost.NoArg((*Pool).Roles)),
	)
	return dohost.InvalidClass(c, err)
}

var errNoState = errors.New("pool: a pool has no shared state")

// view is the pool at the time of one event.
type view struct {
	*Pool
	meta      meta
	stored    meta // zero: none
	now       time.Time
	suspended bool // the sweep is so late that the host, or its machine, was suspended
}

// view reads the pool. It writes nothing.
func (p *Pool) view(ctx context.Context) (*view, error) {
	m, ok, err := dohost.Get[meta](ctx, p.Storage(), metaKey)
	if err != nil {
		return nil, err
	}
	v := &view{Pool: p, meta: m, stored: m, now: p.clock().Round(0)}                          // monotonic times of different processes cannot be compared
	if host := p.Object().Epoch().HostPrefix(); !ok || m.Host != host || v.now.Before(m.Up) { // or the clock was set back
		v.meta.Host, v.meta.Up = host, v.now
	}
	if m.Sweep != "" {
		v.suspended = v.now.Sub(later(m.Swept, v.meta.Up)) > p.options.Sweep+p.options.TTL
	}
	return v, nil
}

// update runs an event that changes rows, as a transaction.
func (p *Pool) update(ctx context.Context, fn func(context.Context, *view) error) error {
	if err := agent.CheckWrite(ctx); err != nil {
		return err
	}
	return dohost.Transaction(ctx, func(ctx context.Context) error {
		v, err := p.view(ctx)
		if err != nil {
			return err
		}
		if err := v.keepSweeping(ctx); err != nil {
			return err
		}
		if err := fn(ctx, v); err != nil || v.meta == v.stored {
			return err
		}
		return dohost.Put(ctx, p.Storage(), metaKey, v.meta)
	})
}

// keepSweeping schedules the sweep again if its interval has changed, or if the clock was set back: the schedule would wait until the
// clock has caught up.
func (v *view) keepSweeping(ctx context.Context) error {
	back := v.now.Before(v.meta.Swept)
	if v.meta.Sweep == "" || !back && v.meta.Every == v.options.Sweep {
		return nil
	}
	if back {
		if err := v.setBack(ctx); err != nil {
			return err
		}
	}
	return v.schedule(ctx)
}

// setBack changes times that are further in the future than the options allow, after the clock was set back. The sweep changes the times of
// workers and tasks.
func (v *view) setBack(ctx context.Context) error {
	v.meta.Up = v.now
	rows, err := roles.List(ctx, v.Storage(), nil)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r := row.Value
		if latest := v.now.Add(v.options.Starting); r.Starting.After(latest) {
			r.Starting = latest
		}
		if !r.Check.IsZero() {
			r.Check = v.now
		}
		if err := roles.Put(ctx, v.Storage(), r); err != nil {
			return err
		}
		if c, ok, err := get(ctx, v.Pool, &commands, r.Name); err != nil {
			return err
		} else if latest := v.now.Add(maxDelay); ok && c.After.After(latest) {
			c.After = latest
			if err := commands.Put(ctx, v.Storage(), c); err != nil {
				return err
			}
		}
	}
	return nil
}

// needSweep schedules the sweep if it is not scheduled.
func (v *view) needSweep(ctx context.Context) error {
	if v.meta.Sweep != "" {
		return nil
	}
	return v.schedule(ctx)
}

func (v *view) schedule(ctx context.Context) error {
	if v.meta.Sweep != "" {
		if _, err := v.Schedules().Cancel(ctx, v.meta.Sweep); err != nil {
			return err
		}
	}
	id, err := agent.Schedule(ctx, v.Agent, agent.Every(v.options.Sweep), sweeping, struct{}{}, nil)
	v.meta.Sweep, v.meta.Every, v.meta.Swept, v.suspended = id, v.options.Sweep, v.now, false
	return err
}

// lapsed reports whether the deadline of a worker or of a restart is over. Until the host has been up for one TTL none is.
func (v *view) lapsed(deadline time.Time) bool {
	return !v.now.Before(deadline) && !v.suspended && !v.now.Before(v.meta.Up.Add(v.options.TTL))
}

// leaseGrace is the time before which no lease lapses.
func (v *view) leaseGrace() time.Time {
	return v.meta.Up.Add(max(v.options.TTL, v.options.Lease))
}

// leaseLapsed reports whether the deadline of a claim is over.
func (v *view) leaseLapsed(deadline time.Time) bool {
	return !v.now.Before(deadline) && !v.suspended && !v.now.Before(v.leaseGrace())
}

// first returns the first row of a query.
func first[T any](ctx context.Context, p *Pool, c *dohost.Collection[T], q dohost.Query[T]) (v T, ok bool, err error) {
	q.Limit = 1
	rows, err := c.List(ctx, p.Storage(), &q)
	if err != nil || len(rows) == 0 {
		return v, false, err
	}
	return rows[0].Value, true, nil
}

// get returns the row of a key.
func get[T any](ctx context.Context, p *Pool, c *dohost.Collection[T], key string) (T, bool, error) {
	row, ok, err := c.Get(ctx, p.Storage(), key)
	return row.Value, ok, err
}
