package budget

import "container/heap"

// loan has the lent bytes of an object. One lease has all of them.
type loan struct {
	lease *Lease
	bytes int64
	since uint64 // the number of the wait that it ended
	at    int    // the index in Budget.loans
}

// need returns the left side of the rule of this package after the bytes have become bytes by the rule, less the present bytes of all leases.
func (o *loan) need() (bytes int64, since uint64) {
	c := o.lease.of
	return c.group.used + c.used + 3*o.bytes, o.since
}
func (o *loan) index() *int { return &o.at }

// lent returns the lent bytes of a client.
func (c *client) lent() int64 {
	if c.group == nil || c.group.loan == nil || c.group.loan.lease.of != c {
		return 0
	}
	return c.group.loan.bytes
}

// lent returns the lent bytes of a group.
func (g *group) lent() int64 {
	if g.loan == nil {
		return 0
	}
	return g.loan.bytes
}

// loanLocked returns the loan of a lease; nil if the lease has no lent bytes.
func (l *Lease) loanLocked() *loan {
	if g := l.of.group; g != nil && g.loan != nil && g.loan.lease == l {
		return g.loan
	}
	return nil
}

// borrowerLocked returns the client of a group that gets lent bytes in the next turn of the group; nil if there is none. If the group has a loan,
// only the lease of the loan can get more. Otherwise the client with the oldest wait is the next.
func (b *Budget) borrowerLocked(g *group) *client {
	switch o := g.loan; {
	case o == nil && g.oldest.Len() > 0:
		return g.oldest.Front().Value.(*client)
	case o != nil && o.lease.of.waiter == o.lease && o.bytes+o.lease.of.rest <= b.reserve:
		return o.lease.of
	}
	return nil
}

// turnLocked gives a group a turn, or takes it away.
func (b *Budget) turnLocked(g *group) {
	switch eligible := b.borrowerLocked(g) != nil; {
	case eligible && g.turn == nil:
		g.turn = b.turns.PushBack(g)
	case !eligible && g.turn != nil:
		b.turns.Remove(g.turn)
		g.turn = nil
	}
}

// lendLocked adds n lent bytes, which may be negative, to the object of a lease. Only the lease has lent bytes of its object, if there are any.
func (b *Budget) lendLocked(l *Lease, n int64) {
	g := l.of.group
	if g.loan == nil {
		g.loan = &loan{lease: l, since: l.of.since}
		heap.Push(&b.loans, g.loan)
	}
	b.lent += n
	if g.loan.bytes += n; g.loan.bytes > 0 {
		heap.Fix(&b.loans, g.loan.at)
	} else {
		heap.Remove(&b.loans, g.loan.at)
		g.loan = nil
	}
	b.turnLocked(g)
}

// convertLocked converts lent bytes into bytes by the rule while the rule allows it. The totals of the leases stay the same.
func (b *Budget) convertLocked() {
	for len(b.loans) > 0 {
		o := b.loans[0]
		if need, _ := o.need(); b.used+need > b.share {
			return
		}
		n := o.bytes
		b.lendLocked(o.lease, -n)
		b.addLocked(o.lease.of, n)
	}
}

// grantLentLocked ends the waits of clients that the reserve can lend their bytes. A client with too large a rest keeps its turn until the
// reserve has the bytes.
func (b *Budget) grantLentLocked() {
	for e := b.turns.Front(); e != nil; e = b.turns.Front() {
		c := b.borrowerLocked(e.Value.(*group))
		if b.lent+c.rest > b.reserve {
			return
		}
		l := c.waiter
		l.total += c.rest // before the end of the wait, as in grantLocked
		l.assured = true
		b.lendLocked(l, c.rest)
		b.endWaitLocked(c)
	}
}
