// Package eviction decides who should go. All of it is pure: no goroutine, no
// clock, no shared random stream. Package runtime asks, and acts.
//
//   - Idle: how long an object may have nothing to do.
//   - Chaos: whether a life ends at this very point.
//   - Pressure: how many idle objects to give up for the sake of memory.
//
// Every draw is a hash of what is asked about, so that a seed gives the same
// answers whatever the order of the questions.
package eviction
