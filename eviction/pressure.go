package eviction

// Pressure evicts idle objects when the heap outgrows a budget. The heap does not shrink before the next collection,
// so the host compares it once per finished cycle, and a cycle evicts at most a tenth of the objects, and at least one: otherwise one short
// peak would evict all of them.
type Pressure struct {
	// Budget is the live heap, in bytes, above which objects are evicted. Zero means none.
	Budget uint64
}

// Shed returns how many of live objects to evict; zero in a cycle that it has seen. heap is the live heap in bytes after the garbage collector's
// cycle number cycle, and last the last cycle that Shed has seen.
func (p Pressure) Shed(live int, heap, cycle, last uint64) int {
	if p.Budget == 0 || heap <= p.Budget || cycle == last || live == 0 {
		return 0
	}
	excess := float64(heap-p.Budget) / float64(heap)
	return min(int(excess*float64(live))+1, max(live/10, 1))
}
