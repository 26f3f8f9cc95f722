// Package randprog draws programs for an object at random, runs them, and compares each step
// with a model.
//
// A [Program] is a list of instructions: reads and writes of keys and rows, transactions,
// Awaits, calls of other objects, pieces of HTTP responses, tasks, outputs, alarms, errors and panics. An object of the
// class "program" executes it through the public API. Before an instruction releases the turn,
// and after each instruction, the object reports to the [Observer]. The observer lives outside
// of the objects and survives their incarnations.
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
// # Acknowledgment
//
// A state of the history is acknowledged when something that depends on it has left the object:
// the answer of an event, the function of an Await, a call of another object, a task, an output,
// the end of a Sync. All states before it are acknowledged with it. Writes of PutNoWait
// alone do not make a state wait: only a Sync acknowledges it.
//
// # Limits
//
// After a failed run, or the end of a process, the model does not know when an alarm is due, until a program sets or
// deletes it. Programs have no WebSockets, no export or import, and no features of package agent.
package randprog
