//go:build invariants || race

package work

// strict makes Step panic about impossible events.
const strict = true
