package pool

import (
	"context"
	"fmt"
	"iter"
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
func extension() *dohost.ClassExtension {
	return &dohost.ClassExtension{
		Kinds: []string{roleItem, workerItem, taskItem}, Inspect: inspect,
		Admin: func(ctx context.Context, _ *dohost.State, object any, r *dohost.AdminRequest) (bool, error) {
			return object.(*Pool).operate(ctx, r)
		},
	}
}

// inspect lists the roles, the workers, and the tasks that are not done. A done task is the result of a client, and there may be thousands.
func inspect(_ context.Context, s *dohost.Snapshot) iter.Seq2[dohost.Resource, error] {
	return func(yield func(dohost.Resource, error) bool) {
		requested := map[string]uint64{}
		for row, err := range commands.Scan(s, nil) {
			if err != nil {
				yield(dohost.Resource{}, err)
				return
			}
			requested[row.Key] = row.Value.Number
		}
		now := time.Now()
		_ = list(s, &roles, yield, func(r role) (dohost.Resource, bool) { return r.item(requested[r.Name]), true }) &&
			list(s, &workers, yield, func(w worker) (dohost.Resource, bool) { return w.item(now), true }) &&
			list(s, &tasks, yield, func(t taskRow) (dohost.Resource, bool) { return t.item(), t.Status != Done })
	}
}

// list yields the items of the rows of a collection, and reports whether the caller wants more.
func list[T any](s *dohost.Snapshot, of *dohost.Collection[T], yield func(dohost.Resource, error) bool, item func(T) (dohost.Resource, bool)) bool {
	for row, err := range of.Scan(s, nil) {
		if err != nil {
			yield(dohost.Resource{}, err)
			return false
		}
		if r, ok := item(row.Value); ok && !yield(r, nil) {
			return false
		}
	}
	return true
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// item describes a role. number is that of its requested restart; zero: none.
func (r *role) item(number uint64) dohost.Resource {
	d := dohost.Resource{Kind: roleItem, ID: r.Name, State: "attached", Counts: map[string]int64{"restarts": int64(r.Restarts)}}
	var parts []string
	if r.Managed {
		d.State = "managed"
		parts = append(parts, fmt.Sprint(r.Restarts, " restarts in succession"))
	}
	switch {
	case r.GivenUp:
		d.State, d.Can = "given-up", []dohost.Action{dohost.ActionRetry}
	case number != 0:
		d.State = "requested"
	case !r.Starting.IsZero():
		d.State = "starting"
		parts = append(parts, "until "+stamp(r.Starting))
	}
	if r.Warned {
		parts = append(parts, "unattended")
	}
	d.Text = strings.Join(parts, ", ")
	return d
}

// item describes a worker.
func (w *worker) item(now time.Time) dohost.Resource {
	state := "reachable"
	if !w.Until.After(now) {
		state = "unreachable"
	}
	return dohost.Resource{
		Kind: workerItem, ID: w.Role + "/" + w.Conn, State: state, Text: fmt.Sprintf("%q joined %s, reachable until %s", w.Name, stamp(w.Joined), stamp(w.Until)),
		Fields: map[string]string{"role": w.Role, "name": w.Name, "until": stamp(w.Until)},
	}
}

// item describes a task, without its text.
func (t *taskRow) item() dohost.Resource {
	d := dohost.Resource{
		Kind: taskItem, ID: t.ID, State: string(t.Status), Counts: map[string]int64{"attempts": int64(t.Attempts)},
		Fields: map[string]string{"role": t.Role, "created": stamp(t.Created), "since": stamp(t.Since)},
	}
	parts := []string{"role " + t.Role, "posted " + stamp(t.Created), fmt.Sprint(t.Attempts, " attempts")}
	if t.Status.held() {
		d.Fields["lease"] = stamp(t.Lease)
		parts = append(parts, "lease until "+stamp(t.Lease))
	} else {
		d.Can = append(d.Can, dohost.ActionDelete)
	}
	if t.Status == Failed {
		d.Can = append(d.Can, dohost.ActionRetry)
	}
	if t.Progress != "" {
		d.Fields["progress"] = t.Progress
		parts = append(parts, fmt.Sprintf("progress %q", t.Progress))
	}
	if t.Reason != "" {
		d.Fields["reason"] = t.Reason
		parts = append(parts, fmt.Sprintf("%q", t.Reason))
	}
	d.Text = strings.Join(parts, ", ")
	return d
}

// operate applies an action of an operator: it begins a role again that is given up, makes a failed task pending again with all of its
// attempts, or deletes a task that no worker has.
func (p *Pool) operate(ctx context.Context, r *dohost.AdminRequest) (done bool, err error) {
	if r.Kind == roleItem && r.Action == dohost.ActionRetry {
		row, ok, err := get(ctx, p, &roles, r.ID)
		if err != nil || !ok || !row.GivenUp {
			return false, err
		}
		return true, p.Declare(ctx, Declare{Role: row.Name, Managed: row.Managed})
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
		case err != nil || t.Status.held() || retry && t.Status != Failed:
			return err
		}
		if done = true; !retry {
			return v.forget(ctx, t)
		}
		t.Attempts = 0
		if err := v.again(ctx, &t, "an operator has retried it"); err != nil {
			return err
		}
		return v.attend(ctx, t.Role, "an operator has retried a task")
	})
	return done, err
}
