// Package recovery measures how long objects take to go on after an end, and what that
// cost them: by a fence in a host that lives on, by SIGKILL, and by a host that was
// closed and started again.
//
// What is measured is a worker: an object whose alarm runs, does one step and sets itself
// again at once. A step tells a file outside of the store that it has begun, has an effect
// outside, counts one durably, and tells that it was acknowledged, which leaves through
// the output gate. Those lines outlive a SIGKILL, and say afterwards
//
//   - which runs were begun, and so how many were repeated,
//   - which effects were had more than once,
//   - whether a step that was acknowledged is lost, or one was acknowledged twice.
//
// A process that is killed is a child of this one, which finds out by Child that it is to
// be one.
package recovery
