package runtime

// lane is a turn queue: that of the incarnation, or of an Exclusive section. New events and
// returning Awaits wait in the same queue, so that neither starves the other. Guarded by
// the object's lock.
type lane struct {
	queue
	holder *turn
	into   *lane // the queue for its turns after its section has closed; else nil
}

// queue is a list of turns, first in first out.
type queue struct{ head, tail *turn }

// openLocked returns the lane that a turn of this one queues in now.
func (l *lane) openLocked() *lane {
	for l.into != nil {
		l = l.into
	}
	return l
}

// closeLocked moves the queued turns, and all later ones, to another lane: a goroutine of
// an Exclusive section may outlive the section.
func (l *lane) closeLocked(into *lane) {
	l.into = into
	for t := l.pop(); t != nil; t = l.pop() {
		t.lane = into
		into.push(t)
	}
}

func (l *queue) push(t *turn) {
	t.next = nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

func (l *queue) pop() *turn {
	t := l.head
	if t == nil {
		return nil
	}
	l.head = t.next
	if l.head == nil {
		l.tail = nil
	}
	t.next = nil
	return t
}

// passLocked grants the turn to the next in order. It wakes a returning Await itself, and
// returns a new event's turn for the caller to run.
func (l *lane) passLocked() *turn {
	l.holder = nil
	for {
		t := l.pop()
		if t == nil {
			return nil
		}
		if t.fresh && t.ev.left {
			continue // its caller has gone; it was uncounted then
		}
		if t.state.Load() == turnOver {
			t.wake <- granted // its code has ended without it
			continue
		}
		l.grantLocked(t)
		if t.fresh {
			return t
		}
		t.wake <- granted
		return nil
	}
}

func (l *lane) grantLocked(t *turn) {
	l.holder = t
	t.seen.Add(1)
	t.state.Store(turnHeld)
}

// takeFreshLocked removes the events that have not started, and returns them without the
// events that their callers have abandoned.
func (l *queue) takeFreshLocked() []*event {
	var evs []*event
	var rest queue
	for t := l.pop(); t != nil; t = l.pop() {
		switch {
		case !t.fresh:
			rest.push(t)
		case !t.ev.left:
			evs = append(evs, t.ev)
		}
	}
	*l = rest
	return evs
}

// pruneLocked drops the events that their callers have abandoned. Otherwise they would
// accumulate while a holder keeps the turn.
func (l *queue) pruneLocked() {
	var rest queue
	for t := l.pop(); t != nil; t = l.pop() {
		if !t.fresh || !t.ev.left {
			rest.push(t)
		}
	}
	*l = rest
}
