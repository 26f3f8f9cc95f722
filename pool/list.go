package pool

import (
	"context"

	"github.com/dohost/dohost"
)

// ListQuery selects rows of a list. A list of tasks ends early when the keys, reasons and progress of its tasks exceed 128 KiB.
type ListQuery struct {
	Role   string `json:"role"`             // of the rows; workers and tasks need one
	Status Status `json:"status,omitempty"` // of tasks; empty: any
	Limit  int    `json:"limit,omitempty"`  // 1 to 1,000; zero means 100
	// After continues a list after the Next of the one before.
	After dohost.Cursor `json:"after,omitempty"`
}

// checked returns the limit of the query.
func (q *ListQuery) checked() (limit int, err error) {
	if q.Limit < 0 || q.Limit > maxListed {
		return 0, refuse(ErrInvalid, "limit is %d: want 1 to %d, or 0 for 100", q.Limit, maxListed)
	}
	if limit = q.Limit; limit == 0 {
		limit = 100
	}
	return limit, checkNames("role", q.Role)
}

// TaskList is a list of tasks.
type TaskList struct {
	Tasks []Task        `json:"tasks"`
	Next  dohost.Cursor `json:"next,omitempty"` // empty at the end
}

// Tasks lists the tasks of a role, by status in alphabetical order, and then in the order of the posts. They have no text and no results.
func (p *Pool) Tasks(ctx context.Context, q ListQuery) (TaskList, error) {
	limit, err := q.checked()
	if err != nil {
		return TaskList{}, err
	}
	prefix := dohost.KeyOf(q.Role)
	if q.Status != "" {
		if !q.Status.held() && !q.Status.ended() && q.Status != StatusPending {
			return TaskList{}, refuse(ErrInvalid, "status is %.40q: want pending, acknowledged, running, done or failed", q.Status)
		}
		prefix = roleStatus(q.Role, q.Status)
	}
	list, bytes := TaskList{Tasks: []Task{}}, 0
	for row, err := range tasks.All(ctx, p.Storage(), &dohost.Query[taskRow]{Index: "role", Prefix: prefix, After: q.After, Limit: limit}) {
		if err != nil {
			return TaskList{}, err
		}
		t := row.Value
		list.Tasks = append(list.Tasks, t.public(content{}))
		if bytes += len(t.Key) + len(t.Reason) + len(t.Progress); len(list.Tasks) == limit || bytes > maxListedText {
			list.Next = row.Cursor
			break
		}
	}
	return list, nil
}

// WorkerList is a list of workers.
type WorkerList struct {
	Workers []Worker      `json:"workers"`
	Next    dohost.Cursor `json:"next,omitempty"` // empty at the end
}

// Workers lists the workers of a role, in the order of their last heartbeats. A worker that is not reachable is listed until the sweep
// removes it.
func (p *Pool) Workers(ctx context.Context, q ListQuery) (WorkerList, error) {
	limit, err := q.checked()
	if err != nil {
		return WorkerList{}, err
	}
	now := p.clock()
	rows, err := workers.List(ctx, p.Storage(), &dohost.Query[worker]{Index: "role", Prefix: dohost.KeyOf(q.Role), After: q.After, Limit: limit})
	list := WorkerList{Workers: make([]Worker, 0, len(rows))}
	for _, row := range rows {
		w := row.Value
		list.Workers = append(list.Workers, Worker{w.Role, w.Conn, w.Name, w.Joined, w.Until, w.Until.After(now)})
	}
	if len(rows) == limit {
		list.Next = rows[limit-1].Cursor
	}
	return list, err
}

// RoleList is the list of roles.
type RoleList struct {
	Roles []Role `json:"roles"`
}

// Roles lists all roles, at most 256, in the order of their names.
func (p *Pool) Roles(ctx context.Context) (RoleList, error) {
	v, err := p.view(ctx)
	if err != nil {
		return RoleList{}, err
	}
	rows, err := roles.List(ctx, p.Storage(), nil)
	list := RoleList{Roles: make([]Role, 0, len(rows))}
	for _, row := range rows {
		if err != nil {
			break
		}
		var r Role
		r, err = v.role(ctx, row.Value)
		list.Roles = append(list.Roles, r)
	}
	return list, err
}

func (v *view) role(ctx context.Context, r role) (out Role, err error) {
	out = Role{Name: r.Name, Managed: r.Managed, Restarts: r.Restarts, GivenUp: r.GivenUp, Starting: timeOrNil(r.Starting)}
	w, ok, err := first(ctx, v.Pool, &workers, dohost.Query[worker]{Index: "role", Prefix: dohost.KeyOf(r.Name), Reverse: true})
	if err != nil {
		return Role{}, err
	}
	if ok {
		out.Reachable, out.Until = w.Until.After(v.now), &w.Until
	}
	t, ok, err := first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "held", Prefix: dohost.KeyOf(r.Name), Reverse: true})
	if err != nil {
		return Role{}, err
	}
	out.Busy = ok && t.Lease.After(v.now)
	if _, out.Waiting, err = v.head(ctx, r.Name); err != nil {
		return Role{}, err
	}
	c, ok, err := get(ctx, v.Pool, &commands, r.Name)
	if ok {
		out.Requested = (*Command)(&c)
	}
	return out, err
}
