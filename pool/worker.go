package pool

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost"
)

// JoinRequest makes a connection a worker of a role.
type JoinRequest struct {
	Role string `json:"role"`
	// Conn identifies the connection: a random text that the worker has drawn for it, and no other worker uses. Later requests with it are
	// requests of this worker. It has 1 to 128 printable ASCII characters without spaces.
	Conn string `json:"conn"`
	Name string `json:"name,omitempty"` // for people: up to 128 bytes
}

// JoinResponse is the answer to a [JoinRequest]. The times are the times of the pool's options, in milliseconds.
type JoinResponse struct {
	Until       time.Time `json:"until"` // by the pool's clock
	HeartbeatMS int64     `json:"beat_ms"`
	TTLMS       int64     `json:"ttl_ms"`
	LeaseMS     int64     `json:"lease_ms"`
}

// Join makes a connection a worker, which is reachable for one TTL. It creates the role if there is none. The join ends a restart of the
// role that was requested or begun, and the state given up. A repeated Join of the connection is a heartbeat.
//
// Errors: [ErrFull] if the pool has Options.MaxWorkers workers, or 256 other roles.
func (p *Pool) Join(ctx context.Context, j JoinRequest) (joined JoinResponse, err error) {
	if err := checkNames("role", j.Role, "conn", j.Conn); err != nil {
		return JoinResponse{}, err
	}
	if err := checkText("name", j.Name, maxName); err != nil {
		return JoinResponse{}, err
	}
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		until := v.now.Add(p.options.TTL)
		joined = JoinResponse{until, p.options.Heartbeat.Milliseconds(), p.options.TTL.Milliseconds(), p.options.Lease.Milliseconds()}
		w, known, err := get(ctx, p, &workers, workerKey(j.Role, j.Conn))
		if err != nil {
			return err
		}
		if !known {
			if v.meta.Workers >= p.options.MaxWorkers {
				return refuse(ErrFull, "the pool has %d workers, and takes no more", v.meta.Workers)
			}
			w = worker{Role: j.Role, Conn: j.Conn, Joined: v.now}
			v.meta.Workers++
		}
		w.Name, w.Until = j.Name, until
		if err := workers.Put(ctx, p.Storage(), w); err != nil {
			return err
		}
		if err := v.joined(ctx, j.Role); err != nil {
			return err
		}
		return v.needSweep(ctx)
	})
	return joined, err
}

// joined records that a role has a worker.
func (v *view) joined(ctx context.Context, name string) error {
	r, ok, err := get(ctx, v.Pool, &roles, name)
	if err != nil {
		return err
	}
	if !ok {
		if err := v.checkRoles(ctx); err != nil {
			return err
		}
		r = role{Name: name}
	}
	if !r.Managed {
		r.checkBy(v.now.Add(v.options.Keep))
	}
	r.Seen, r.Starting, r.GivenUp, r.Warned = v.now, time.Time{}, false, false
	if err := roles.Put(ctx, v.Storage(), r); err != nil {
		return err
	}
	_, err = commands.Delete(ctx, v.Storage(), name)
	return err
}

// checkRoles refuses a new role if there are too many.
func (v *view) checkRoles(ctx context.Context) error {
	n, err := roles.Count(ctx, v.Storage(), nil)
	if err == nil && n >= maxRoles {
		err = refuse(ErrFull, "the pool has %d roles, and takes no more", n)
	}
	return err
}

// HeartbeatRequest is a heartbeat of a worker.
type HeartbeatRequest struct {
	Role string `json:"role"`
	Conn string `json:"conn"`
}

// HeartbeatResponse is the answer to a [HeartbeatRequest].
type HeartbeatResponse struct {
	Until time.Time `json:"until"` // by the pool's clock
}

// Heartbeat makes a worker reachable for one more TTL. It does not create a worker: one that was removed joins again.
//
// Errors: [ErrStale].
func (p *Pool) Heartbeat(ctx context.Context, b HeartbeatRequest) (answer HeartbeatResponse, err error) {
	if err := checkNames("role", b.Role, "conn", b.Conn); err != nil {
		return HeartbeatResponse{}, err
	}
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		w, err := v.beat(ctx, b.Role, b.Conn)
		answer.Until = w.Until
		return err
	})
	return answer, err
}

// beat makes a worker reachable for one more TTL.
func (v *view) beat(ctx context.Context, role, conn string) (worker, error) {
	w, ok, err := get(ctx, v.Pool, &workers, workerKey(role, conn))
	if err != nil {
		return worker{}, err
	}
	if !ok {
		return worker{}, stale(role)
	}
	w.Until = v.now.Add(v.options.TTL)
	return w, workers.Put(ctx, v.Storage(), w)
}

func stale(role string) error {
	return refuse(ErrStale, "the connection is no worker of the role %q: join again", role)
}

// LeaveRequest ends a connection.
type LeaveRequest struct {
	Role string `json:"role"`
	Conn string `json:"conn"`
}

// Leave removes the worker of a connection. Its claims remain: it may still start its tasks, renew their leases and
// hand them off. A worker that does not intend to do so releases them first.
//
// Errors: [ErrStale].
func (p *Pool) Leave(ctx context.Context, l LeaveRequest) error {
	if err := checkNames("role", l.Role, "conn", l.Conn); err != nil {
		return err
	}
	err := p.update(ctx, func(ctx context.Context, v *view) error {
		w, ok, err := get(ctx, p, &workers, workerKey(l.Role, l.Conn))
		if err != nil {
			return err
		}
		if !ok {
			return stale(l.Role)
		}
		if err := v.remove(ctx, w, v.now); err != nil {
			return err
		}
		return v.handleOffline(ctx, l.Role, "its worker has left")
	})
	if err == nil {
		p.endWait(l.Role, l.Conn)
	}
	return err
}

// remove removes a worker, which was last reachable at a time.
func (v *view) remove(ctx context.Context, w worker, last time.Time) error {
	if _, err := workers.Delete(ctx, v.Storage(), workerKey(w.Role, w.Conn)); err != nil {
		return err
	}
	v.meta.Workers--
	r, ok, err := get(ctx, v.Pool, &roles, w.Role)
	if err != nil || !ok {
		return err
	}
	r.Seen = v.now
	if last.Sub(w.Joined) >= v.options.Stable {
		r.Restarts = 0
	}
	return roles.Put(ctx, v.Storage(), r)
}

// reachable reports whether a role has a worker that may be reachable.
func (v *view) reachable(ctx context.Context, role string) (bool, error) {
	w, ok, err := first(ctx, v.Pool, &workers, dohost.Query[worker]{Index: "role", Prefix: dohost.KeyOf(role), Reverse: true})
	return ok && !v.lapsed(w.Until), err
}

// checkNames refuses names that are missing, too long, or not printable ASCII without spaces: programs write them to terminals. The
// arguments are pairs of a field and its value.
func checkNames(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i+1]
		odd := strings.IndexFunc(name, func(c rune) bool { return c <= ' ' || c > '~' })
		if name == "" || len(name) > maxName || odd >= 0 {
			return refuse(ErrInvalid, "%s is %.40q: want 1 to %d printable ASCII characters without spaces", pairs[i], name, maxName)
		}
	}
	return nil
}

// checkText refuses a text that is too long or not UTF-8.
func checkText(field, text string, most int) error {
	if len(text) > most {
		return refuse(ErrInvalid, "%s has %d bytes: want at most %d", field, len(text), most)
	}
	if !utf8.ValidString(text) {
		return refuse(ErrInvalid, "%s is not UTF-8", field)
	}
	return nil
}

// Worker is a worker of a pool.
type Worker struct {
	Role      string    `json:"role"`
	Conn      string    `json:"conn"`
	Name      string    `json:"name,omitempty"`
	Joined    time.Time `json:"joined"`
	Until     time.Time `json:"until"`
	Reachable bool      `json:"reachable"` // Until is in the future
}
