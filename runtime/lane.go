package runtime

// lane is a queue for the turn: the life's own, or that inside an Exclusive
// section. New events and returning Awaits stand in one line, so that neither
// starves the other. Guarded by the object's lock.
type lane struct {
	queue
	holder *turn
	into   *lane // where its turns go since its section has closed; else nil
}

// queue is a list of turns, first in first out.
type queue struct{ head, tail *turn }

// openLocked is the lane that a turn of this one queues in now.
func (l *lane) openLocked() *lane {
	for l.into != nil {
		l = l.into
	}
	return l
}

// closeLocked sends whoever is queued, and whoever will be, to another lane: code
// of an Exclusive section may have left a goroutine behind.
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

// passLocked gives the lane to the next turn in order. It wakes a returning
// Await by itself and returns a fresh turn for the caller to run.
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

// takeFreshLocked takes the events that have not started out of the lane, without
// those whose callers have gone.
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

// pruneLocked drops the events whose callers have gone. A lane whose holder never
// ends would gather them for ever.
func (l *queue) pruneLocked() {
	var rest queue
	for t := l.pop(); t != nil; t = l.pop() {
		if !t.fresh || !t.ev.left {
			rest.push(t)
		}
	}
	*l = rest
}
