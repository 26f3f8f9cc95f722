package eviction

import "time"

// Idle is for how long an object may have nothing to do. The zero Idle is that of
// Durable Objects: 70 to 140 s.
type Idle struct {
	// Min and Max bound the draw. Zero means 70 s and twice Min; a negative Min, for ever.
	Min, Max time.Duration
}

const idleMin = 70 * time.Second

// After draws the time for a life that has had so many events: at least Min, less
// than Max. Nothing needs to be stored, for the same question has the same answer.
func (i Idle) After(life, events uint64) time.Duration {
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
	return low + time.Duration(unit(mix(mix(life)^events))*float64(high-low))
}
