package pool

import (
	"context"
	"log/slog"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
)

// DeclareRequest declares a role.
type DeclareRequest struct {
	Role string `json:"role"`
	// Managed is set if a daemon restarts the role's workers. The pool requests no restarts of an unmanaged role.
	Managed bool `json:"managed"`
}

// Declare creates a role, or changes whether it is managed. It also ends the state given up, and resets the count of restarts: a daemon
// declares its role when it starts.
//
// Errors: [ErrFull] if the pool has 256 other roles.
func (p *Pool) Declare(ctx context.Context, d DeclareRequest) error {
	if err := checkNames("role", d.Role); err != nil {
		return err
	}
	return p.update(ctx, func(ctx context.Context, v *view) error {
		r, ok, err := get(ctx, p, &roles, d.Role)
		if err != nil {
			return err
		}
		if !ok {
			if err := v.checkRoles(ctx); err != nil {
				return err
			}
			r = role{Name: d.Role, Seen: v.now}
		}
		if r.Managed = d.Managed; !d.Managed {
			r.Starting = time.Time{}
			r.checkBy(v.now.Add(p.options.Keep))
			if _, err := commands.Delete(ctx, p.Storage(), d.Role); err != nil {
				return err
			}
		}
		r.GivenUp, r.Warned, r.Restarts = false, false, 0
		if err := roles.Put(ctx, p.Storage(), r); err != nil {
			return err
		}
		if !r.Check.IsZero() {
			if err := v.needSweep(ctx); err != nil {
				return err
			}
		}
		return v.handleOffline(ctx, d.Role, "a daemon has declared it")
	})
}

// offline reports whether a role has no worker that may be reachable, no task with a live lease, and no restart that has begun. A busy
// role is not offline: its worker may have left to work on the task.
func (v *view) offline(ctx context.Context, r *role) (bool, error) {
	if reachable, err := v.reachable(ctx, r.Name); err != nil || reachable {
		return false, err
	}
	if !r.Starting.IsZero() && !v.lapsed(r.Starting) {
		return false, nil
	}
	busy, err := v.busy(ctx, r.Name)
	return !busy, err
}

// busy reports whether a task of a role has a live lease.
func (v *view) busy(ctx context.Context, role string) (bool, error) {
	t, ok, err := first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "held", Prefix: dohost.KeyOf(role), Reverse: true})
	return ok && !v.leaseLapsed(t.Lease), err
}

// handleOffline handles an offline role with a pending task: it requests a restart if the role is managed, and reports it as unattended if its
// oldest task has waited for Pending. Every event after which a role may be offline, or have a pending task, calls it.
func (v *view) handleOffline(ctx context.Context, name, reason string) error {
	r, ok, err := get(ctx, v.Pool, &roles, name)
	if err != nil || !ok {
		return err
	}
	oldest, waits, err := v.head(ctx, name)
	if err != nil || !waits {
		return err
	}
	offline, err := v.offline(ctx, &r)
	if err != nil || !offline {
		return err
	}
	before := r
	if age := v.now.Sub(oldest.Since); age >= v.options.Pending && !r.Warned {
		r.Warned = true
		v.Object().Report(ctx, "pool:unattended", attrRole(name), attrTask(&oldest), slog.Bool("managed", r.Managed), slog.Duration("age", age))
	}
	if r.Managed {
		if err := v.request(ctx, &r, reason); err != nil {
			return err
		}
	}
	if r == before {
		return nil
	}
	return roles.Put(ctx, v.Storage(), r)
}

// request requests a restart of a role, unless one is requested already, or the role is given up.
func (v *view) request(ctx context.Context, r *role, reason string) error {
	if r.GivenUp {
		return nil
	}
	if _, requested, err := get(ctx, v.Pool, &commands, r.Name); err != nil || requested {
		return err
	}
	if r.Restarts >= v.options.MaxRestarts {
		r.GivenUp, r.Reason = true, shorten(reason, maxReason)
		v.Object().Report(ctx, "pool:given_up", attrRole(r.Name), slog.Int("restarts", r.Restarts), attrReason(reason))
		return nil
	}
	after := v.now
	if r.Restarts > 0 {
		after = v.now.Add(backoff.Delay(r.Restarts-1, v.options.RestartDelay, max(maxDelay, v.options.RestartDelay)))
	}
	reason = shorten(reason, maxReason)
	r.Restarts++
	r.Number++
	r.Reason, r.Asked = reason, v.now
	r.Starting = time.Time{}
	c := command{Role: r.Name, Number: r.Number, Reason: reason, Asked: v.now, After: after}
	if err := commands.Insert(ctx, v.Storage(), c); err != nil {
		return err
	}
	v.daemons.wakeDaemons(r.Name)
	v.Object().Report(ctx, "pool:restart", attrRole(r.Name), slog.Uint64("number", r.Number), attrReason(reason))
	return nil
}

func attrRole(name string) slog.Attr     { return slog.String("role", name) }
func attrTask(t *taskRow) slog.Attr      { return slog.String("task", t.ID) }
func attrReason(reason string) slog.Attr { return slog.String("reason", reason) }

// RoleState is a state of a role: see [Role.State].
type RoleState string

// The states of a role. Several of the fields GivenUp, Busy, Reachable, Requested and Starting of a [Role] may be set.
const (
	RoleGivenUp   RoleState = "given-up"  // the pool requests no further restart
	RoleBusy      RoleState = "busy"      // one of its tasks has a lease that ends in the future
	RoleReachable RoleState = "reachable" // it has a worker with an Until in the future
	RoleRequested RoleState = "requested" // the pool requests a restart, which no daemon has taken
	RoleStarting  RoleState = "starting"  // a daemon has taken a restart
	RoleOffline   RoleState = "offline"   // no other state
)

// State returns the first of the states that the role is in, in the order of the constants. A role may be in several, such as busy and
// reachable: its fields have all of them.
func (r *Role) State() RoleState {
	switch {
	case r.GivenUp:
		return RoleGivenUp
	case r.Busy:
		return RoleBusy
	case r.Reachable:
		return RoleReachable
	case r.Requested != nil:
		return RoleRequested
	case r.Starting != nil:
		return RoleStarting
	}
	return RoleOffline
}

// Role is a role of a pool.
type Role struct {
	Name      string     `json:"name"`
	Managed   bool       `json:"managed"`
	Reachable bool       `json:"reachable"` // it has a worker whose Until is in the future
	Until     *time.Time `json:"until,omitempty"`
	Busy      bool       `json:"busy"`                // one of its tasks has a lease that ends in the future
	Waiting   bool       `json:"waiting"`             // it has a pending task
	Requested *Command   `json:"requested,omitempty"` // the restart that the pool requests
	Starting  *time.Time `json:"starting,omitempty"`  // the deadline of the restart that a daemon has taken
	Restarts  int        `json:"restarts"`            // since the last stable worker, task handed off, or Declare
	GivenUp   bool       `json:"given_up"`            // the pool requests no further restart
}

// CheckRole returns an [ErrInvalid] for a text that cannot be the name of a role: 1 to 128 printable ASCII characters without spaces.
func CheckRole(role string) error { return checkNames("role", role) }
