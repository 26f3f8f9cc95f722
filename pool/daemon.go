package pool

import (
	"context"
	"time"

	"github.com/dohost/dohost"
)

// PollRequest asks for the restarts that a pool requests.
type PollRequest struct {
	Daemon string `json:"daemon"` // the name of the daemon: a newer Poll of the same name ends an older one
	Role   string `json:"role"`   // empty: of all roles
	// WaitMS is how long the daemon waits for a restart, in milliseconds. It is at most 50 s; zero does not wait.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Command is a restart of a role that the pool requests: the daemon stops the processes of the role, if there are any, and starts one.
type Command struct {
	Role   string    `json:"role"`
	Number uint64    `json:"number"`
	Reason string    `json:"reason"` // up to 256 bytes; a longer one is cut
	Asked  time.Time `json:"asked"`  // the time of the request, by the pool's clock
	After  time.Time `json:"after"`  // no daemon gets it before that time
}

// PollResponse is the answer to a [PollRequest].
type PollResponse struct {
	Commands []Command `json:"commands"`
}

// Commands returns the requested restarts that may begin now, and waits up to WaitMS for one. It returns none if there is none after WaitMS,
// and earlier if the daemon polls again or the host closes. It changes nothing: a daemon that means to restart a role calls [Pool.Take]
// first.
//
// Errors: [ErrNotFound] if the Role is not declared as managed, and [ErrFull] if 100 daemons wait.
func (p *Pool) Commands(ctx context.Context, q PollRequest) (PollResponse, error) {
	if err := checkNames("daemon", q.Daemon); err != nil {
		return PollResponse{}, err
	}
	if q.Role != "" {
		if err := checkNames("role", q.Role); err != nil {
			return PollResponse{}, err
		}
	}
	if q.WaitMS < 0 || q.WaitMS > maxWait.Milliseconds() {
		return PollResponse{}, refuse(ErrInvalid, "wait_ms is %d: want 0 to %d", q.WaitMS, maxWait.Milliseconds())
	}
	for until := time.Now().Add(time.Duration(q.WaitMS) * time.Millisecond); ; {
		due, next, err := p.due(ctx, q.Role)
		left := time.Until(until)
		if err != nil || len(due) > 0 || left <= 0 {
			return PollResponse{Commands: due}, err
		}
		wait := left
		if next > 0 {
			wait = min(left, next)
		}
		if len(p.daemons) >= maxPolls {
			return PollResponse{}, refuse(ErrFull, "%d daemons wait for commands, and no more may", maxPolls)
		}
		begun := time.Now()
		woken, err := p.wait(ctx, &waiter{client: q.Daemon, role: q.Role}, wait, &p.daemons)
		if err != nil {
			return PollResponse{}, err
		}
		if !woken && time.Since(begun) < wait { // a newer poll of the daemon, or the end of the host
			return PollResponse{Commands: []Command{}}, nil
		}
	}
}

// due returns the requested restarts that may begin, and otherwise the time until the next one may.
func (p *Pool) due(ctx context.Context, role string) (due []Command, next time.Duration, err error) {
	if role != "" {
		r, _, err := get(ctx, p, &roles, role)
		if err != nil {
			return nil, 0, err
		}
		if !r.Managed {
			return nil, 0, refuse(ErrNotFound, "the role %q is not declared as managed", role)
		}
	}
	now := p.clock()
	var one *dohost.Query[command] // of a role; nil: of all
	if role != "" {
		one = &dohost.Query[command]{Equal: dohost.Key(role)}
	}
	rows, err := commands.List(ctx, p.Storage(), one)
	due = []Command{}
	for _, row := range rows {
		c := row.Value
		if left := c.After.Sub(now); left <= 0 {
			due = append(due, Command(c))
		} else if next == 0 || left < next {
			next = left
		}
	}
	return due, next, err
}

// TakeRequest takes a requested restart.
type TakeRequest struct {
	Daemon string `json:"daemon"`
	Role   string `json:"role"`
	Number uint64 `json:"number"` // of the Command
}

// TakeResponse is the answer to a [TakeRequest].
type TakeResponse struct {
	Deadline time.Time `json:"deadline"` // by the pool's clock: a worker of the role joins before, or the pool requests another restart
}

// Take takes a requested restart, so that no other daemon does: the role is starting until the Deadline. If the role is not offline any
// more, the pool withdraws the request, and refuses the Take. A repeated Take of the daemon returns the same Deadline.
//
// Errors: [ErrNotFound] if the pool does not request the restart now: another daemon has taken it, the Deadline is over, its After is in the
// future, or the role is not offline.
func (p *Pool) Take(ctx context.Context, t TakeRequest) (taken TakeResponse, err error) {
	if err := checkNames("daemon", t.Daemon, "role", t.Role); err != nil {
		return TakeResponse{}, err
	}
	none := false
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		r, ok, err := get(ctx, p, &roles, t.Role)
		if err != nil {
			return err
		}
		c, requested, err := get(ctx, p, &commands, t.Role)
		if err != nil {
			return err
		}
		if !requested {
			taken.Deadline = r.Starting
			none = !ok || r.Number != t.Number || r.Daemon != t.Daemon || r.Starting.IsZero() || v.lapsed(r.Starting)
			return nil
		}
		if c.Number != t.Number || v.now.Before(c.After) {
			none = true
			return nil
		}
		if _, err := commands.Delete(ctx, p.Storage(), t.Role); err != nil {
			return err
		}
		offline, err := v.offline(ctx, &r)
		if err != nil {
			return err
		}
		if none = !offline; none {
			r.Restarts = max(0, r.Restarts-1) // it was not needed; they may have been reset since
			return roles.Put(ctx, p.Storage(), r)
		}
		r.Daemon, r.Starting = t.Daemon, v.now.Add(p.options.Starting)
		r.checkBy(r.Starting)
		taken.Deadline = r.Starting
		if err := roles.Put(ctx, p.Storage(), r); err != nil {
			return err
		}
		return v.needSweep(ctx)
	})
	if err == nil && none {
		return TakeResponse{}, refuse(ErrNotFound, "the pool does not request the restart %d of the role %q now", t.Number, t.Role)
	}
	return taken, err
}

// ProcessExit reports the end of a process of a role.
type ProcessExit struct {
	Role string `json:"role"`
	// Number is the number of the restart that has started the process; zero if it was started otherwise.
	Number uint64 `json:"number,omitempty"`
	// Conn is the connection of its worker; empty if it is not known.
	Conn   string `json:"conn,omitempty"`
	Reason string `json:"reason"` // up to 4 KiB
}

// Exited removes the worker of a process that has ended, and makes its tasks pending again, without a wait for a TTL or a lease: the first
// 100 of them, and the others when their leases lapse. If the last restart started this process, the role is no longer starting.
//
// Errors: [ErrNotFound] for the role.
func (p *Pool) Exited(ctx context.Context, e ProcessExit) error {
	if err := checkNames("role", e.Role); err != nil {
		return err
	}
	if e.Conn != "" {
		if err := checkNames("conn", e.Conn); err != nil {
			return err
		}
	}
	if err := checkText("reason", e.Reason, maxError); err != nil {
		return err
	}
	err := p.update(ctx, func(ctx context.Context, v *view) error {
		if _, ok, err := get(ctx, p, &roles, e.Role); err != nil || !ok {
			if err == nil {
				err = refuse(ErrNotFound, "the pool has no role %q", e.Role)
			}
			return err
		}
		if e.Conn != "" {
			if err := v.gone(ctx, e); err != nil {
				return err
			}
		}
		r, _, err := get(ctx, p, &roles, e.Role)
		if err != nil {
			return err
		}
		if e.Number != 0 && e.Number == r.Number && !r.Starting.IsZero() {
			r.Starting = time.Time{}
			if err := roles.Put(ctx, p.Storage(), r); err != nil {
				return err
			}
		}
		return v.handleOffline(ctx, e.Role, "a process of the role has ended: "+e.Reason)
	})
	if err == nil && e.Conn != "" {
		p.endWait(e.Role, e.Conn)
	}
	return err
}

// gone removes the worker of a process that has ended, and ends the claims of its tasks. Tasks beyond the first 100 wait for their leases.
func (v *view) gone(ctx context.Context, e ProcessExit) error {
	w, ok, err := get(ctx, v.Pool, &workers, workerKey(e.Role, e.Conn))
	if err != nil {
		return err
	}
	if ok {
		if err := v.remove(ctx, w, v.now); err != nil {
			return err
		}
	}
	held, err := tasks.List(ctx, v.Storage(), &dohost.Query[taskRow]{
		Index: "conn", Prefix: dohost.KeyOf(e.Role) + dohost.KeyOf(e.Conn), Limit: sweepBatch,
	})
	for _, row := range held {
		if err = v.endClaim(ctx, &row.Value, "its worker has ended: "+e.Reason); err != nil {
			break
		}
	}
	return err
}
