package eviction

// Pressure gives up idle objects when the heap outgrows a budget. The heap does
// not shrink before the next collection, so it is compared once per finished cycle,
// and a cycle costs at most a tenth of the objects: else one bad moment would evict
// everything.
type Pressure struct {
	// Budget is the live heap, in bytes, above which objects go. Zero means none.
	Budget uint64
}

// Shed returns how many of live objects to evict. heap is the live heap after the
// garbage collector's cycle number cycle, and last the cycle that was looked at
// before.
func (p Pressure) Shed(live int, heap, cycle, last uint64) int {
	if p.Budget == 0 || heap <= p.Budget || cycle == last || live == 0 {
		return 0
	}
	excess := float64(heap-p.Budget) / float64(heap)
	return min(int(excess*float64(live))+1, max(live/10, 1))
}
