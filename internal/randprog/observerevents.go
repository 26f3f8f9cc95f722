package randprog

import (
	"fmt"
	"time"

	"github.com/dohost/dohost"
)

// begin begins an event, which has the turn. cause, unless it is nil, is the output or the call
// that has caused it.
func (w *Observer) begin(object, name string, incarnation int, cause *output) *event {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &event{name: name, o: w.objectLocked(object), incarnation: incarnation}
	if w.events[name] != nil {
		w.faultOf(e.o, "%s runs twice", name)
	}
	w.events[name] = e
	if cause != nil {
		w.leavesLocked(cause, name)
	}
	if e.alive() {
		w.acquireLocked(e)
	}
	return e
}

// leaves records that an output has left.
func (w *Observer) leaves(out *output, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leavesLocked(out, name)
}

func (w *Observer) leavesLocked(out *output, name string) {
	if out.state != committed {
		w.faultOf(out.o, "%s happens, although its event was not committed", name)
		return
	}
	w.acknowledgeLocked(out.o, out.serial)
}

// emit adds an output to the batch of an event.
func (w *Observer) emit(e *event) *output {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := &output{o: e.o}
	if !e.alive() {
		return out
	}
	w.actsLocked(e)
	e.o.pending = append(e.o.pending, out)
	return out
}

// asked returns an output for a call that an event is about to make: it waits for the commit that
// the event has just made.
func (w *Observer) asked(e *event) *output {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &output{o: e.o, state: committed, serial: e.serial}
}

// piece returns the number of a piece of a response. It waits for the commit that the event has just made.
func (w *Observer) piece(e *event) int {
	out := w.asked(e)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pieces = append(w.pieces, out)
	return len(w.pieces) - 1
}

// pieceLeaves records that a client has received a piece.
func (w *Observer) pieceLeaves(n int, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n >= len(w.pieces) {
		return // of the previous run
	}
	w.leavesLocked(w.pieces[n], fmt.Sprintf("%s, piece %d", name, n))
}

// beginAlarm begins the handler of an alarm.
func (w *Observer) beginAlarm(object string, incarnation int, info dohost.AlarmInfo) *event {
	w.mu.Lock()
	o := w.objectLocked(object)
	name := fmt.Sprintf("alarm %d", w.Next())
	at := info.Scheduled.UnixMilli()
	switch a := o.cur.alarm; {
	case incarnation != o.incarnation, o.over:
	case time.Now().UnixMilli() < at:
		w.faultOf(o, "%s for %d begins at %d", name, at, time.Now().UnixMilli())
	case a.vague:
	case !a.set:
		w.faultOf(o, "%s for %d: no alarm is set", name, at)
	case at < a.at:
		w.faultOf(o, "%s for %d: it is set for %d", name, at, a.at)
	}
	if o.handling != nil && incarnation == o.incarnation && !o.over {
		w.faultOf(o, "%s begins during %s", name, o.handling.name)
	}
	w.mu.Unlock()
	e := w.begin(object, name, incarnation, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !e.alive() {
		return e
	}
	o.handling, o.cur.alarm = e, modelAlarm{}
	return e
}

// end ends an event, whose last batch is about to be committed.
func (w *Observer) end(e *event, answer int, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !e.alive() {
		return
	}
	w.actsLocked(e)
	if o := e.o; o.handling == e {
		o.handling, o.dirty, o.ungated = nil, true, false
		o.cur.alarm.vague = o.cur.alarm.vague || failed
	}
	w.commitLocked(e)
	e.o.turn, e.ended, e.answer = nil, true, answer
}

// abandon ends an event that panics, or whose operation is refused: its incarnation ends. If the store has failed,
// other events may act until the host ends the incarnation.
func (w *Observer) abandon(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.o.turn == e {
		e.o.turn = nil
	}
	if e.o.exclusive == e {
		e.o.exclusive = nil
	}
}

// answered compares the outcome of a call with the event that it caused.
func (w *Observer) answered(object, name string, answer int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, e := w.objectLocked(object), w.events[name]
	switch {
	case dohostOutcome(err) == dohost.OutcomeNotRun && e != nil:
		w.faultOf(o, "%s has run, but its caller got: %v", name, err)
	case err == nil && (e == nil || !e.ended):
		w.faultOf(o, "%s was answered, but has not ended", name)
	case err == nil && e.answer != answer:
		w.faultOf(o, "%s: the answer is %d, want %d", name, answer, e.answer)
	case err == nil, e != nil && e.ended && dohostOutcome(err) == dohost.OutcomeRan: // an error is an answer, too
		w.acknowledgeLocked(o, e.serial)
	}
}

// enter and leave are the bounds of an exclusive section.
func (w *Observer) enter(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	e.sections++
	e.o.exclusive = e
}

func (w *Observer) leave(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !e.alive() {
		return
	}
	w.actsLocked(e)
	if e.sections--; e.sections == 0 {
		e.o.exclusive = nil
	}
}

// beginTransaction and endTransaction are the bounds of a transaction.
func (w *Observer) beginTransaction(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	o := e.o
	e.undo = append(e.undo, undo{o.cur.clone(), o.dirty, o.ungated, len(o.pending)})
}

func (w *Observer) endTransaction(e *event, rollback bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	o, u := e.o, e.undo[len(e.undo)-1]
	e.undo = e.undo[:len(e.undo)-1]
	if !rollback {
		return
	}
	for _, out := range o.pending[u.pending:] {
		out.state = dropped
	}
	o.cur, o.dirty, o.ungated, o.pending = u.cur, u.dirty, u.ungated, o.pending[:u.pending]
}

// checkAlarm checks, when an object is at rest, that no alarm was lost.
func (w *Observer) checkAlarm(object string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objectLocked(object)
	if a := o.cur.alarm; a.set && !a.vague {
		w.faultOf(o, "the alarm of %d has not fired", a.at)
	}
}

// durableFeed returns the feed of the newest acknowledged state.
func (w *Observer) durableFeed(e *event) []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.o.history[e.o.acknowledged].feed
}
