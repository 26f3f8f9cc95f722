package budget

import "time"

// Lease is the share of a frame or a body. A nil *Lease counts nothing.
//
// Reserve, Move and Release are for one goroutine at a time. An owner that must not wait while it holds a lock, or that may
// need fewer bytes during a wait, uses Take, Wait and Lower instead: any goroutine may call Lower, and Take while no Wait runs.
// The leases that Move makes belong to the same client. At most one lease of a client may wait at a time.
type Lease struct {
	of *client
	// held has the bytes by the rule, and lent the bytes of the reserve. They are changed with Budget.mu, or by Move. Reserve, Move and
	// Release read them without the lock, since only their goroutine changes them then.
	held, lent int64
}

// total returns the bytes of the lease.
func (l *Lease) total() int64 { return l.held + l.lent }

// Lease returns the first lease of a new client of an object, without bytes.
func (b *Budget) Lease(o Object) *Lease {
	c := &client{budget: b, object: o}
	c.first.of = c
	return &c.first
}

// Reserve makes the lease cover size bytes in all; Free of these are not counted. It waits if need be, until quit is
// closed or the time Wait is over. For more than Largest it fails immediately. most is the size that the lease may need in the end.
//
// Errors: ErrExhausted.
func (l *Lease) Reserve(quit <-chan struct{}, size, most int64) error {
	if l == nil || size <= Free+l.total() {
		return nil
	}
	if b := l.of.budget; size > b.Largest() {
		b.refuse()
		return ErrExhausted
	}
	ready := l.Take(size, most)
	if ready == nil {
		return nil
	}
	return l.Wait(ready, quit)
}

// Take makes the lease cover size bytes in all, and returns nil. If the bytes are not available, Take begins a wait and
// returns without them: the caller must pass ready to Wait or Await. most is the size that the lease may need in the end.
func (l *Lease) Take(size, most int64) (ready <-chan struct{}) {
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	more := size - Free - l.total()
	if more <= 0 {
		return nil
	}
	b.joinLocked(c)
	if b.used+c.group.used+c.used+3*more <= b.share {
		b.addLocked(l, more)
		return nil
	}
	b.beginWaitLocked(l, more, max(most-Free-l.total(), more))
	b.grantLentLocked()
	return c.ready
}

// Wait waits for the bytes of a Take, until quit is closed or the time Wait is over. After an error the lease keeps the
// bytes that it had.
//
// Errors: ErrExhausted.
func (l *Lease) Wait(ready, quit <-chan struct{}) error {
	late := time.NewTimer(Wait)
	defer late.Stop()
	return l.wait(ready, quit, late.C)
}

// Await is Wait without the time limit.
//
// Errors: ErrExhausted.
func (l *Lease) Await(ready, quit <-chan struct{}) error { return l.wait(ready, quit, nil) }

func (l *Lease) wait(ready, quit <-chan struct{}, late <-chan time.Time) error {
	refused := false
	select {
	case <-ready:
		return nil
	case <-late:
		refused = true
	case <-quit:
	}
	report, err := l.giveUp(refused)
	report()
	return err
}

// giveUp ends a wait without the bytes, unless it has just ended with them or by Lower. The caller calls report.
func (l *Lease) giveUp(refused bool) (report func(), err error) {
	report = func() {}
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.ready == nil {
		return report, nil
	}
	if refused {
		report = b.refuseLocked(l, c.more)
	}
	b.endWaitLocked(c)
	b.grantLentLocked() // it may have been its turn; the needs of the others are the same as before
	b.leaveLocked(c)
	return report, ErrExhausted
}

// Lower makes the lease cover at most size bytes, or at most most bytes while some of them are lent: the lent ones return first. If the lease
// waits for more, it then waits only for these, or its wait ends. The bytes that Lower returns to the budget go to clients that wait.
func (l *Lease) Lower(size, most int64) {
	c := l.of
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(size-Free, 0)
	m := max(most-Free, n)
	if c.waiter == l {
		c.rest = min(c.rest, m-l.total())
		if c.more = min(c.more, n-l.total()); c.more <= 0 {
			b.endWaitLocked(c)
		} else {
			b.orderLocked(c)
		}
	}
	if l.lent > 0 {
		n = m
		if less := min(l.total()-m, l.lent); less > 0 {
			b.lendLocked(l, -less)
		}
	}
	if n < l.held {
		b.addLocked(l, n-l.held)
	}
	b.grantLocked()
	b.leaveLocked(c)
}

// Move moves the bytes of the lease to a new one of the same client, which it returns; nil if there are none. The new lease covers an item of
// size bytes, which has arrived: it returns the lent bytes that the item does not need.
func (l *Lease) Move(size int64) *Lease {
	if l == nil {
		return nil
	}
	if l.lent > 0 {
		l.Lower(size, size)
	}
	if l.total() == 0 {
		return nil
	}
	moved := *l
	l.held, l.lent = 0, 0
	return &moved
}

// Release returns all bytes of the lease, which can be used again.
func (l *Lease) Release() {
	if l != nil && l.total() > 0 {
		l.Lower(0, 0)
	}
}

// Idle reports whether no lease of the client has bytes or waits.
func (l *Lease) Idle() bool {
	b := l.of.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.of.group == nil
}
