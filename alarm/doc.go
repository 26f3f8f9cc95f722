// Package alarm, a part of the engine without a compatibility promise, decides when an object's one alarm fires, and
// when the host stops delivering it.
//
//	         SetAlarm                     due                    handler returns nil
//	none ───────────────▶ set ──────────────────────▶ delivered ─────────────────────▶ none
//	                      ▲ ▲                          │  │  │
//	                      │ │  2 s, 4 s, … 64 s        │  │  │
//	                      │ ├──────────────────────────┘  │  │
//	                      │ │  error, panic, limit, or a  │  │
//	                      │ │  failed constructor         │  │ 7th failure, no handler,
//	                      │ │                             │  │ 6th death in the handler
//	                      │ └─────────────────────────────┘  ▼
//	                      │    eviction, close, full disk:  parked
//	                      │    the same again, not counted    │
//	                      └───────────────────────────────────┘
//	                            revived by an operator, or SetAlarm
//
// The slot is a row of the object, which package runtime writes together with the
// handler's own writes. This package has the transitions of the slot, which are pure
// functions (Failed, NoHandler, Revive, SetByHandler and others, and the methods of CrashLoop), and the Scheduler, which
// knows nothing of objects.
//
// A delivery is at least once: a crash between the start of a handler and the
// record that holds its last batch repeats it. It cannot be exactly once for the
// handler's effects outside of the object.
//
// # An alarm is never given up
//
// An alarm leaves its slot in three ways only: the handler succeeds, the object sets
// or deletes its alarm (DeleteAll and Abort with DropAlarm included), or an operator
// deletes it. An alarm that will not be retried is parked: its slot keeps the due time, the reason, the counts and
// the text of the last error, the host reports it, and no scheduler delivers it. It is parked for one of these
// reasons:
//
//   - MaxRuns runs in a row failed: an error, a panic or the time limit of the
//     handler, or a constructor that failed before it;
//   - MaxDeaths processes ended while its handler had begun, alone among suspects;
//   - the class has no alarm handler any more.
//
// # Deaths of the process
//
// A run may end the process, and so may the next run of the same alarm. CrashLoop in crashloop.go has the states of such
// an alarm, and its invariants: the host charges a run to the slot before the run, notes after a death which alarms are
// suspects, runs these alone, ever more rarely, and parks an alarm after MaxDeaths.
//
// # The scheduler's invariant
//
// Alarms are in queues: one for each class, and one for suspects. Each queue has an
// index on disk, in order of due time, a part of it in memory up to the queue's
// horizon, and a bound of its own for the deliveries that are out. So no class fills
// another's memory, nor takes the places that are reserved for another. Every alarm that
// is durably set and not parked is in at least one of five places:
//
//   - its queue's heap, with its newest generation,
//   - held: its delivery was cut off, and is repeated after a moment,
//   - out: delivered, and not yet Done; a change that arrives in between is kept with it,
//   - the inbox: a durable change that the scheduler has not looked at,
//   - the index on disk, at a position after its queue's horizon.
//
// The inbox is emptied before a read of the index begins, and again after its result was taken: a change that came
// before the read is part of the result, and a later change overrides it. An entry moves from the heap to the disk
// only by moving the horizon before it.
package alarm
