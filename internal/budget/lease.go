package budget

import "time"

// Lease is the share of a frame or a body. A nil *Lease counts nothing.
//
// Reserve, Move and Release are for one goroutine at a time. An owner that must not wait while it holds a lock, or that may
// need fewer bytes during a wait, uses Take, Wait and Lower instead: any goroutine may call Lower, and Take while no Wait runs.
// The leases that Move makes belong to the same client. At most one lease of a client may wait at a time.
type Lease struct {
	of *client
	// total has the bytes by the rule and the lent bytes. It is changed with Budget.mu, by the methods of the lease and at the end of
	// a wait, but not by a conversion. So Reserve, Move and Release read it without the lock: only their goroutine changes it then.
	total int64
	// assured means that the lease has all bytes that its owner has announced: the reserve has lent them, although they may be bytes by
	// the rule now. It is guarded by Budget.mu, as are the lent bytes: see loanLocked.
	assured bool
}

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
	if l == nil || size <= Free+l.total {
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
	more := size - Free - l.total
	if more <= 0 {
		return nil
	}
	b.joinLocked(c)
	l.assured = false
	if b.used+c.group.used+c.used+3*more <= b.share {
		l.total += more
		b.addLocked(c, more)
		return nil
	}
	b.beginWaitLocked(l, more, max(most-Free-l.total, more))
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

// Lower makes the lease cover at most size bytes, or at most most bytes if some of them are lent, or if the reserve has lent all bytes of the item
// that the lease is for: the lent ones return first. If the lease waits for more, it then waits only for these, or its wait ends. The bytes that
// Lower returns to the budget go to clients that wait.
func (l *Lease) Lower(size, most int64) {
	b := l.of.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lowerLocked(l, size, most)
}

func (b *Budget) lowerLocked(l *Lease, size, most int64) {
	c := l.of
	n := max(size-Free, 0)
	m := max(most-Free, n)
	if c.waiter == l {
		c.rest = min(c.rest, m-l.total)
		if c.more = min(c.more, n-l.total); c.more <= 0 {
			b.endWaitLocked(c)
		} else {
			b.orderLocked(c)
			b.turnLocked(c.group)
		}
	}
	l.assured = l.assured && m > n // otherwise the item has arrived
	o := l.loanLocked()
	if l.assured || o != nil {
		n = m
	}
	if less := l.total - n; less > 0 {
		l.total = n
		if o != nil {
			lent := min(less, o.bytes)
			b.lendLocked(l, -lent)
			less -= lent
		}
		b.addLocked(c, -less)
	}
	b.grantLocked()
	b.leaveLocked(c)
}

// Move moves the bytes of the lease to a new one of the same client, which it returns; nil if there are none. The new lease covers an item of
// size bytes, which has arrived: Move returns the bytes that the item does not need.
func (l *Lease) Move(size int64) *Lease {
	if l == nil || l.total == 0 {
		return nil
	}
	b := l.of.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lowerLocked(l, size, size)
	if l.total == 0 {
		return nil
	}
	moved := &Lease{of: l.of, total: l.total}
	if o := l.loanLocked(); o != nil {
		o.lease = moved
	}
	l.total = 0
	return moved
}

// Release returns all bytes of the lease, which can be used again.
func (l *Lease) Release() {
	if l != nil && l.total > 0 {
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
