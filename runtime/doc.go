// Package runtime, a part of the engine without a compatibility promise, runs objects: their turns,
// gates, incarnations and queues. Package dohost adds the typed API.
//
// # An object is a monitor
//
// One event at a time holds an object's turn. The turn is in the event's context, and the methods
// of State require it. The writes between acquiring and releasing the turn are a batch. Releasing
// the turn, at the end of the event or in an Await, commits the batch (Commit): under the range's
// lock the batch becomes history, or the range refuses it because the incarnation has ended.
// Everything that leaves the object is an output of a batch, and is released once everything
// committed before it is durable.
//
// # Incarnations
//
//	waking ── constructed ──▶ live ── evicted, aborted, panicked, overdue ──▶ fenced
//	   │                                                                        ▲
//	   └─────────────────────── constructor failed ─────────────────────────────┘
//
// An object's incarnations are numbered. Fenced is final, but does not end goroutines. The code of a fenced incarnation
// may still run, but the range has another owner, so a late write of incarnation 6 cannot become a write of incarnation
// 7.
//
// The object's table entry outlives its incarnations. objectstate.go (type objectState) draws the
// states of the entry, with the claims that keep the next incarnation from beginning. An entry with
// a waking incarnation is in the state live.
//
// # Invariants
//
//   - A turn queue (type turnQueue) has at most one holder, and is empty while it has none.
//   - An incarnation is marked dead and loses its range before the next one may begin.
//   - Each counted event is uncounted once: when it finishes, leaves the queue, or is refused.
//   - An alarm's delivery ends once: by event.endDelivery, or by the slot write that records the
//     outcome for an ended incarnation.
//   - When a handler returns, its turn, its transactions and its Exclusive section are
//     over, even if goroutines of the handler still run: turn.end.
//   - Release never blocks and takes no lock that is held during I/O.
//
// # Functions of users
//
// No user-supplied function runs on the committer or with a lock held. LimitedHandler.Limit, code
// of this module, runs with a lock. Functions of the host's Options run on their own goroutines
// (hostFunc), except those called at each event. A function of an object runs on its event's goroutine or, in
// Emit, on its own (callback). docs/guarantees.md has the table of functions, with their
// goroutines, and the effects of a panic, of runtime.Goexit and of a hang.
//
// # Locks
//
// The order is object.mu, then one of: the range's lock and then the committer's queue;
// Host.mu; the sweeper's lock. No goroutine holds the locks of two objects: an output that
// enters another object is released without any lock.
//
// # Goroutines
//
// A runner runs the events of one object until its queue is empty, and the constructor
// before them. The sweeper checks once a second the objects that have work. The committer
// belongs to package objectstore, the scheduler to package alarm.
package runtime
