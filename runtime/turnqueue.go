package runtime

// turnQueue is the queue for the turn of the incarnation, or of an Exclusive section. New
// events and returning Awaits wait in the same queue, so that neither starves the other.
// Guarded by the object's lock.
type turnQueue struct {
	turnList
	holder *turn
	into   *turnQueue // the queue for its turns after its section has closed; else nil
}

// turnList is a list of turns, first in first out.
type turnList struct{ head, tail *turn }

// openLocked returns the turn queue that a turn of this one queues in now.
func (q *turnQueue) openLocked() *turnQueue {
	for q.into != nil {
		q = q.into
	}
	return q
}

// closeLocked moves the queued turns, and all later ones, to another turn queue: a goroutine of
// an Exclusive section may outlive the section.
func (q *turnQueue) closeLocked(into *turnQueue) {
	q.into = into
	for t := q.pop(); t != nil; t = q.pop() {
		t.queue = into
		into.push(t)
	}
}

func (l *turnList) push(t *turn) {
	t.next = nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

func (l *turnList) pop() *turn {
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
func (q *turnQueue) passLocked() *turn {
	q.holder = nil
	for {
		t := q.pop()
		if t == nil {
			return nil
		}
		if t.unstarted && t.ev.abandoned {
			continue // its caller has given up; it was uncounted then
		}
		if t.state.Load() == turnOver {
			t.wake <- granted // its code has ended without it
			continue
		}
		q.grantLocked(t)
		if t.unstarted {
			return t
		}
		t.wake <- granted
		return nil
	}
}

func (q *turnQueue) grantLocked(t *turn) {
	q.holder = t
	t.progress.Add(1)
	t.state.Store(turnHeld)
}

// takeFreshLocked removes the events that have not started, and returns them without the
// events that their callers have abandoned.
func (l *turnList) takeFreshLocked() []*event {
	var evs []*event
	var rest turnList
	for t := l.pop(); t != nil; t = l.pop() {
		switch {
		case !t.unstarted:
			rest.push(t)
		case !t.ev.abandoned:
			evs = append(evs, t.ev)
		}
	}
	*l = rest
	return evs
}

// pruneLocked drops the events that their callers have abandoned. Otherwise they would
// accumulate while a holder keeps the turn.
func (l *turnList) pruneLocked() {
	var rest turnList
	for t := l.pop(); t != nil; t = l.pop() {
		if !t.unstarted || !t.ev.abandoned {
			rest.push(t)
		}
	}
	*l = rest
}
