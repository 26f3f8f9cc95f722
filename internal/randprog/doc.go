// Package randprog draws programs for an object at random, runs them, and compares each step
// with a model.
//
// A [Program] is a list of instructions: reads and writes of keys and rows, transactions,
// Awaits, calls of other objects, pieces of HTTP responses, tasks, outputs, alarms, WebSockets, errors and panics. An
// object of the class "program" executes it through the public API. The event of a program is a call, an HTTP request, a
// request for a socket, a message of a socket, the end of a socket, an alarm, or a task. Before an instruction releases
// the turn, and after each instruction, the object reports to the [Observer]. The observer lives outside of the objects
// and survives their incarnations. The clients of the sockets report the frames that they receive.
//
// The observer shares no code with the implementation. It keeps plain maps for each object: its
// committed states, and one state with uncommitted writes. It checks:
//
//   - each result of a read, and each count and error of a write, against the state
//   - that no event acts during the turn of another one, or in the exclusive section of another one
//   - that no operation of an ended incarnation succeeds
//   - that a new incarnation finds a committed state, not older than the last acknowledged state
//     and, after a fence in the same process, the last committed state itself
//   - that an alarm fires at its time, never before it, and is not lost
//   - that no event runs twice, and that an output leaves only if its event was committed
//
// The disk may be full. Then the store refuses the writes that need space, after at most a second, and accepts them
// again 100 ms after the disk is freed; a refused write has no effect.
//
// An object may be exported, and imported under another name. The copy has one of the states that the object had between
// the begin and the end of the export, with its feed and its alarm, and executes programs from then on. A backup of the
// store has such a state of each object: another host opens it after a power cut, without running the programs of its
// alarms.
//
// For sockets it checks in addition:
//
//   - the sockets that an object finds by a tag, their order, tags and attachments, at each instruction for sockets and
//     at the beginning of each incarnation: an eviction for being idle keeps them, every other end of the incarnation
//     closes them
//   - that a client receives exactly the committed frames for its socket, in order, up to the end of the connection; the
//     closing frame of the object counts as a frame
//   - that the messages of a client are handled in order, each once, and the end of its socket once, after them
//   - that the object cannot send to a socket that it has closed, unless the Close was rolled back
//   - when the objects are at rest, that all frames and messages have arrived, that every socket of the model is
//     connected, and that all other connections have ended, such as those of earlier processes
//
// Attachments change immediately, and a rollback does not restore them. The model does not know exactly when the host
// notices that a client leaves, or when a closing host closes a socket: the object may find such a socket or not.
//
// # Acknowledgment
//
// A state of the history is acknowledged when something that depends on it has left the object:
// the answer of an event, the function of an Await, a call of another object, a task, an output,
// the end of a Sync. All states before it are acknowledged with it. Writes of PutNoWait
// alone do not make a state wait: only a Sync acknowledges it.
//
// # The order of reports
//
// The Observer depends on the order of the steps and their reports:
//
//   - A commit is reported before it is made, so that an output that leaves immediately is committed in the model. If the
//     commit is refused, the incarnation has ended, and the model takes over the state that the next incarnation finds.
//   - The turn is released, in the report, together with the commit, and acquired after the instruction that waits has
//     returned.
//   - An output is reported before the call that adds it to the batch, since the client may receive it before that call
//     returns, if a bug releases it early. If the call is refused, a second report withdraws the output.
//   - Results of reads and writes are reported after the call has succeeded, and only then. A call that fails because the
//     incarnation has ended reports nothing. Functions that cannot fail, such as State.Sockets, are followed by one that
//     can.
//   - The host closes the sockets of an incarnation, then reports its end to the Listener, and then begins the next one.
//   - A client reports that it leaves before it begins to, and a message as sent after it was written.
//
// # Failures
//
// A failed program is shortened, and printed as a test for this package: see [Shorter], and Shrink of the package randtest.
//
// # Limits
//
// After a failed run, or the end of a process, the model does not know when an alarm is due, until a program sets or
// deletes it. Programs have no features of package agent. Sockets have no automatic responses, no
// pings that fail, no slow clients and no budgets, no handshakes that their clients abort, and an object has too few of
// them for a Broadcast that needs a goroutine of its own.
package randprog
