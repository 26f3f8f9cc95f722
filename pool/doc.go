// Package pool is a worker pool: tasks for roles, workers that claim tasks under leases, and a supervisor that requests restarts of
// lost workers.
//
// One object is one pool. Its methods are JSON over HTTP and over a WebSocket, so a worker is a program in any language: see
// docs/wire.md. [Work] is a worker in Go, and [Manage] is a daemon that starts worker processes.
//
// # Tasks
//
// A task belongs to a role. A worker of the role claims the task, starts it, renews its lease while it works, and hands off the
// result:
//
//	            ┌──────────── released, failed, lease lapsed, worker gone ─────────┐
//	            ▼                                                                  │
//	post ─▶ pending ── claim ──▶ acknowledged ── start ──▶ running ── handoff ──▶ done
//	            │                      │                      │
//	            └── too many claims ───┴──────────────────────┴──────────────────▶ failed
//
//	from          by                                           to            when
//	pending       Claim                                        acknowledged  a worker of the role asks; the fence is one more
//	acknowledged  Start                                        running       the claim is the current one
//	acknowledged  Release, Fail with Retry                     pending       the claim is the current one
//	acknowledged  the sweep                                    pending       after Acknowledged, if its worker is not reachable
//	running       Renew, Start                                 running       the claim is the current one
//	running       Handoff                                      done          the claim is the current one
//	running       Release, Fail with Retry                     pending       the claim is the current one
//	running       the sweep                                    pending       the lease has lapsed
//	both          the sweep                                    pending       no new progress for Progress
//	both          Exited, for the task's connection            pending       immediately
//	both          Fail without Retry                           failed        the claim is the current one
//	both          any way to pending, after MaxAttempts claims failed
//	running       any way to pending, if the task has Once     failed
//	all three     Cancel                                       failed        always
//	all three     Claim, the sweep                             failed        its deadline has passed
//	pending       an operator deletes it                       failed        if its agent is to be notified
//	failed        an operator retries it                       pending       unless cancelled, or with Once and started
//
// Every other transition is an [ErrTransition], and the row does not change. taskstate.go contains the same table, and builds that
// check invariants panic at any other transition.
//
// # Invariants
//
//   - A claim is a connection and a fence. A task's fences only grow. Start, Renew, Handoff, Fail and Release need the current claim;
//     otherwise they return an [ErrClaimLost]. The pool keeps the result of a refused handoff with the task, as late.
//   - A task that is acknowledged or running has exactly one claim. If two workers claim one task, one wins, since a claim is one
//     event.
//   - A worker is reachable while its Until is in the future. Every worker has an Until. Reads compare it with the clock; the sweep only
//     removes rows. A heartbeat updates an existing row and creates none.
//   - Leave removes the row of its own connection and no other.
//   - A role is busy while one of its tasks has a live lease, and starting until a deadline. A role is offline if it has no reachable
//     worker, is not busy and is not starting. The pool asks for the restart of a role only if it is managed, offline, and has a pending
//     task.
//   - The role is the key of a requested restart. So a role has at most one.
//   - The pool counts the restarts that it requests. After MaxRestarts of them without a worker that stays for Stable or hands off a
//     task, the pool reports the role as given up, and requests no more until a worker joins, a daemon declares the role, or an operator
//     retries it. A join does not reset the count: if that worker is lost before it is stable or hands off a task, the pool gives the role up again.
//   - After a start of the host, no worker and no restart lapses within one TTL of the pool's first change or sweep, and no claim lapses within
//     the longer of TTL and Lease: before that, workers could not send heartbeats. The deadlines of tasks and the retention period have no such
//     delay. The end of an incarnation does not begin this period. A clock that is set back does, and so does a sweep that is late by more than
//     a TTL: the host or its machine was suspended, or its clock was set forward.
//   - Only the clock of the pool's host counts. Requests contain durations, not times.
//
// # Ordering
//
// Each method that changes rows is one [dohost.Transaction]: it changes rows and their counts together or not at all. A Claim that
// waits makes one for each attempt. The answer leaves when the writes are durable. So a worker that got the answer to a claim still
// has the claim after any crash. A worker that gets no answer resends the request: Join, Start, Renew, Handoff and Post with a Key
// are idempotent, and Claim returns the task that the connection has claimed but not started.
//
// A worker that waits for a task holds no turn. A post wakes one waiting worker, after the post's rows are written and before its turn
// ends; the worker reads the rows in its own turn. A worker that wakes but does not claim wakes the next, so no post is lost.
//
// # The sweep
//
// The sweep is a schedule of the object. It exists while there is something to sweep: workers, tasks or roles with a deadline. It reads
// rows by index in the order of their deadlines, so it reads no row before its deadline. It handles at most 100 rows of each kind in a
// turn. Apart from the deadlines of tasks, a role has one time for its pending tasks, set by the oldest.
package pool
