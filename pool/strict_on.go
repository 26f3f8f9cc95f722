//go:build invariants || race

package pool

// strict makes a transition of a task panic that is not in taskEdges.
const strict = true
