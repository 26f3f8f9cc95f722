package pool

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// MaxWithin is the longest deadline of a task.
const MaxWithin = 365 * 24 * time.Hour

// NewTask is a task to be posted.
type NewTask struct {
	Role string `json:"role"` // see [CheckRole]
	Text string `json:"text"` // UTF-8 of up to Options.MaxText bytes
	// Key makes a repeated post harmless: a second post with the key returns the task of the first, while the pool keeps it. Its other fields,
	// apart from WithinMS, must be equal. It is UTF-8 of up to 256 bytes without a zero byte. Empty means none.
	Key string `json:"key,omitempty"`
	// Once limits the task to one start: the task fails if the claim of a worker that has started it ends
	// without a handoff, for any reason. Claims that end before the start do not count, except against MaxAttempts.
	Once bool `json:"once,omitempty"`

	// WithinMS is the time from the post, in milliseconds, after which the task fails unless it has ended. The next sweep ends it, and no worker
	// can claim it before that. Zero means no bound. It is at most [MaxWithin].
	WithinMS int64 `json:"within_ms,omitempty"`

	// CreateRole creates the role if it does not exist, as one that is not managed. Only for posts in Go.
	CreateRole bool `json:"-"`
	// Notify names a callback that runs when the task has ended: at least once, and again if an operator retries a failed task that ends
	// again. The pool keeps the task until the callback is a schedule of its agent (see [agent.Schedule]), for up to Options.Keep. An operator
	// sees a callback that fails too often as a dead letter of the agent. An agent that was destroyed begins as a new one: its callback finds
	// no data. A repeated post may add it. Only for posts in Go. Nil notifies nothing.
	Notify *Notification `json:"-"`
}

// Task is a task of a pool.
type Task struct {
	ID       string    `json:"id"`
	Role     string    `json:"role"`
	Key      string    `json:"key,omitempty"`
	Status   Status    `json:"status"`
	Created  time.Time `json:"created"`
	Since    time.Time `json:"since"`    // of the Status
	Attempts int       `json:"attempts"` // claims, without released ones; since an operator has retried it
	// Reason is the reason why the task is pending again; of a failed task, its error.
	Reason string `json:"reason,omitempty"`
	Once   bool   `json:"once,omitempty"`
	// Uncertain is set if a worker has started the task, and the pool has no report of the end of that attempt, which may have had
	// effects: the lease has lapsed, the worker has ended or has released the task, or the task was cancelled.
	Uncertain bool `json:"uncertain,omitempty"`

	// Fence is the number of the last claim, and zero before the first one. Conn is the connection of that claim while the claim is current, and
	// after its worker has ended the task. Otherwise it is empty.
	Fence      uint64     `json:"fence"`
	Conn       string     `json:"conn,omitempty"`
	Lease      *time.Time `json:"lease,omitempty"`       // end of the lease, or the time to start the task
	ProgressBy *time.Time `json:"progress_by,omitempty"` // deadline of the next progress
	Deadline   *time.Time `json:"deadline,omitempty"`    // of the task
	Progress   string     `json:"progress,omitempty"`

	// A list of tasks has none of these.
	Text   string          `json:"text,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Late   []LateResult    `json:"late,omitempty"`
}

// public returns the task for callers.
func (t *taskRow) public(c content) Task {
	out := Task{
		ID: t.ID, Role: t.Role, Key: t.Key, Status: t.Status, Created: t.Created, Since: t.Since, Attempts: t.Attempts, Reason: t.Reason,
		Once: t.Once, Uncertain: t.Uncertain,
		Fence: t.Fence, Conn: t.Conn, Progress: t.Progress, Text: c.Text, Result: c.Result, Late: c.Late,
	}
	out.Deadline = timeOrNil(t.Deadline)
	if t.Status.held() {
		out.Lease, out.ProgressBy = timeOrNil(t.Lease), timeOrNil(t.ProgressBy)
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// whole returns the task with its content.
func (v *view) whole(ctx context.Context, t taskRow) (Task, error) {
	c, _, err := get(ctx, v.Pool, &contents, t.ID)
	return t.public(c), err
}

// Post posts a task, and wakes a worker of its role. If the role is managed and offline, it requests a restart of the role.
//
// Errors: [ErrNotFound] for a role that the pool does not have, unless n.CreateRole is set; [ErrKeyUsed]; [ErrFull].
func (p *Pool) Post(ctx context.Context, n NewTask) (task Task, err error) {
	if err := n.check(p.options); err != nil {
		return Task{}, err
	}
	err = p.update(ctx, func(ctx context.Context, v *view) error {
		r, ok, err := get(ctx, p, &roles, n.Role)
		if err != nil {
			return err
		}
		switch {
		case !ok && !n.CreateRole:
			return v.noRole(ctx, n.Role)
		case !ok:
			if err := v.checkRoles(ctx); err != nil {
				return err
			}
			r = role{Name: n.Role, Seen: v.now} // stored below, with the time of its check
		}
		if n.Key != "" {
			t, found, err := first(ctx, p, &tasks, dohost.Query[taskRow]{Index: "key", Equal: dohost.KeyOf(n.Key)})
			if err != nil {
				return err
			}
			if found {
				task, err = v.posted(ctx, t, n)
				return err
			}
		}
		if err := v.deleteEnded(ctx); err != nil {
			return err
		}
		v.meta.Seq++
		v.meta.Tasks++
		t := taskRow{
			ID: strconv.FormatUint(v.meta.Seq, 10), Seq: v.meta.Seq, Key: n.Key, Role: n.Role, Status: StatusPending, Created: v.now, Since: v.now,
			Once: n.Once, Notify: n.Notify,
		}
		if n.WithinMS > 0 {
			t.Deadline = v.now.Add(time.Duration(n.WithinMS) * time.Millisecond)
		}
		if err := tasks.Insert(ctx, p.Storage(), t); err != nil {
			return err
		}
		c := content{ID: t.ID, Text: n.Text}
		if err := contents.Insert(ctx, p.Storage(), c); err != nil {
			return err
		}
		task = t.public(c)
		before := r
		if r.checkBy(v.now.Add(p.options.Pending)); r != before {
			if err := roles.Put(ctx, p.Storage(), r); err != nil {
				return err
			}
		}
		v.wakeClaimer(n.Role)
		if err := v.needSweep(ctx); err != nil {
			return err
		}
		return v.handleOffline(ctx, n.Role, "a task was posted")
	})
	return task, err
}

// noRole refuses a role that does not exist, and names others: the caller may have misspelled it.
func (v *view) noRole(ctx context.Context, name string) error {
	rows, err := roles.List(ctx, v.Storage(), &dohost.Query[role]{Limit: maxNamed + 1})
	if err != nil {
		return err
	}
	var known strings.Builder
	for i, row := range rows {
		switch {
		case i == 0:
			known.WriteString("; its roles are ")
		case i == maxNamed:
			known.WriteString(", and others")
			continue
		default:
			known.WriteString(", ")
		}
		known.WriteString(row.Key)
	}
	return refuse(ErrNotFound, "the pool has no role %q: no worker has joined it, and no daemon has declared it%s", name, known.String())
}

// check refuses a task with an invalid field.
func (n *NewTask) check(o *Options) error {
	if err := checkNames("role", n.Role); err != nil {
		return err
	}
	if err := checkText("text", n.Text, o.MaxText); err != nil {
		return err
	}
	if err := checkText("key", n.Key, maxKey); err != nil {
		return err
	}
	if strings.ContainsRune(n.Key, 0) { // workers pass it on in the environment of a program
		return refuse(ErrInvalid, "key has a zero byte")
	}
	if longest := MaxWithin.Milliseconds(); n.WithinMS < 0 || n.WithinMS > longest {
		return refuse(ErrInvalid, "within_ms is %d: want 1 to %d, or 0 for no bound", n.WithinMS, longest)
	}
	return nil
}

// posted answers a post whose key belongs to a task. A post in Go may follow a post of a client with the same key, so posted adds its Notify.
func (v *view) posted(ctx context.Context, t taskRow, n NewTask) (Task, error) {
	task, err := v.whole(ctx, t)
	if n.Notify != nil && t.Notify != nil && *n.Notify != *t.Notify {
		return Task{}, refuse(ErrKeyUsed, "the key %.40q belongs to the task %s, which notifies another agent", n.Key, t.ID)
	}
	if err == nil && (task.Role != n.Role || task.Text != n.Text || task.Once != n.Once) {
		return Task{}, refuse(ErrKeyUsed, "the key %.40q belongs to the task %s, which has another role, text or once", n.Key, t.ID)
	}
	if err == nil && n.Notify != nil && t.Notify == nil {
		t.Notify = n.Notify
		err = tasks.Put(ctx, v.Storage(), t)
	}
	return task, err
}

// deleteEnded deletes the oldest task that has ended if the pool is full.
func (v *view) deleteEnded(ctx context.Context) error {
	if v.meta.Tasks < v.options.MaxTasks {
		return nil
	}
	oldest, ok, err := first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "ended"})
	if err != nil {
		return err
	}
	if !ok {
		return refuse(ErrFull, "the pool has %d tasks that have not ended, and takes no more", v.meta.Tasks)
	}
	return v.forget(ctx, oldest)
}

// forget deletes a task.
func (v *view) forget(ctx context.Context, t taskRow) error {
	v.meta.Tasks--
	if _, err := tasks.Delete(ctx, v.Storage(), tasks.Key(t)); err != nil {
		return err
	}
	_, err := contents.Delete(ctx, v.Storage(), t.ID)
	return err
}

// wakeClaimer wakes a worker that waits for a task of a role.
func (p *Pool) wakeClaimer(role string) {
	if ws := p.claimers[role]; ws != nil {
		ws.wakeOne()
	}
}

// head returns the oldest pending task of a role.
func (v *view) head(ctx context.Context, role string) (taskRow, bool, error) {
	return first(ctx, v.Pool, &tasks, dohost.Query[taskRow]{Index: "role", Prefix: roleStatus(role, StatusPending)})
}

// find returns the task of an id.
func (p *Pool) find(ctx context.Context, id string) (taskRow, error) {
	if seq, err := strconv.ParseUint(id, 10, 64); err == nil && strconv.FormatUint(seq, 10) == id {
		if t, ok, err := get(ctx, p, &tasks, string(dohost.KeyOf(seq))); err != nil || ok {
			return t, err
		}
	}
	return taskRow{}, refuse(ErrNotFound, "the pool has no task %.40q", id)
}

// TaskQuery names a task.
type TaskQuery struct {
	Task string `json:"task"`
}

// Task returns a task.
//
// Errors: [ErrNotFound].
func (p *Pool) Task(ctx context.Context, q TaskQuery) (Task, error) {
	t, err := p.find(ctx, q.Task)
	if err != nil {
		return Task{}, err
	}
	c, _, err := get(ctx, p, &contents, t.ID)
	return t.public(c), err
}

// Status is the state of a task.
type Status string

// The states of a task.
const (
	StatusPending      Status = "pending"      // no worker has it
	StatusAcknowledged Status = "acknowledged" // a worker has claimed it
	StatusRunning      Status = "running"      // a worker works on it, under a lease
	StatusDone         Status = "done"         // it has a result
	StatusFailed       Status = "failed"       // it has an error
)

// held reports whether a worker has the task.
func (s Status) held() bool { return s == StatusAcknowledged || s == StatusRunning }

// ended reports whether the task does not change any more.
func (s Status) ended() bool { return s == StatusDone || s == StatusFailed }

// LateResult is the result of a worker whose claim was no longer the current one.
type LateResult struct {
	Fence  uint64          `json:"fence"`
	At     time.Time       `json:"at"`
	Result json.RawMessage `json:"result,omitempty"`
}
