package budget

import "time"

// Lease is the share of a frame or a body. A nil *Lease counts nothing.
//
// Reserve, Move and Release are for one goroutine at a time. An owner that must not wait while it holds a lock, or that may
// need fewer bytes during a wait, uses Take, Wait and Lower instead: any goroutine may call Lower, and Take while no Wait runs.
// The leases that Move makes belong to the same client. At most one lease of a client may wait at a time.
type Lease struct {
	of *client
	// held is changed with Budget.mu, or by Move. Reserve, Move and Release read it without the lock, since only their
	// goroutine changes it then.
	held int64
}

// Lease returns the first lease of a new client of an object, without bytes.
func (b *Budget) Lease(o Object) *Lease {
	c := &client{budget: b, object: o}
	c.first.of = c
	return &c.first
}

// Reserve makes the lease cover size bytes in all; Free of these are not counted. It waits if need be, until quit is
// closed or the time Wait is over. For more than Largest it fails immediately.
//
// Errors: ErrExhausted.
func (l *Lease) Reserve(quit <-chan struct{}, size int64) error {
	if l == nil || size <= Free+l.held {
		return nil
	}
	if b := l.of.budget; size > b.Largest() {
		b.refuse()
		return ErrExhausted
	}
	ready := l.Take(size)
	if ready == nil {
		return nil
	}
	return l.Wait(ready, quit)
}

// Take makes the lease cover size bytes in all, and returns nil. If the bytes are not available, Take begins a wait and
// returns without them: the caller must pass ready to Wait.
func (l *Lease) Take(size int64) (ready <-chan struct{}) {
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	more := size - Free - l.held
	if more <= 0 {
		return nil
	}
	b.joinLocked(c)
	if b.used+c.group.used+c.used+3*more <= b.limit {
		b.addLocked(l, more)
		return nil
	}
	b.beginWaitLocked(l, more)
	return c.ready
}

// Wait waits for the bytes of a Take, until quit is closed or the time Wait is over. After an error the lease keeps the
// bytes that it had.
//
// Errors: ErrExhausted.
func (l *Lease) Wait(ready, quit <-chan struct{}) error {
	late := time.NewTimer(Wait)
	defer late.Stop()
	refused := uint64(0)
	select {
	case <-ready:
		return nil
	case <-late.C:
		refused = 1
	case <-quit:
	}
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.ready == nil { // the wait ended at the same moment, with the bytes or by Lower
		return nil
	}
	b.endWaitLocked(c) // without grantLocked: the needs of the others are the same as before
	b.leaveLocked(c)
	b.refused += refused
	return ErrExhausted
}

// Lower makes the lease cover at most size bytes. If the lease waits for more, it then waits only for these, or its wait
// ends. The bytes that Lower returns to the budget go to clients that wait.
func (l *Lease) Lower(size int64) {
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(size-Free, 0)
	if c.waiter == l {
		if c.more = min(c.more, n-l.held); c.more <= 0 {
			b.endWaitLocked(c)
		} else {
			b.orderLocked(c)
		}
	}
	if n < l.held {
		b.addLocked(l, n-l.held)
	}
	b.grantLocked()
	b.leaveLocked(c)
}

// Move moves all bytes of the lease to a new one of the same client, which it returns; nil if there are none.
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
		l.Lower(0)
	}
}

// Idle reports whether no lease of the client has bytes or waits.
func (l *Lease) Idle() bool {
	b := l.of.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.of.group == nil
}
