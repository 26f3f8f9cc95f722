package pool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// The kinds of the items of a pool that operators see.
const (
	roleItem   = "pool-role"
	workerItem = "pool-worker"
	taskItem   = "pool-task"
)

// extension lists the items of a pool for operators, and applies their actions.
func extension(o *Options) dohost.ClassExtension {
	return dohost.ClassExtension{
		Kinds: []string{roleItem, workerItem, taskItem},
		Inspect: func(_ context.Context, s *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
			return func(yield func(dohost.Resource, error) bool) {
				in := inspection{Snapshot: s, options: o, now: time.Now(), yield: yield}
				if err := in.list(); err != nil && !errors.Is(err, errEnough) {
					yield(dohost.Resource{}, err)
				}
			}
		},
		Admin: func(ctx context.Context, _ *dohost.State, object any, r *dohost.AdminRequest) (bool, error) {
			return object.(*Pool).operate(ctx, r)
		},
	}
}

// errEnough ends a list whose reader wants no more items.
var errEnough = errors.New("pool: the reader wants no more items")

// inspection lists items of a pool as they are on the disk. It reads by the keys and the indexes that suit the query of the reader: a
// page of the tasks of a role costs the rows of that page.
type inspection struct {
	*dohost.Snapshot
	options *Options
	now     time.Time
	yield   func(dohost.Resource, error) bool
}

// list lists the roles, the workers, and the tasks that are not done. A done task is the result of a client, and there may be thousands:
// a query by its id, or by a role and the state done, lists it.
func (in *inspection) list() error {
	q := in.Query()
	if q.Kind == "" || q.Kind == roleItem {
		if err := each(in, &roles, nil, in.role); err != nil {
			return err
		}
	}
	if q.Kind == "" || q.Kind == workerItem {
		if err := in.listWorkers(q); err != nil {
			return err
		}
	}
	if q.Kind != "" && q.Kind != taskItem {
		return nil
	}
	if q.ID != "" {
		return in.oneTask(q.ID)
	}
	if name := q.Fields["role"]; name != "" {
		return in.listTasks(name, q)
	}
	return each(in, &roles, nil, func(r role, _ dohost.Cursor) error {
		return in.listTasks(r.Name, &dohost.DetailQuery{State: q.State})
	})
}

// each calls fn for the rows of a query.
func each[T any](in *inspection, of *dohost.Collection[T], q *dohost.Query[T], fn func(T, dohost.Cursor) error) error {
	for row, err := range of.Scan(in.Snapshot, q) {
		if err != nil {
			return err
		}
		if err := fn(row.Value, row.Cursor); err != nil {
			return err
		}
	}
	return nil
}

// one returns the first row of a query.
func one[T any](in *inspection, of *dohost.Collection[T], q dohost.Query[T]) (v T, ok bool, err error) {
	q.Limit = 1
	err = each(in, of, &q, func(row T, _ dohost.Cursor) error {
		v, ok = row, true
		return nil
	})
	return v, ok, err
}

func (in *inspection) item(d dohost.Resource) error {
	if !in.yield(d, nil) {
		return errEnough
	}
	return nil
}

// listWorkers lists workers in the order of their roles and connections, which heartbeats do not change.
func (in *inspection) listWorkers(q *dohost.DetailQuery) error {
	var rows dohost.Query[worker]
	if name := q.Fields["role"]; name != "" {
		rows.Prefix = dohost.KeyOf(name)
	}
	if q.Kind == workerItem {
		var err error
		if rows.After, err = cursorOf(q.After); err != nil {
			return err
		}
	}
	return each(in, &workers, &rows, in.worker)
}

// listed are the states of the tasks of a list without a state, in its order.
var listed = []Status{StatusRunning, StatusAcknowledged, StatusPending, StatusFailed}

// listTasks lists the tasks of a role: the tasks of each state in the order of the posts, ended tasks in the reverse order.
func (in *inspection) listTasks(name string, q *dohost.DetailQuery) error {
	states := listed
	if q.State != "" {
		states = []Status{Status(q.State)}
	}
	from, after, _ := strings.Cut(q.After, ".")
	for _, state := range states {
		if from != "" && from != string(state) {
			continue
		}
		cursor, err := cursorOf(after)
		if err != nil {
			return err
		}
		from, after = "", ""
		rows := dohost.Query[taskRow]{Index: "role", Prefix: roleStatus(name, state), After: cursor, Reverse: state.ended()}
		err = each(in, &tasks, &rows, func(t taskRow, c dohost.Cursor) error {
			d := in.task(&t)
			d.Cursor = string(t.Status) + "." + textOf(c)
			return in.item(d)
		})
		if err != nil {
			return err
		}
	}
	if from != "" {
		return badCursor(q.After)
	}
	return nil
}

// oneTask lists the task of an id, with its content.
func (in *inspection) oneTask(id string) error {
	seq, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil
	}
	t, ok, err := one(in, &tasks, dohost.Query[taskRow]{Equal: dohost.KeyOf(seq)})
	if err != nil || !ok {
		return err
	}
	c, _, err := one(in, &contents, dohost.Query[content]{Equal: dohost.Key(t.ID)})
	if err != nil {
		return err
	}
	d := in.task(&t)
	d.Fields["text"], d.Fields["result"] = shorten(c.Text, maxSeen), shorten(string(c.Result), maxSeen)
	for i, l := range c.Late {
		d.Fields[fmt.Sprint("late", i+1)] = fmt.Sprintf("fence %d, %s: %s", l.Fence, stamp(l.At), shorten(string(l.Result), maxSeen))
	}
	return in.item(d)
}

// maxSeen bounds the bytes of a text or a result that an operator sees.
const maxSeen = 4 << 10

func textOf(c dohost.Cursor) string { return base64.RawURLEncoding.EncodeToString([]byte(c)) }

func cursorOf(text string) (c dohost.Cursor, err error) {
	if c.UnmarshalText([]byte(text)) != nil {
		return "", badCursor(text)
	}
	return c, nil
}

func badCursor(text string) error {
	return &dohost.ArgumentError{Method: "details", Err: fmt.Errorf("after %.40q: want the next of a list", text)}
}

// mayRetry reports whether an operator may make the task pending again.
func (t *taskRow) mayRetry() bool {
	return t.Status == StatusFailed && !t.Cancelled && !(t.Once && t.Started)
}

// mayDelete reports whether an operator may delete the task.
func (t *taskRow) mayDelete() bool { return !t.Status.held() && !t.unnotified() }

// operate applies an action of an operator: it posts a task, begins a role again that is given up, makes a failed task pending again with
// all of its attempts, or deletes a task that no worker has. A pending task whose agent is to be notified fails before it is deleted. A task
// that is done once has no retry after a start, and a cancelled task has none: its call may have ended.
func (p *Pool) operate(ctx context.Context, r *dohost.AdminRequest) (done bool, err error) {
	if r.Kind == roleItem {
		return p.operateRole(ctx, r)
	}
	retry := r.Action == dohost.ActionRetry
	if r.Kind != taskItem || !retry && r.Action != dohost.ActionDelete {
		return false, nil
	}
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		t, err := p.find(ctx, r.ID)
		switch {
		case t.ID == "" && isRefusal(err):
			return nil
		case err != nil || retry && !t.mayRetry() || !retry && !t.mayDelete():
			return err
		}
		done = true
		switch {
		case !retry && t.Notify != nil && !t.Status.ended():
			return v.withdraw(ctx, &t, "an operator has deleted it")
		case !retry:
			return v.forget(ctx, t)
		}
		t.Attempts = 0
		if err := v.again(ctx, &t, "an operator has retried it"); err != nil {
			return err
		}
		return v.handleOffline(ctx, t.Role, "an operator has retried a task")
	})
	return done, err
}

// operatorTask is the Result of an ActionPost. A repeated request with a key that is not empty has no effect.
type operatorTask struct{ text, key string }

// operatorTaskOf decodes a Result. It refuses other fields, which the task would not have, and a missing text.
func operatorTaskOf(result []byte) (n operatorTask, err error) {
	var fields map[string]string
	err = json.Unmarshal(result, &fields)
	text, ok := fields["text"]
	n = operatorTask{text, fields["key"]}
	delete(fields, "text")
	delete(fields, "key")
	if err != nil || !ok || len(fields) > 0 {
		return n, refuse(ErrInvalid, `the result is not {"text": ..., "key": ...}`)
	}
	return n, nil
}

// operateRole applies an action of an operator to a role.
func (p *Pool) operateRole(ctx context.Context, r *dohost.AdminRequest) (done bool, err error) {
	row, ok, err := get(ctx, p, &roles, r.ID)
	switch {
	case err != nil || !ok:
		return false, err
	case r.Action == dohost.ActionRetry && row.GivenUp:
		return true, p.Declare(ctx, DeclareRequest{Role: row.Name, Managed: row.Managed})
	case r.Action == dohost.ActionPost:
		n, err := operatorTaskOf(r.Result)
		if err == nil {
			_, err = p.Post(ctx, NewTask{Role: row.Name, Text: n.text, Key: n.key})
		}
		return err == nil, err
	}
	return false, nil
}
