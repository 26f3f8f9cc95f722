package pool

import (
	"encoding/json"
	"time"

	"github.com/dohost/dohost"
)

// worker is the row of a connection that has joined a role.
type worker struct {
	Role, Conn string
	Name       string // of the worker, for people
	Joined     time.Time
	Until      time.Time // reachable until then; never zero
}

func workerKey(role, conn string) string { return string(dohost.KeyOf(role) + dohost.KeyOf(conn)) }

var workers = dohost.Collection[worker]{
	Name: "workers",
	Key:  func(w worker) string { return workerKey(w.Role, w.Conn) },
	Indexes: []dohost.Index[worker]{
		{Name: "until", Of: func(w worker) dohost.Key { return dohost.KeyOf(w.Until) }},
		{Name: "role", Of: func(w worker) dohost.Key { return dohost.KeyOf(w.Role) + dohost.KeyOf(w.Until) }},
	},
}

// taskRow is the row of a task, without its content.
type taskRow struct {
	ID       string // the decimal number of Seq
	Seq      uint64 // the order of the posts
	Key      string // of the post; empty: none
	Role     string
	Status   Status
	Created  time.Time
	Since    time.Time // of the Status
	Fence    uint64    // of the last claim
	Attempts int       // claims, without released ones
	Reason   string    // why it is pending again; of a failed task, its error
	Once     bool      `msgpack:",omitempty"` // no worker starts it after another one
	// Uncertain is set if a worker has started it, and the pool has no report of the end of that attempt.
	Uncertain bool          `msgpack:",omitempty"`
	Notify    *Notification `msgpack:",omitempty"` // nil: nothing is notified
	Notified  bool          `msgpack:",omitempty"` // of its end
	Cancelled bool          `msgpack:",omitempty"`
	Started   bool          `msgpack:",omitempty"` // by any worker
	// Deadline is the time after which the task fails unless it has ended; zero: none.
	Deadline time.Time
	Late     int // results of claims that were not the current one

	// These belong to the claim. Conn remains when the task has ended.
	Conn       string
	Lease      time.Time // end of the lease; of an acknowledged task, the time to start it
	ProgressBy time.Time // deadline of the next progress; zero: none
	Progress   string
	Check      time.Time // when the sweep looks at it; zero unless it is held
}

// content is the text and the results of a task. A renewal does not write it.
type content struct {
	ID     string
	Text   string
	Result json.RawMessage `msgpack:",omitempty"`
	Late   []LateResult    `msgpack:",omitempty"`
}

var tasks = dohost.Collection[taskRow]{
	Name: "tasks",
	Key:  func(t taskRow) string { return string(dohost.KeyOf(t.Seq)) },
	Indexes: []dohost.Index[taskRow]{
		{Name: "role", Of: func(t taskRow) dohost.Key { return roleStatus(t.Role, t.Status) + dohost.KeyOf(t.Seq) }},
		{Name: "key", Of: func(t taskRow) dohost.Key {
			if t.Key == "" {
				return ""
			}
			return dohost.KeyOf(t.Key)
		}},
		{Name: "held", Of: func(t taskRow) dohost.Key { // for busy
			if !t.Status.held() {
				return ""
			}
			return dohost.KeyOf(t.Role) + dohost.KeyOf(t.Lease)
		}},
		{Name: "conn", Of: func(t taskRow) dohost.Key {
			if !t.Status.held() {
				return ""
			}
			return connStatus(t.Role, t.Conn, t.Status) + dohost.KeyOf(t.Seq)
		}},
		{Name: "check", Of: func(t taskRow) dohost.Key {
			if t.Check.IsZero() {
				return ""
			}
			return dohost.KeyOf(t.Check)
		}},
		{Name: "ended", Of: func(t taskRow) dohost.Key {
			if !t.Status.ended() || t.unnotified() {
				return ""
			}
			return dohost.KeyOf(t.Since)
		}},
		{Name: "deadline", Of: func(t taskRow) dohost.Key {
			if t.Deadline.IsZero() || t.Status.ended() {
				return ""
			}
			return dohost.KeyOf(t.Deadline)
		}},
		{Name: "notify", Of: func(t taskRow) dohost.Key {
			if !t.unnotified() {
				return ""
			}
			return dohost.KeyOf(t.Since)
		}},
	},
}

func roleStatus(role string, s Status) dohost.Key { return dohost.KeyOf(role) + dohost.KeyOf(s) }

func connStatus(role, conn string, s Status) dohost.Key {
	return dohost.KeyOf(role) + dohost.KeyOf(conn) + dohost.KeyOf(s)
}

var contents = dohost.Collection[content]{
	Name: "contents",
	Key:  func(c content) string { return c.ID },
}

// role is the row of a role.
type role struct {
	Name    string
	Managed bool      // a daemon restarts its workers
	Seen    time.Time // when a worker last joined, or was removed
	// Restarts are the restarts since a worker was stable or handed a task off, and Number is that of the last one ever.
	Restarts int
	Number   uint64
	Reason   string    // of that restart; of a role that is given up, of the restart that it would have been
	Asked    time.Time // the time of the request
	Starting time.Time // deadline of the restart that a daemon has taken; zero: none
	Daemon   string    // that has taken it
	GivenUp  bool      // no further restart is requested
	Warned   bool      // it was reported as unattended
	Check    time.Time // when the sweep looks at it; zero: never
}

var roles = dohost.Collection[role]{
	Name: "roles",
	Key:  func(r role) string { return r.Name },
	Indexes: []dohost.Index[role]{
		{Name: "check", Of: func(r role) dohost.Key {
			if r.Check.IsZero() {
				return ""
			}
			return dohost.KeyOf(r.Check)
		}},
	},
}

// checkBy makes the sweep look at the role at a time, unless it does so earlier.
func (r *role) checkBy(at time.Time) {
	if r.Check.IsZero() || at.Before(r.Check) {
		r.Check = at
	}
}

// command is a restart that the pool requests, and that no daemon has taken. The role is the key, so a role has at most one.
type command struct {
	Role   string
	Number uint64
	Reason string
	Asked  time.Time
	After  time.Time // no daemon gets it earlier
}

var commands = dohost.Collection[command]{
	Name: "commands",
	Key:  func(c command) string { return c.Role },
}

// meta is the state of the pool that no row has.
type meta struct {
	Host  string    // that has handled the last change
	Up    time.Time // since then workers could send heartbeats without interruption
	Swept time.Time // the time of the last sweep, or of the schedule
	Sweep string    // the id of the schedule; empty: there is none
	Every time.Duration

	Seq            uint64 // of the last task
	Workers, Tasks int    // rows
}

const metaKey = "pool"
