// Package budget bounds the bytes that a host holds for all its clients together.
//
// A holder that finds the budget exhausted waits for others to release, in order of arrival, for at most [Wait].
// So holders that wait for each other cannot deadlock: the wait ends, and a holder that gives up releases its own.
package budget

import (
	"errors"
	"sync"
	"time"
)

// Free is how many bytes of each holder are not counted, so that small messages pass when large ones have
// exhausted the budget. The number of connections bounds their sum.
const Free = 4 << 10

// Wait is how long a holder waits for bytes.
const Wait = 10 * time.Second

// ErrExhausted reports that the bytes were not available within Wait.
var ErrExhausted = errors.New("the read budget of the host is exhausted")

// Usage is a budget at one moment.
type Usage struct {
	Used, Limit int64  // bytes
	Refused     uint64 // holders that waited in vain, or lost their bytes
}

// Budget is a number of bytes. Its methods may be called from any goroutine.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	refused uint64
	waiters []*waiter // in order of arrival
}

type waiter struct {
	n     int64
	ready chan struct{} // closed when it has the bytes
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// Usage returns how much of the budget is in use.
func (b *Budget) Usage() Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Usage{Used: b.used, Limit: b.limit, Refused: b.refused}
}

// acquire takes n bytes, and waits for them until quit is closed or Wait is over.
func (b *Budget) acquire(quit <-chan struct{}, n int64) error {
	b.mu.Lock()
	if n > b.limit {
		b.refused++
		b.mu.Unlock()
		return ErrExhausted
	}
	if len(b.waiters) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n, make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()
	late := time.NewTimer(Wait)
	defer late.Stop()
	select {
	case <-w.ready:
		return nil
	case <-late.C:
	case <-quit:
	}
	return b.cancelWait(w)
}

// cancelWait ends a wait, unless the bytes came at that moment.
func (b *Budget) cancelWait(w *waiter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.refused++
			b.grantLocked() // the next one may need less
			return ErrExhausted
		}
	}
	return nil
}

// release returns n bytes.
func (b *Budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.grantLocked()
}

func (b *Budget) grantLocked() {
	for len(b.waiters) > 0 && b.used+b.waiters[0].n <= b.limit {
		b.used += b.waiters[0].n
		close(b.waiters[0].ready)
		b.waiters = b.waiters[1:]
	}
}

// Lease is the share of one holder. Its methods are for one goroutine at a time. A nil *Lease counts nothing.
type Lease struct {
	of   *Budget
	held int64
}

// Lease returns a share without bytes.
func (b *Budget) Lease() *Lease { return &Lease{of: b} }

// Reserve makes the lease cover size bytes in all; Free of these are not counted. It waits if need be, until quit is
// closed or Wait is over.
//
// Errors: ErrExhausted.
func (l *Lease) Reserve(quit <-chan struct{}, size int64) error {
	if l == nil || size <= Free+l.held {
		return nil
	}
	n := size - Free - l.held
	if err := l.of.acquire(quit, n); err != nil {
		return err
	}
	l.held += n
	return nil
}

// Move moves all bytes of the lease to a new one, which it returns; nil if there are none.
func (l *Lease) Move() *Lease {
	if l == nil || l.held == 0 {
		return nil
	}
	moved := *l
	l.held = 0
	return &moved
}

// Release returns all bytes of the lease, which can be used again.
func (l *Lease) Release() {
	if l != nil && l.held > 0 {
		l.of.release(l.held)
		l.held = 0
	}
}
