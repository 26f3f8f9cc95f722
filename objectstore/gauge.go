package objectstore

import (
	"sync"
	"sync/atomic"
)

// gauge is the number of undurable bytes of a store, and a way to wait until it
// falls.
type gauge struct {
	n atomic.Int64

	mu   sync.Mutex
	fell chan struct{} // closed when the number falls; nil if nobody waits
}

func (g *gauge) load() int64 { return g.n.Load() }

func (g *gauge) add(n int64) { g.n.Add(n) }

// sub lowers the number and wakes those who wait.
func (g *gauge) sub(n int64) {
	g.n.Add(-n)
	g.wake()
}

// changed returns a channel that is closed when the number falls next.
func (g *gauge) changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fell == nil {
		g.fell = make(chan struct{})
	}
	return g.fell
}

func (g *gauge) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fell != nil {
		close(g.fell)
		g.fell = nil
	}
}
