package randprog

import (
	"slices"
	"sync"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.Report

	mu      sync.Mutex
	objects map[string]*object
	events  map[string]*event  // by name
	pieces  []*output          // of responses
	sockets map[string]*socket // by name, which is also the name of the program that accepts it
	list    []*socket          // in the order of their clients' requests
	frames  []*output          // by number
	code    map[string][]Instr // of messages, by name
	disk    disk
	names   []string // of copies
	copies  int      // that were begun
	passive bool     // of a host on a backup: alarms do nothing
	// Expect, if set, changes the result that the model expects of an instruction: a fault for tests of the shrinking.
	Expect func(incarnation int, in Instr, want string) string
}

// object is an object in the model.
type object struct {
	name    string
	history []*state // committed, or about to be; the first is empty
	serial  int      // of the newest state
	lost    map[int]bool
	// Indexes into history.
	acknowledged int // the newest state that something outside depends on
	gated        int // the newest state that outputs wait for
	sure         int // the newest state whose commit has returned

	incarnation int
	process     *dohost.Host // of the incarnation
	over        bool         // the incarnation has ended
	byFence     bool         // by a fence, which leaves all commits

	cur       *state // with the writes that are not committed
	dirty     bool   // there are such writes
	ungated   bool   // all of them are PutNoWait
	turn      *event
	exclusive *event
	handling  *event    // the alarm handler that runs
	pending   []*output // of the batch
	sockets   []*socket // those that the object has, in the order of their acceptance
}

// event is an event of an object.
type event struct {
	name        string
	o           *object
	incarnation int
	ended       bool
	serial      int // of the newest state that its answer waits for
	answer      int
	sections    int
	undo        []undo // for each transaction that is open
}

// undo has the values that a rollback restores.
type undo struct {
	cur            *state
	dirty, ungated bool
	pending        int
}

// output is something that leaves after a commit: the function of an Emit, a task, or a frame.
type output struct {
	o      *object
	state  outputState
	serial int       // of the state that it waits for
	to     []*socket // of a frame
	code   int       // of a closing frame
}

type outputState int

const (
	uncommitted outputState = iota
	committed
	dropped
)

// NewObserver returns an Observer.
func NewObserver() *Observer {
	w := new(Observer)
	w.Reset()
	return w
}

// Reset begins a new run.
func (w *Observer) Reset() {
	w.Clear()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects, w.events, w.pieces = map[string]*object{}, map[string]*event{}, nil
	w.disk.full, w.names, w.copies = false, nil, 0
	w.sockets, w.list, w.frames, w.code = map[string]*socket{}, nil, nil, map[string][]Instr{}
}

func (w *Observer) faultOf(o *object, format string, args ...any) {
	w.Faultf("%s: "+format, slices.Insert(args, 0, any(o.name))...)
}

func (w *Observer) objectLocked(name string) *object {
	o := w.objects[name]
	if o == nil {
		o = &object{name: name, history: []*state{newState()}, lost: map[int]bool{}}
		w.objects[name] = o
	}
	return o
}

// Listener observes the ends of incarnations.
func (w *Observer) Listener() dohost.Listener {
	return dohost.Listener{Fenced: func(e dohost.Ended) {
		w.mu.Lock()
		defer w.mu.Unlock()
		o := w.objectLocked(e.ID.Name)
		o.over, o.byFence = true, e.Mode == dohost.EndFence && (o.byFence || !o.over) // it may end in its constructor
		if e.Cause.Reason != "idle" && e.Cause.Reason != "pressure" {
			o.sockets = nil
		}
	}}
}

// wake begins an incarnation that has found a state in its storage, and returns its number.
func (w *Observer) wake(name string, process *dohost.Host, found *state) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passive && w.objects[name] == nil { // imported during the backup
		w.objects[name] = &object{name: name, history: []*state{found}, lost: map[int]bool{}}
	}
	o := w.objectLocked(name)
	if o.incarnation > 0 && !o.over && o.process == process {
		w.faultOf(o, "incarnation %d begins before the end of the previous one", o.incarnation+1)
	}
	lowest := o.acknowledged
	if o.byFence && o.process == process {
		lowest = max(lowest, o.sure)
	}
	at := len(o.history) - 1
	for at >= lowest && !o.history[at].matches(found) {
		at--
	}
	if at < lowest {
		w.faultOf(o, "incarnation %d finds %v; possible are, from the newest: %v", o.incarnation+1, found, o.possible(lowest))
		at = len(o.history) - 1
		found.serial = o.history[at].serial
		o.history[at] = found
	}
	// The end of a process may delay an alarm that was being delivered.
	vague := o.handling != nil || o.process != process
	for _, s := range o.history[lowest : at+1] {
		vague = vague || s.matches(found) && s.alarm != o.history[at].alarm
	}
	for _, s := range o.history[at+1:] {
		o.lost[s.serial] = true
	}
	o.history = o.history[:at+1]
	for _, s := range o.history[min(lowest, at):] {
		s.alarm.vague = s.alarm.vague || vague
	}
	for _, out := range o.pending {
		out.state = dropped
	}
	o.incarnation++
	o.process, o.over, o.byFence = process, false, false
	o.sure, o.gated = at, min(o.gated, at)
	o.cur, o.dirty, o.ungated = o.history[at].clone(), false, true
	o.turn, o.exclusive, o.handling, o.pending = nil, nil, nil, nil
	return o.incarnation
}

// possible returns the states of the history from an index on, the newest first.
func (o *object) possible(lowest int) []string {
	var list []string
	for _, s := range slices.Backward(o.history[lowest:]) {
		list = append(list, "["+s.String()+"]")
	}
	return list
}

// acknowledgeLocked records that something outside depends on a state.
func (w *Observer) acknowledgeLocked(o *object, serial int) {
	if o.lost[serial] {
		w.faultOf(o, "an acknowledged commit, number %d, was lost", serial)
		return
	}
	at, _ := slices.BinarySearchFunc(o.history, serial, func(s *state, serial int) int { return s.serial - serial })
	o.acknowledged = max(o.acknowledged, min(at, len(o.history)-1))
}

// alive reports whether the event's incarnation has not ended. The code of an ended one may still run, until its next
// operation is refused.
func (e *event) alive() bool { return e.incarnation == e.o.incarnation && !e.o.over }

// actsLocked checks that an event, whose operation has succeeded, may act.
func (w *Observer) actsLocked(e *event) {
	o := e.o
	switch {
	case !e.alive():
		w.faultOf(o, "%s of incarnation %d acts after its end", e.name, e.incarnation)
	case o.turn != e && o.turn != nil:
		w.faultOf(o, "%s acts during the turn of %s", e.name, o.turn.name)
	case o.turn != e:
		w.faultOf(o, "%s acts without the turn", e.name)
	case o.exclusive != nil && o.exclusive != e:
		w.faultOf(o, "%s acts in the exclusive section of %s", e.name, o.exclusive.name)
	}
	o.sure = len(o.history) - 1
}

// acquire records that an event has got the turn.
func (w *Observer) acquire(e *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acquireLocked(e)
}

func (w *Observer) acquireLocked(e *event) {
	if e.o.turn == nil {
		e.o.turn = e
	}
	w.actsLocked(e)
}

// commit records that the batch of an event is about to be committed, and whether the event
// releases the turn then.
func (w *Observer) commit(e *event, release bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !e.alive() {
		return
	}
	w.actsLocked(e)
	w.commitLocked(e)
	if release {
		e.o.turn = nil
	}
}

func (w *Observer) commitLocked(e *event) {
	o := e.o
	if o.dirty || len(o.pending) > 0 {
		o.serial++
		o.cur.serial = o.serial
		s := o.cur.clone()
		s.alarm.vague = s.alarm.vague || o.handling != nil
		o.history = append(o.history, s)
		if o.dirty && !o.ungated {
			o.gated = len(o.history) - 1
		}
	}
	for _, out := range o.pending {
		out.state, out.serial = committed, o.history[o.gated].serial
		out.expect()
	}
	o.dirty, o.ungated, o.pending = false, true, nil
	e.serial = o.history[o.gated].serial
}

// durable records that the commits of an event are durable: with all, also those of PutNoWait.
func (w *Observer) durable(e *event, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.incarnation != e.o.incarnation {
		w.acknowledgeLocked(e.o, e.serial)
		return
	}
	if all {
		w.acknowledgeLocked(e.o, e.o.history[len(e.o.history)-1].serial)
	}
	w.acknowledgeLocked(e.o, e.serial)
}

// step compares the result of an instruction with that of the model.
func (w *Observer) step(e *event, in Instr, got string, apply func(*state) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actsLocked(e)
	w.Compared()
	if got == noSpace {
		if !puts[in.Op] || !w.disk.mayRefuse() {
			w.faultOf(e.o, "%s: %s is refused for want of space", e.name, randtest.Literal(in))
		}
		return
	}
	hadAlarm := e.o.cur.alarm.set && !e.o.cur.alarm.vague
	want := apply(e.o.cur)
	if w.Expect != nil {
		want = w.Expect(e.incarnation, in, want)
	}
	if got != want {
		w.faultOf(e.o, "%s: %s returns %s, want %s", e.name, randtest.Literal(in), got, want)
	}
	if puts[in.Op] && !wroteNothing[got] && got != "limit" && w.disk.mustRefuse() {
		w.faultOf(e.o, "%s: %s succeeds on a full disk", e.name, randtest.Literal(in))
	}
	if writes[in.Op] && !wroteNothing[got] && (in.Op != DeleteAlarm || hadAlarm) {
		e.o.dirty = true
		e.o.ungated = e.o.ungated && in.Op == PutNoWait
	}
}

// writes are the instructions that write.
var writes = map[Op]bool{
	Put: true, PutNoWait: true, PutMany: true, Add: true, Delete: true, DeleteMany: true, DeleteAll: true, Insert: true, PutRow: true,
	UpdateRow: true, UpdateIf: true, DeleteRow: true, DeleteRowIf: true, SetAlarm: true, DeleteAlarm: true,
}

// wroteNothing has the results of writes that had nothing to write, or failed.
var wroteNothing = map[string]bool{"false": true, "0": true, "not found": true, "conflict": true}
