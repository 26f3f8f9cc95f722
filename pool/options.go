package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// Options tunes the pools of a class. A nil *Options, and the zero Options, mean the defaults. A duration is at least 1 ms and at most 30
// days. A value out of range is an error of [dohost.Open], and so is a negative value unless the field documents it.
type Options struct {
	// Heartbeat is the time between two heartbeats of a worker. Zero means 30 s.
	Heartbeat time.Duration
	// TTL is the time that a worker counts as reachable after a heartbeat. It is more than Heartbeat. Zero means twice Heartbeat.
	TTL time.Duration
	// Sweep is the time between two sweeps, which remove lapsed rows. Zero means 2 min.
	Sweep time.Duration
	// Pending is the time after which a pending task without a reachable worker is unattended: the pool reports it, and asks for a
	// restart if the role is managed and has none requested. Zero means 5 min.
	Pending time.Duration
	// Acknowledged is the time that a worker has to start a task that it has claimed. After that, the task of an unreachable worker is
	// pending again. Zero means 2 min.
	Acknowledged time.Duration
	// Lease is the time that a running task belongs to its worker after a start or a renewal. Zero means 60 s.
	Lease time.Duration
	// Progress is the time after which a task without new progress is pending again, although its worker is reachable and renews its
	// lease. Zero means 1 h; negative, no bound.
	Progress time.Duration
	// Starting is the time that a daemon and its process have for a restart, until the worker joins. Zero means 90 s.
	Starting time.Duration
	// Stable is the time after which a worker counts as stable: its role has all of its restarts again. Zero means 5 min.
	Stable time.Duration
	// MaxRestarts bounds the restarts of a role in succession without a stable worker or a task handed off. Zero means 5; it is at most 1,000.
	MaxRestarts int
	// RestartDelay is the delay before the second restart in succession, doubled for each further one, up to 5 min or RestartDelay, whichever is longer. Zero means 10 s.
	RestartDelay time.Duration
	// MaxAttempts bounds the claims of a task; released claims do not count. A task fails when its last claim ends without a handoff. Zero
	// means 5; it is at most 1,000.
	MaxAttempts int
	// Keep is the retention period of tasks that have ended, and of unmanaged roles without workers and tasks. It does not begin for a task
	// before its agent is notified: see NewTask.Notify. Zero means 24 h.
	Keep time.Duration
	// MaxWorkers bounds the workers of a pool. Zero means 2,000; it is at most 100,000.
	MaxWorkers int
	// MaxTasks bounds the tasks of a pool, ended ones included. A post to a full pool removes the oldest task that has
	// ended, and is refused if there is none. It does not remove a task before its agent is notified. Zero means 10,000; it is at most 1,000,000.
	MaxTasks int
	// MaxText bounds the text of a task, in bytes. Zero means 64 KiB; it is at most 768 KiB.
	MaxText int
	// MaxResult bounds the result of a task, in bytes of JSON. Zero means 256 KiB; it is at most 256 KiB.
	MaxResult int

	// Authorize decides about each request of a client: see [dohost.Handlers]. Callers with [dohost.RightsReadOnly] can read tasks with
	// their texts and results, and list tasks, workers, roles and commands. All callers that may write trust one another: the pool cannot distinguish workers. Nil admits all
	// callers.
	Authorize func(context.Context, *dohost.AccessRequest) (dohost.Access, error)
}

// Bounds of client input that are not options.
const (
	maxName       = 128              // bytes of the names of roles, connections, workers and daemons
	maxKey        = 256              // bytes of the key of a post
	maxProgress   = 1 << 10          // bytes of a worker's progress
	maxError      = 4 << 10          // bytes of the error of a task
	maxLate       = 3                // late results of a task
	maxWaits      = 2000             // of workers that wait: each is an event of the object, see dohost.Options.MaxEvents
	maxPolls      = 100              // of daemons that wait
	maxRoles      = 256              // of a pool
	maxNamed      = 5                // roles in the refusal of another one
	maxListed     = 1000             // rows in one answer
	maxListedText = 128 << 10        // bytes of the texts of tasks in one answer, apart from those of its last task
	maxReason     = 256              // bytes of the reason of a restart, which the lists of all roles and of all restarts have
	maxWait       = 50 * time.Second // of a long poll
	maxDelay      = 5 * time.Minute  // before a restart
	mostText      = 768 << 10        // of Options.MaxText
	mostResult    = 256 << 10        // of Options.MaxResult: a row has the text, and four results
	sweepBatch    = 100              // rows of one kind in a turn of the sweep
	longestOption = 30 * 24 * time.Hour
)

// resolved returns the options with their defaults, and an error that names each wrong field.
func (o *Options) resolved() (r Options, err error) {
	if o != nil {
		r = *o
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("pool: Options."+format, args...)) }
	duration := func(name string, d *time.Duration, zero time.Duration) {
		switch {
		case *d < 0:
			wrong("%s is %v: want 0 for the default, or more", name, *d)
		case *d > longestOption:
			wrong("%s is %v: want at most %v", name, *d, longestOption)
		case *d > 0 && *d < time.Millisecond:
			wrong("%s is %v: want at least a millisecond", name, *d)
		case *d == 0:
			*d = zero
		}
	}
	count := func(name string, n *int, zero, most int) {
		if *n < 0 || *n > most {
			wrong("%s is %d: want 0 for the default, or up to %d", name, *n, most)
		}
		if *n == 0 {
			*n = zero
		}
	}
	duration("Heartbeat", &r.Heartbeat, 30*time.Second)
	duration("TTL", &r.TTL, 2*r.Heartbeat)
	duration("Sweep", &r.Sweep, 2*time.Minute)
	duration("Pending", &r.Pending, 5*time.Minute)
	duration("Acknowledged", &r.Acknowledged, 2*time.Minute)
	duration("Lease", &r.Lease, time.Minute)
	if r.Progress = max(r.Progress, -1); r.Progress >= 0 {
		duration("Progress", &r.Progress, time.Hour)
	}
	duration("Starting", &r.Starting, 90*time.Second)
	duration("Stable", &r.Stable, 5*time.Minute)
	duration("RestartDelay", &r.RestartDelay, 10*time.Second)
	duration("Keep", &r.Keep, 24*time.Hour)
	count("MaxRestarts", &r.MaxRestarts, 5, 1000)
	count("MaxAttempts", &r.MaxAttempts, 5, 1000)
	count("MaxWorkers", &r.MaxWorkers, 2000, 100_000)
	count("MaxTasks", &r.MaxTasks, 10_000, 1_000_000)
	count("MaxText", &r.MaxText, 64<<10, mostText)
	count("MaxResult", &r.MaxResult, mostResult, mostResult)
	if len(errs) == 0 && r.TTL <= r.Heartbeat {
		wrong("TTL is %v and Heartbeat %v: want a TTL that is more than Heartbeat", r.TTL, r.Heartbeat)
	}
	return r, errors.Join(errs...)
}
