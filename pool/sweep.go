package pool

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/dohost/dohost"
)

// swept counts the work of a sweep.
type swept struct {
	workers, tasks, forgotten int
	roles                     map[string]string // that may be offline, with the reason
}

// sweep removes lapsed workers, ends lapsed claims, and handles the roles of both if they are offline. It is the callback of the schedule. Each turn of it
// is one transaction: if the incarnation ends, the schedule begins the sweep again, and finds the rows that remain.
func (p *Pool) sweep(ctx context.Context) error {
	total := swept{}
	for more := true; more; {
		s := swept{roles: map[string]string{}}
		err := p.update(ctx, func(ctx context.Context, v *view) (err error) {
			if v.suspended {
				v.meta.Up, v.suspended = v.now, false
			}
			v.meta.Swept = v.now
			more, err = v.sweepTurn(ctx, &s)
			if err != nil || more {
				return err
			}
			return v.stop(ctx)
		})
		if err != nil {
			return err
		}
		total.workers += s.workers
		total.tasks += s.tasks
		total.forgotten += s.forgotten
		if more {
			if err := dohost.AwaitDurable(ctx); err != nil {
				return err
			}
		}
	}
	if total.workers+total.tasks > 0 {
		p.Object().Report(ctx, "pool:swept", slog.Int("workers", total.workers), slog.Int("tasks", total.tasks), slog.Int("forgotten", total.forgotten))
	}
	return nil
}

// sweepTurn handles up to sweepBatch rows of each kind, and reports whether others remain. Nothing lapses in the first TTL of the host,
// so until then only tasks that have ended are removed.
func (v *view) sweepTurn(ctx context.Context, s *swept) (more bool, err error) {
	steps := []func(context.Context, *swept) (int, error){v.sweepEnded, v.sweepDeadlines}
	if !v.now.Before(v.meta.Up.Add(v.options.TTL)) {
		steps = append(steps, v.sweepFuture, v.sweepWorkers, v.sweepTasks, v.sweepRoles)
	}
	for _, step := range steps {
		n, err := step(ctx, s)
		if err != nil {
			return false, err
		}
		more = more || n == sweepBatch
	}
	for _, name := range slices.Sorted(maps.Keys(s.roles)) {
		if err := v.handleOffline(ctx, name, s.roles[name]); err != nil {
			return false, err
		}
	}
	return more, nil
}

// lapsedRows returns the first rows of an index of times whose time is not in the future.
func lapsedRows[T any](ctx context.Context, p *Pool, c *dohost.Collection[T], index string, now time.Time) ([]dohost.Row[T], error) {
	return c.List(ctx, p.Storage(), &dohost.Query[T]{Index: index, End: dohost.KeyOf(now).PrefixEnd(), Limit: sweepBatch})
}

// sweepFuture shortens times that are further in the future than the options allow: the clock was set back, or the options have changed.
func (v *view) sweepFuture(ctx context.Context, _ *swept) (int, error) {
	latest := v.now.Add(v.options.TTL)
	rows, err := workers.List(ctx, v.Storage(), &dohost.Query[worker]{Index: "until", Start: dohost.KeyOf(latest).PrefixEnd(), Limit: sweepBatch})
	for _, row := range rows {
		w := row.Value
		w.Until = latest
		if w.Joined.After(v.now) {
			w.Joined = v.now
		}
		if err = workers.Put(ctx, v.Storage(), w); err != nil {
			return 0, err
		}
	}
	n := len(rows)
	if err != nil {
		return 0, err
	}
	latest = v.now.Add(max(v.options.TTL, v.options.Lease, v.options.Acknowledged))
	held, err := tasks.List(ctx, v.Storage(), &dohost.Query[taskRow]{Index: "check", Start: dohost.KeyOf(latest).PrefixEnd(), Limit: sweepBatch})
	for _, row := range held {
		t := row.Value
		t.Lease = latest
		if err = v.putHeld(ctx, &t); err != nil {
			return 0, err
		}
	}
	return max(n, len(held)), err
}

// sweepWorkers removes the workers that are not reachable any more.
func (v *view) sweepWorkers(ctx context.Context, s *swept) (int, error) {
	rows, err := lapsedRows(ctx, v.Pool, &workers, "until", v.now)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		w := row.Value
		if err := v.remove(ctx, w, w.Until.Add(-v.options.TTL)); err != nil {
			return 0, err
		}
		s.workers++
		s.roles[w.Role] = "its worker has sent no heartbeat"
	}
	return len(rows), nil
}

// sweepTasks ends the claims that have lapsed.
func (v *view) sweepTasks(ctx context.Context, s *swept) (int, error) {
	rows, err := lapsedRows(ctx, v.Pool, &tasks, "check", v.now)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		t := row.Value
		reason, next, err := v.overdue(ctx, &t)
		switch {
		case err != nil:
			return 0, err
		case reason == "": // it is not touched
			t.Check = next
			err = tasks.Put(ctx, v.Storage(), t)
		default:
			s.tasks++
			s.roles[t.Role] = reason
			err = v.endClaim(ctx, &t, reason)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// sweepDeadlines ends the tasks whose deadlines are over.
func (v *view) sweepDeadlines(ctx context.Context, s *swept) (int, error) {
	rows, err := lapsedRows(ctx, v.Pool, &tasks, "deadline", v.now)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		t := row.Value
		if err := v.expire(ctx, &t); err != nil {
			return 0, err
		}
		s.roles[t.Role] = "a task was not done by its deadline"
	}
	return len(rows), nil
}

// overdue returns the reason for taking a task back, or the time of the next check, which is in the future.
func (v *view) overdue(ctx context.Context, t *taskRow) (reason string, next time.Time, err error) {
	if !t.ProgressBy.IsZero() && v.leaseLapsed(t.ProgressBy) {
		return "its worker has made no progress", next, nil
	}
	if v.leaseLapsed(t.Lease) {
		if t.Status == StatusRunning {
			return "the lease of its worker has lapsed", next, nil
		}
		w, ok, err := get(ctx, v.Pool, &workers, workerKey(t.Role, t.Conn))
		if err != nil {
			return "", next, err
		}
		if !ok || v.lapsed(w.Until) {
			return "its worker is gone, and has not started it", next, nil
		}
		next = w.Until // it is reachable until then
	} else {
		next = later(t.Lease, v.leaseGrace())
	}
	if by := later(t.ProgressBy, v.leaseGrace()); !t.ProgressBy.IsZero() && by.Before(next) {
		next = by
	}
	return "", next, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sweepRoles attends to the roles that are due, and forgets unused ones.
func (v *view) sweepRoles(ctx context.Context, s *swept) (int, error) {
	rows, err := lapsedRows(ctx, v.Pool, &roles, "check", v.now)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := v.sweepRole(ctx, row.Value, s); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (v *view) sweepRole(ctx context.Context, r role, s *swept) error {
	if !r.Starting.IsZero() && v.lapsed(r.Starting) {
		r.Starting = time.Time{}
		s.roles[r.Name] = "the restart has not led to a worker in time"
		v.Object().Report(ctx, "pool:start_lapsed", attrRole(r.Name), slog.Uint64("number", r.Number))
	}
	oldest, waits, err := v.head(ctx, r.Name)
	if err != nil {
		return err
	}
	if waits && oldest.Since.After(v.now) { // the clock was set back
		oldest.Since = v.now
		if err := tasks.Put(ctx, v.Storage(), oldest); err != nil {
			return err
		}
	}
	r.Check = r.Starting
	switch {
	case waits:
		next := oldest.Since.Add(v.options.Pending)
		if !next.After(v.now) {
			next = v.now.Add(v.options.Pending)
			if _, ok := s.roles[r.Name]; !ok {
				s.roles[r.Name] = "its oldest task is unattended"
			}
		}
		r.checkBy(next)
	case !r.Managed:
		used, err := v.used(ctx, r.Name)
		if err != nil {
			return err
		}
		end := r.Seen.Add(v.options.Keep)
		if !used && !end.After(v.now) {
			_, err := roles.Delete(ctx, v.Storage(), r.Name)
			return err
		}
		if !end.After(v.now) {
			end = v.now.Add(v.options.Keep)
		}
		r.checkBy(end)
	}
	return roles.Put(ctx, v.Storage(), r)
}

// used reports whether a role has workers or tasks.
func (v *view) used(ctx context.Context, name string) (bool, error) {
	_, ok, err := first(ctx, v.Pool, &workers, dohost.Query[worker]{Index: "role", Prefix: dohost.KeyOf(name)})
	if err != nil || ok {
		return ok, err
	}
	_, ok, err = first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "role", Prefix: dohost.KeyOf(name)})
	return ok, err
}

// sweepEnded forgets tasks that have ended long ago.
func (v *view) sweepEnded(ctx context.Context, s *swept) (int, error) {
	rows, err := lapsedRows(ctx, v.Pool, &tasks, "ended", v.now.Add(-v.options.Keep))
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if err := v.forget(ctx, row.Value); err != nil {
			return 0, err
		}
		s.forgotten++
	}
	return len(rows), nil
}

// stop ends the schedule if there is nothing to sweep.
func (v *view) stop(ctx context.Context) error {
	if v.meta.Workers > 0 || v.meta.Tasks > 0 || v.meta.Sweep == "" {
		return nil
	}
	_, due, err := first(ctx, v.Pool, &roles, dohost.Query[role]{Index: "check"})
	if err != nil || due {
		return err
	}
	_, err = v.Schedules().Cancel(ctx, v.meta.Sweep)
	v.meta.Sweep = ""
	return err
}
