package pool

import (
	"fmt"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// description collects the fields of an item, and its text.
type description struct {
	dohost.Resource
	parts []string
}

func describe(kind, id string) *description {
	return &description{Resource: dohost.Resource{Kind: kind, ID: id, Counts: map[string]int64{}, Fields: map[string]string{}}}
}

// time adds a field of a time that is not zero, and words before it to the text.
func (d *description) time(field string, t time.Time, words string) {
	if t.IsZero() {
		return
	}
	d.Fields[field] = stamp(t)
	d.add(words + " " + stamp(t))
}

// text adds a field of a text that is not empty, and words before it to the text.
func (d *description) text(field, text, words string) {
	if text == "" {
		return
	}
	d.Fields[field] = text
	d.add(fmt.Sprintf("%s %q", words, text))
}

func (d *description) add(part string) { d.parts = append(d.parts, strings.TrimSpace(part)) }

func (d *description) resource() dohost.Resource {
	d.Text = strings.Join(d.parts, ", ")
	return d.Resource
}

// role lists a role. Four rows describe it, each the first of an index: its newest worker, its newest lease, its oldest pending task and
// its requested restart.
func (in *inspection) role(r role, _ dohost.Cursor) error {
	w, _, err := one(in, &workers, dohost.Query[worker]{Index: "role", Prefix: dohost.KeyOf(r.Name), Reverse: true})
	if err != nil {
		return err
	}
	held, busy, err := one(in, &tasks, dohost.Query[taskRow]{Index: "held", Prefix: dohost.KeyOf(r.Name), Reverse: true})
	if err != nil {
		return err
	}
	oldest, _, err := one(in, &tasks, dohost.Query[taskRow]{Index: "role", Prefix: roleStatus(r.Name, StatusPending)})
	if err != nil {
		return err
	}
	c, requested, err := one(in, &commands, dohost.Query[command]{Equal: dohost.Key(r.Name)})
	if err != nil {
		return err
	}
	busy = busy && held.Lease.After(in.now)
	d := describe(roleItem, r.Name)
	d.Can = []dohost.Action{dohost.ActionPost}
	d.Fields["role"], d.Fields["kind"] = r.Name, "attached"
	if r.Managed {
		d.Fields["kind"] = "managed"
	}
	d.add(d.Fields["kind"])
	public := Role{Reachable: w.Until.After(in.now), Busy: busy, Starting: timeOrNil(r.Starting), GivenUp: r.GivenUp}
	if requested {
		public.Requested = (*Command)(&c)
	}
	d.State = string(public.State())
	if r.GivenUp {
		d.Can = append(d.Can, dohost.ActionRetry)
	}
	d.time("until", w.Until, "reachable until")
	if busy {
		d.time("lease", held.Lease, "busy until")
	}
	if !r.Starting.IsZero() {
		d.time("starting", r.Starting, "starting until")
		d.text("daemon", r.Daemon, "by the daemon")
	}
	d.time("waiting", oldest.Since, "a task is pending since")
	if d.Counts["restarts"] = int64(r.Restarts); r.Managed {
		d.Counts["max_restarts"] = int64(in.options.MaxRestarts)
		d.add(fmt.Sprintf("%d of %d restarts in succession", r.Restarts, in.options.MaxRestarts))
	}
	if d.Counts["restart"] = int64(r.Number); r.Number > 0 {
		d.add(fmt.Sprint("restart ", r.Number))
		d.time("asked", r.Asked, "requested at")
		d.text("reason", r.Reason, "reason")
	}
	if requested {
		d.time("after", c.After, "not before")
	}
	if r.Warned {
		d.add("unattended")
	}
	return in.item(d.resource())
}

// worker lists a worker, with the first of its tasks.
func (in *inspection) worker(w worker, c dohost.Cursor) error {
	t, ok, err := one(in, &tasks, dohost.Query[taskRow]{Index: "conn", Prefix: dohost.KeyOf(w.Role) + dohost.KeyOf(w.Conn)})
	if err != nil {
		return err
	}
	d := describe(workerItem, w.Role+"/"+w.Conn)
	d.Cursor = textOf(c)
	if d.State = "reachable"; !w.Until.After(in.now) {
		d.State = "unreachable"
	}
	d.Fields["role"], d.Fields["conn"] = w.Role, w.Conn
	d.text("name", w.Name, "name")
	d.time("joined", w.Joined, "joined")
	d.time("until", w.Until, "reachable until")
	if ok {
		d.Fields["task"] = t.ID
		d.add("task " + t.ID)
	}
	return in.item(d.resource())
}

// task describes a task, without its text.
func (in *inspection) task(t *taskRow) dohost.Resource {
	d := describe(taskItem, t.ID)
	d.State = string(t.Status)
	d.Counts["attempts"], d.Counts["max_attempts"], d.Counts["late"] = int64(t.Attempts), int64(in.options.MaxAttempts), int64(t.Late)
	d.Counts["fence"] = int64(t.Fence)
	d.Fields["role"] = t.Role
	d.add("role " + t.Role)
	d.time("created", t.Created, "posted")
	d.time("since", t.Since, string(t.Status)+" since")
	d.add(fmt.Sprintf("%d of %d attempts", t.Attempts, in.options.MaxAttempts))
	if t.Fence > 0 {
		d.add(fmt.Sprint("fence ", t.Fence))
	}
	d.text("conn", t.Conn, "worker")
	if t.Status.held() {
		d.time("lease", t.Lease, "lease until")
		d.time("progress_by", t.ProgressBy, "progress due by")
	}
	if t.mayDelete() {
		d.Can = append(d.Can, dohost.ActionDelete)
	}
	if t.mayRetry() {
		d.Can = append(d.Can, dohost.ActionRetry)
	}
	d.text("key", t.Key, "key")
	d.text("progress", t.Progress, "progress")
	d.text("reason", t.Reason, "reason")
	if t.Late > 0 {
		d.add(fmt.Sprint(t.Late, " late results"))
	}
	return d.resource()
}
