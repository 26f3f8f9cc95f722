package budget

// turnLocked gives a group a turn, or takes it away.
func (b *Budget) turnLocked(g *group) {
	switch eligible := g.lent == 0 && g.oldest.Len() > 0; {
	case eligible && g.turn == nil:
		g.turn = b.turns.PushBack(g)
	case !eligible && g.turn != nil:
		b.turns.Remove(g.turn)
		g.turn = nil
	}
}

// lendLocked adds n lent bytes, which may be negative, to a lease. Its client has a group.
func (b *Budget) lendLocked(l *Lease, n int64) {
	c := l.of
	b.lent += n
	c.group.lent += n
	c.lent += n
	l.lent += n
	b.turnLocked(c.group)
}

// grantLentLocked ends the waits of clients that the reserve can lend their bytes. A client with too large a rest keeps its turn until the
// reserve has the bytes.
func (b *Budget) grantLentLocked() {
	for e := b.turns.Front(); e != nil; e = b.turns.Front() {
		c := e.Value.(*group).oldest.Front().Value.(*client)
		if b.lent+c.rest > b.reserve {
			return
		}
		b.lendLocked(c.waiter, c.rest) // before the end of the wait, as in grantLocked
		b.endWaitLocked(c)
	}
}
