// Package recovery measures how long objects take to recover after an end, and the cost: after a fence in a
// running host, after SIGKILL, and after a restart of the host.
//
// The measured object is a worker: its alarm runs, does one step and sets itself again immediately. A step
// writes to a file outside of the store that it has begun, writes an outside effect, counts one durably, and
// writes its acknowledgement through the output gate. The lines outlive a SIGKILL and record
//
//   - the runs that began, and so the number of repeats,
//   - the effects that occurred more than once,
//   - whether an acknowledged step is lost, or was acknowledged twice.
//
// In further measurements the effect is an operation of package ledger, with each of its policies, and the other side is a
// bank that keeps the lines as its book. A worker that gets an unknown outcome writes a line, and then resolves the operation
// by the book, as an operator does. The report is false if no line of the effect is before it. The account reads only the
// lines, so it shares no code with the ledger.
//
// The killed process is a child of this one. Child reports whether a process is such a child.
package recovery
