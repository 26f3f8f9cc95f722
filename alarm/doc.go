// Package alarm decides when an object's one alarm fires.
//
//	        set                 due                 handler returns nil
//	idle ────────▶ set ────────────────▶ firing ────────────────────────▶ idle
//	                ▲                      │
//	                │  2 s, 4 s, … 64 s    │ error, panic, limit: counted,
//	                └──────────────────────┤ until the 7th run: then idle
//	                                       │
//	                     eviction, crash: the same delivery again, not counted
//
// The slot itself is a row of the object, written with the handler's own writes by
// package runtime; here are its transitions, which are pure, and the Scheduler,
// which knows nothing of objects.
//
// A delivery is at least once: a crash between the start of a handler and the
// record that holds its last segment repeats it. It cannot be exactly once for what
// the handler does outside, for nobody can tell whether that happened.
//
// # The scheduler's invariant
//
// Every alarm that is durably set is in at least one of four places:
//
//   - the heap, with its newest generation,
//   - out: delivered, and not yet Done; a change that arrives meanwhile is kept with it,
//   - the inbox: a durable change that has not been looked at,
//   - the index on disk, at a position after the horizon.
//
// The inbox is emptied before a read of the index begins, and again after its
// result was taken: a change that came before the read is in what was read, and one
// that came later overrides it. An entry moves from the heap to the disk only by
// moving the horizon before it.
package alarm
