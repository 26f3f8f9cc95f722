package budget

// need returns the left side of the rule of this package after the first wait of the group, less the present bytes of all leases.
func (g *group) need() (bytes int64, since uint64) {
	bytes, since = g.waiting[0].need()
	return g.used + bytes, since
}
func (g *group) index() *int { return &g.at }

// need returns the bytes of the client after its wait, plus twice the bytes that it waits for, since these count for its object
// and for all leases, too.
func (c *client) need() (bytes int64, since uint64) { return c.used + 3*c.more, c.since }
func (c *client) index() *int                       { return &c.at }

// waitHeap is a heap.Interface: the smallest need is the first, and of equal needs the oldest wait.
type waitHeap[T interface {
	need() (bytes int64, since uint64)
	index() *int
}] []T

// Len implements heap.Interface.
func (h *waitHeap[T]) Len() int { return len(*h) }

// Less implements heap.Interface.
func (h *waitHeap[T]) Less(i, j int) bool {
	a, first := (*h)[i].need()
	b, second := (*h)[j].need()
	return a < b || a == b && first < second
}

// Swap implements heap.Interface.
func (h *waitHeap[T]) Swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].index(), *a[j].index() = i, j
}

// Push implements heap.Interface.
func (h *waitHeap[T]) Push(x any) {
	*x.(T).index() = len(*h)
	*h = append(*h, x.(T))
}

// Pop implements heap.Interface.
func (h *waitHeap[T]) Pop() any {
	var none T
	n := len(*h) - 1
	last := (*h)[n]
	(*h)[n], *h = none, (*h)[:n]
	return last
}
