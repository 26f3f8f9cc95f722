// Package agent implements durable agents: objects with a state that clients share, methods that clients call
// over a WebSocket, and work that survives the end of an incarnation. It speaks the wire protocol of the Agents
// SDK, so front-ends written for that SDK work unmodified.
//
// An agent is an object with a struct that embeds an [Agent]:
//
//	const Rooms dohost.Namespace[Room] = "room"
//
//	type Room struct {
//		*agent.Agent[Board]
//	}
//
//	func Class() dohost.Class {
//		return agent.Bind(Rooms,
//			func(_ context.Context, a *agent.Agent[Board]) (*Room, error) { return &Room{a}, nil },
//			&agent.Handlers[Room, Board]{Initial: &Board{Title: "untitled"}},
//			agent.Callable("rename", (*Room).Rename))
//	}
//
// As for any object, [Bind] lists the entry points: the handlers that a class can have only once as fields of
// [Handlers], and the named ones as entries. All rules of objects apply to agents: events run one at a time, no
// output leaves before it is durable, and an ended incarnation can do nothing.
//
// # State
//
// An agent's state is one JSON value. A client's change is stored exactly as the client sent it, including
// members that the Go type does not know, and replaces the whole value. SetState also replaces the whole
// value, so it loses unknown members. A change is written, broadcast to every client except its sender, and
// passed to OnStateChanged, in this order: clients get the change once it is durable, and the hook runs as
// a separate event.
//
// # Connections
//
// A connection is a WebSocket that hibernates ([dohost.Socket]). The client chooses its id, which is also
// its first tag, and it has a small state of its own. The agent passes frames that are not part of the
// wire protocol to OnMessage unchanged.
//
// # Work that survives
//
// A fiber is work with a checkpoint that outlives incarnations. [RunFiber] runs a function immediately; if its
// incarnation ends first, a later one calls OnInterrupted with the function's last checkpoint. [StartFiber]
// starts a registered method as a separate task; a later incarnation resumes it from its last checkpoint, up to
// the retry limit of its kind, unless OnRecovery decides about interrupted fibers. When the fiber ends, the
// agent calls OnFiberEnded; [Fibers.Get] returns its result afterwards.
//
// # Guarantees of fibers
//
//   - A fiber's row is durable before the fiber's first step. The batch of its last step deletes the row or
//     records the outcome. So finished work does not run again, and unfinished work is not lost.
//   - A row names the incarnation that works on it. A row that names any other incarnation is interrupted.
//     There is no in-memory list that could be wrong, or that a crash could lose.
//   - Row and alarm change in one batch. Every open row has an alarm, which is also delivered when the host
//     starts.
//   - Recovery begins in the constructor, before OnStart and before any event. Fibers that resume without a
//     hook do so after OnStart, so a failing OnStart does not count as an interruption. The alarm continues
//     a recovery that the constructor could not finish. Within an incarnation a row is passed to at most
//     one hook call at a time.
//   - If the process that ran a fiber has ended, or if OnRecovery resumes it, the interruption is counted
//     durably before the fiber resumes. So a fiber that kills its process cannot do so forever, and a resume
//     that a Transaction rolls back never starts. If only the incarnation ended, the batch before the resume
//     counts the interruption, and the resume does not wait for it.
//   - A hook call is counted durably before it starts, so a crash during the call counts. After five calls, or
//     a day, the row is dead: it is listed, but no hook is called for it.
//   - An error of the function, or the last permitted one of a method, ends the fiber. The end of an incarnation does
//     not: the code of an ended incarnation cannot write.
//   - The end of a hook call commits in one batch with the hook's writes, including the start of a
//     successor.
//   - The batch that ends a fiber marks it as notify pending; the last batch of OnFiberEnded clears it.
//     The hook runs once the first batch is durable. Until the mark is cleared, the row has an alarm
//     and is neither expired nor deleted.
//   - One call of OnRecovery gets all fibers that may resume and are due, and decides about each. If it
//     returns nil, fibers without a decision fail in that batch. If it returns an error, they stay
//     interrupted, and its decisions stand. Fibers over their limit fail before the call, which does
//     not get them.
//   - A call of a fiber's method can end only its own run. If a fiber was cancelled and restarted, the old call
//     neither ends it nor stores a checkpoint, and the new call starts when the old one has returned.
//
// # Positions
//
// The contexts of fibers, of their hooks, of schedules' runs and of queue items have a position
// ([dohost.WorkPosition]). The position is part of the identity of operations in package ledger.
// The number in a fiber's position counts its saved checkpoints, including equal ones. A run of
// [RunFiber] in such work belongs to that work. The calls of OnInterrupted and the function of
// [InterruptedRun.Resume] have the position of the interrupted fiber. OnRecovery has no position:
// see [InterruptedFiber.Position].
//
// # The alarm
//
// The agent uses the object's only alarm. One file, rowwriter.go, writes the rows of durable work (fibers,
// schedules, the queue, and the tasks of OnRows), and in the same batch sets the alarm to the earliest time that
// any of them needs. The other inputs of that time are in memory (KeepAlive holders, a destruction that has
// begun, and deferred recovery), and changing one of them also sets the alarm. The alarm handler starts due work
// as separate tasks, sets the alarm again and returns: one batch.
//
// An incarnation that finds no open fibers, or neither schedules nor queue items, does not read them again until it
// writes one. This needs a read in the alarm's turn or in its own Transaction: otherwise a rollback could restore
// deleted rows.
package agent
