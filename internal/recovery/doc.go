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
// The killed process is a child of this one. Child reports whether a process is such a child.
// be one.
package recovery
