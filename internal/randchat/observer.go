package randchat

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/internal/randtest"
)

// Observer checks a run. Its methods may be called from any goroutine.
type Observer struct {
	randtest.Report

	noEnds  bool // see Workload
	policy  chat.Policy
	budget  Budget
	guarded bool
	// Fault, if set, reports whether the model is wrong about an instruction: for tests of the shrinking.
	Fault func(incarnation int, in Instr) bool

	mu           sync.Mutex
	now          int // counts the sent and the received frames
	incarnations int
	clients      []*client
	requests     []*request // in order of their first sending
	deletions    []*deletion
	answered     bool // a call may have an answer: from a client, by a decision or by its expiry
	calls        map[string]*callLedger
	callIDs      []string          // in order of their plans
	keys         map[string]string // the calls by their keys
	digests      map[string]string // by input
	inputs       map[string]string // by digest
	served       map[string]bool   // the keys that the service has served
	decisions    []*decision
	decidedBy    map[string]party // the last decision about a call
	running      map[string]int   // the calls that run
	checking     bool             // the check has begun
	rested       int              // the incarnation at rest; 0 before
	features     map[string]bool
	sinceGrant   map[string]int    // calls of the model since the last grant, likewise
	cut          map[string]int    // runs that have not completed, likewise
	modelCalls   map[string]int    // by the name of the scope of the budget
	grants       map[string]int    // by the program, which may have been lost; likewise
	origins      map[string]string // the first request of each message
	active       []*activity
	tries        map[string]int
	chunks       map[string]map[uint64]string // that clients have received, by request and number
}

// deletion deletes messages of the conversation.
type deletion struct {
	clears bool
	keeps  []string // all but these
	done   int      // when it was known to be done; 0 before
}

// goneLocked reports whether a message may have been deleted that was sent, or whose request was sent, at a time.
func (w *Observer) goneLocked(id string, sent int) bool {
	return slices.ContainsFunc(w.deletions, func(d *deletion) bool {
		return !slices.Contains(d.keeps, id) && (d.done == 0 || d.done > sent)
	})
}

// gone is goneLocked with the lock.
func (w *Observer) gone(id string, sent int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.goneLocked(id, sent)
}

// stopLocked records that a stop of a request is sent.
func (w *Observer) stopLocked(q *request) {
	if q.ended > 0 {
		return
	}
	if q.stopped == 0 {
		q.stopped = w.tickLocked()
	}
	q.mayEndLocked()
}

// mayEndLocked records that the agent may end a request from now on.
func (q *request) mayEndLocked() {
	if q.over.IsZero() {
		q.over = time.Now()
	}
}

// clearLocked records that the conversation is about to be cleared.
func (w *Observer) clearLocked() *deletion {
	for _, q := range w.requests {
		w.stopLocked(q)
	}
	d := &deletion{clears: true}
	w.deletions = append(w.deletions, d)
	return d
}

// activity is a call of the handler.
type activity struct {
	request     string
	incarnation int
	over        bool // another call has begun since
}

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
	w.now, w.incarnations, w.clients, w.requests, w.active, w.deletions = 0, 0, nil, nil, nil, nil
	w.calls, w.callIDs, w.answered, w.checking, w.rested = map[string]*callLedger{}, nil, false, false, 0
	w.keys, w.digests, w.inputs, w.served = map[string]string{}, map[string]string{}, map[string]string{}, map[string]bool{}
	w.decisions, w.decidedBy, w.running, w.features = nil, map[string]party{}, map[string]int{}, map[string]bool{}
	w.sinceGrant, w.cut = map[string]int{}, map[string]int{}
	w.modelCalls, w.grants, w.origins = map[string]int{}, map[string]int{}, map[string]string{}
	w.tries, w.chunks = map[string]int{}, map[string]map[uint64]string{}
}

// tickLocked returns the time of a frame that is sent or received.
func (w *Observer) tickLocked() int {
	w.now++
	return w.now
}

func (w *Observer) tick() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tickLocked()
}

// replacing returns a submission that was stored while another one waited, which it replaces. Until the given time a
// handler was active for neither.
func (w *Observer) replacing(q *request, until int) (e request, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.policy; !q.submits || q.acked == 0 || p == chat.PolicyQueue || p == chat.PolicyDrop {
		return e, false
	}
	i := slices.IndexFunc(w.requests, func(e *request) bool {
		return e.submits && e.sent > q.acked && e.acked > 0 && e.acked < until
	})
	if i < 0 {
		return e, false
	}
	return *w.requests[i], true
}

// faulty reports whether the model is made to be wrong about an instruction.
func (w *Observer) faulty(in Instr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Fault != nil && w.Fault(w.incarnations, in)
}

// wake begins an incarnation, and returns its number.
func (w *Observer) wake() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incarnations++
	return w.incarnations
}

// try counts the tries of an act that fails.
func (w *Observer) try(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[name]++
	return w.tries[name]
}

func (w *Observer) triesOf(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries[name]
}

func (w *Observer) requestLocked(id string) *request {
	i := slices.IndexFunc(w.requests, func(q *request) bool { return q.id == id })
	if i < 0 {
		return nil
	}
	return w.requests[i]
}

// find returns a copy of a request.
func (w *Observer) find(id string) (q request, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.requestLocked(id); q != nil {
		return *q, true
	}
	return q, false
}

// mayEnd records that the agent may end a request soon.
func (w *Observer) mayEnd(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requestLocked(id).over = time.Now()
}

// isLast reports whether a request is the last one that was sent.
func (w *Observer) isLast(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[len(w.requests)-1].id == id
}

// acknowledge records that a request is stored.
func (w *Observer) acknowledge(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acknowledgeLocked(w.requestLocked(id))
}

func (w *Observer) acknowledgeLocked(q *request) {
	if q != nil && q.acked == 0 {
		if q.acked = w.tickLocked(); q.deletion != nil {
			q.deletion.done = q.acked
		}
	}
}

// endedLocked records the end of a request, which never changes.
func (w *Observer) endedLocked(id, outcome, source string) {
	q := w.continuationLocked(id)
	if q == nil {
		return
	}
	if outcome == skipped && w.policy == chat.PolicyDrop && !q.continues {
		q.dropped++
		w.checkSkippedLocked(q, source)
		return
	}
	w.acknowledgeLocked(q)
	if outcome == skipped && q.ended == 0 {
		w.checkSkippedLocked(q, source)
	}
	switch {
	case outcome == aborted && q.stopped == 0:
		w.Faultf("%s: %s has ended as %s, and was not stopped", source, id, outcome)
	case outcome == "" && q.forgotten():
	case outcome == "":
		w.Faultf("%s: %s has ended without an outcome", source, id)
	case q.ended == 0:
		q.ended, q.outcome = w.tickLocked(), outcome
	case q.outcome != outcome:
		w.Faultf("%s: %s has ended as %s, and before as %s", source, id, outcome, q.outcome)
	}
}

// checkSkippedLocked checks that the policy allows a request to be skipped.
func (w *Observer) checkSkippedLocked(q *request, source string) {
	p := w.policy
	if q.continues {
		return // its message has changed, or waits
	}
	other := func(e *request) bool {
		switch {
		case e == q:
			return false
		case p == chat.PolicyDrop: // it was open
			return e.ended == 0 || e.ended > q.sent
		}
		return e.submits && (e.acked == 0 || e.acked > q.sent) // it came later
	}
	if p == chat.PolicyDrop && w.answered {
		return // a continuation may be open, which the observer does not know yet
	}
	if !q.submits || p == chat.PolicyQueue || !slices.ContainsFunc(w.requests, other) {
		w.Faultf("%s: %s was skipped", source, q.id)
	}
}

// seenLocked compares the text of a reply that a client gets with those before: it only grows.
func (w *Observer) seenLocked(m message, source string) {
	id, n, ok := parseWords(m.Text)
	q := w.requestLocked(id)
	switch {
	case m.Text == "":
		return
	case !ok, q == nil, n > len(q.plan.Words):
		w.Faultf("%s has the reply %v", source, m)
		return
	case q.message == "":
		q.message = m.ID
	case m.ID != "" && m.ID != q.message:
		w.Faultf("%s has the reply to %s in message %s, and it was in %s", source, id, m.ID, q.message)
	}
	if len(m.Text) > len(q.seen) {
		q.seen = m.Text
	}
}

// begin begins a call of the handler. Only one at a time may add chunks.
func (w *Observer) begin(id string, incarnation int) *activity {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.active {
		a.over = true
	}
	a := &activity{request: id, incarnation: incarnation}
	w.active = append(slices.DeleteFunc(w.active, func(a *activity) bool { return a.incarnation < incarnation }), a)
	if q := w.requestLocked(id); q != nil && q.ended > 0 && incarnation == w.incarnations && q.outcome != skipped {
		w.Faultf("the handler is called for %s, which has ended as %s", id, q.outcome)
	}
	return a
}

// said records that the handler has added a word.
func (w *Observer) said(a *activity) {
	w.Compared()
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.incarnation != w.incarnations {
		return
	}
	w.requestLocked(a.request).over = time.Now()
	if a.over {
		w.Faultf("a call of the handler for %s adds a word after another call has begun", a.request)
	}
	if q := w.requestLocked(a.request); q.ended > 0 {
		w.Faultf("the handler adds a word to the reply to %s, which has ended as %s", a.request, q.outcome)
	}
}

// knownLocked compares the text of a user's message with those that were sent.
func (w *Observer) knownLocked(m message, source string) {
	for _, line := range strings.Split(m.Text, "\n\n") {
		if !slices.ContainsFunc(w.requests, func(q *request) bool { return q.user.Text == line }) {
			w.Faultf("%s has the message %v, which was not sent", source, m)
		}
	}
}
