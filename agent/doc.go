// Package agent is durable agents: objects with a state that clients share, methods that
// clients call over a WebSocket, and work that survives the end of an incarnation. It speaks
// the wire of the Agents SDK, so that front-ends written for that work unmodified.
//
// An agent is an object whose struct embeds an [Agent]:
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
//			agent.Initial[Room](Board{Title: "untitled"}),
//			agent.Callable("rename", (*Room).Rename))
//	}
//
// What may enter it is listed in [Bind], as it is for any object. Everything that is true of
// an object is true of an agent: one event at a time, nothing leaves before it is durable,
// a life that has ended can do nothing.
//
// # State
//
// An agent's state is one JSON value. What a client sends is kept as it came, with members that
// the Go type does not know, and replaced as a whole: also by what the agent sets itself, which
// has no such members. A change is written, shown to every client but the
// one that sent it, and told to [OnStateChanged], in this order: clients see it once it is
// durable, and the hook runs as an event of its own.
//
// # Connections
//
// A connection is a WebSocket that hibernates ([dohost.Socket]). It has the id that its client
// chose, which is its first tag, and its own small state. What is not a frame of the wire goes
// to [OnMessage] as it came.
//
// # Work that survives
//
// A fiber is work with a checkpoint that outlives incarnations. [RunFiber] runs a function here
// and now; if its incarnation ends before, a later one tells [OnInterrupted], with what the
// function has last stashed. [StartFiber] starts a registered method as work of its own; a later
// incarnation goes on with it from its last checkpoint, as often as its kind allows, unless
// [OnRecovery] decides about those that were interrupted. How it ended is told to [OnFiberEnded],
// and can be asked for afterwards.
//
// # What stays true of fibers
//
//   - A fiber's row is durable before its first step, and goes, or says how it ended, in the
//     segment of its last. So finished work is not run again, and unfinished work is not lost.
//   - A row names the incarnation that works on it. A row of any other is interrupted: there is
//     no set in memory that could be wrong, and none that a crash could lose.
//   - Row and alarm change in one segment: a row that is not ended has an alarm, which is also
//     delivered when the host starts.
//   - Recovery begins in the constructor, before [OnStart] and before any event. Fibers that go on by
//     themselves are taken up behind OnStart, so that one that fails does not count as their
//     interruption. What recovery cannot do there goes on from the alarm. In one incarnation a row is
//     given to a hook once at a time.
//   - An interruption is counted, durably, before the fiber goes on, if the process that worked on
//     it has ended, or [OnRecovery] resumes it: what the fiber does to its process cannot happen
//     again and again, and what is taken back with a Transaction has not begun. Of another whose
//     incarnation has ended in this process, which is alive, it is counted in the segment before.
//   - A run of a hook is counted, durably, before it begins, so that a death in it counts. After
//     five runs, or a day, the row is dead: it is listed, and left alone.
//   - An error of the function ends the fiber. An end of the incarnation does not: code of a life
//     that has ended cannot write, so it cannot end anything.
//   - The end of a hook and what the hook has written, the hand-over to a successor included, are
//     one segment.
//   - That [OnFiberEnded] is to be told stands in the row from the segment in which the fiber ends
//     to that in which the hook does. It is called when the first of them is durable. Until it is
//     told, or given up, the row has an alarm, and is neither forgotten nor deleted.
//   - [OnRecovery] has at once all fibers that may go on and whose time has come, and decides about
//     each: what it leaves when it returns nil has failed, in that segment; what it leaves when it
//     fails is as it was, and what it has resumed is resumed. Those over their limit have failed
//     before, and it never sees them.
//   - Calls of a fiber's method end what they were begun for. A call that was cancelled ends
//     nothing, and keeps no checkpoint, of a fiber that was restarted; the restarted one begins when
//     it has returned.
//
// # The alarm
//
// The object's one alarm is the agent's. Whoever changes what it depends on (a schedule, the
// queue, a fiber's row, the count of those who keep the agent alive) sets it in the same segment
// to the earliest time that any of them wants. Its handler starts what is due as tasks of their
// own, sets the alarm anew, and returns: one segment.
//
// An incarnation that has found nothing to look after (no fiber; neither a schedule nor an item) reads
// no more of them until it writes one. It finds that out only where no Transaction can take it back:
// in the alarm's turn, or in a Transaction of its own.
package agent
