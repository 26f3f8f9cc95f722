// Package eviction, a part of the engine without a compatibility promise, decides which incarnations end. All of it is
// pure: no goroutine, no clock, no shared random stream. Package runtime acts on its decisions.
//
//   - Idle: the time until an object without work is evicted.
//   - Chaos: whether an incarnation ends at a given point.
//   - Pressure: how many idle objects to evict to save memory.
//
// Every draw is a hash of its inputs, so that a seed gives the same decisions in any order of the calls.
package eviction
