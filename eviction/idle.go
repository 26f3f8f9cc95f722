package eviction

import "time"

// Idle draws the time until an object without work is evicted. The zero Idle has the times of Durable Objects: 70 to 140 s.
type Idle struct {
	// Min and Max bound the draw. A Min of zero means 70 s, and a Max that is not more than Min means twice Min. With a negative Min no object
	// is evicted for being idle.
	Min, Max time.Duration
}

const idleMin = 70 * time.Second

// After draws the time for an incarnation, given its number and the number of events that it has handled: at least Min, less than Max. With a
// negative Min it returns Min. The same arguments give the same time, so nothing needs to be stored.
func (i Idle) After(incarnation, events uint64) time.Duration {
	low := i.Min
	if low < 0 {
		return low
	}
	if low == 0 {
		low = idleMin
	}
	high := i.Max
	if high <= low {
		high = 2 * low
	}
	return low + time.Duration(unit(mix(mix(incarnation)^events))*float64(high-low))
}
