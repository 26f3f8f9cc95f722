// Package runtime runs objects: turns, gates, lives and queues. It knows no types of
// its users; package dohost puts those on.
//
// # An object is a monitor
//
// One event at a time holds an object's turn. It travels in the event's context; State
// wants it. What an event writes between taking the turn and giving it up is a segment.
// Giving the turn up, at the end of the event or in an Await, hands the segment over: in
// that moment, under the range's lock, it becomes history, or is refused because the
// life has ended. Everything that leaves the object is an output of a segment, and is
// released when all that the object handed over before is durable.
//
// # Lives
//
//	waking ── constructed ──▶ live ── evicted, aborted, panicked, overdue ──▶ fenced
//	   │                                                                        ▲
//	   └─────────────────────── constructor failed ─────────────────────────────┘
//
// An incarnation is one life of an object in memory, and lives are numbered. Fenced is
// final: the number ends, not the goroutine. Code of a fenced life may still run; the
// range has another owner, so a late write of life 6 cannot land in life 7.
//
// # What must stay true
//
//   - A lane has at most one holder, and no queue while it has none.
//   - A life is marked dead and loses its range before its object may begin another.
//   - Every event that was counted in is counted out once: by finish, by leaving the
//     queue, or by being refused.
//   - A delivery of an alarm ends once, by event.endDelivery or by the slot write that
//     repairs what its life left.
//   - When a handler returns, its turn, its transactions and its Exclusive section are
//     over, whatever it left behind: turn.end.
//   - Release never blocks and takes no lock that is held during I/O.
//
// # Functions of users
//
// No function that users supply runs on the committer, and none runs with a lock held except
// LimitedHandler.Limit. Functions of the host's Options run on goroutines of their own
// (hostFunc), except the functions that are called at each event. A function of an object runs
// on its event's goroutine or, in Emit, on its own (callback). docs/guarantees.md has the table
// of functions, with their goroutines, and the effects of a panic, of runtime.Goexit and of a
// hang.
//
// # Locks
//
// object.mu, then one of: the range's lock and then the committer's queue; Host.mu; the
// sweeper's. Two objects' locks are never held together: an output that enters another
// object is released without any.
//
// # Goroutines
//
// A runner runs the events of one object while there are any, and the constructor
// before them. The sweeper looks once a second at objects that have something to do. The
// committer is objectstore's, the scheduler alarm's.
package runtime
