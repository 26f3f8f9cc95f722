package randchat

import (
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/ledger"
)

// callLedger is the knowledge about a call outside of the agent: its runs, and the effects that they had on a service. It survives all
// endings. Calls have unique ids in a run of a program.
type callLedger struct {
	id       string
	use      Use
	kind     *kind
	made     int    // the incarnation of the chunk that makes it; 0 before
	key      string // of its first run
	runs     int    // that have begun
	finds    int    // calls of Find
	closed   int    // the number of runs before the last answer NotDone of Find: they cannot have an effect any more
	first    int    // the incarnation of the first run
	last     int    // and of the last run, or call of Find
	effects  int
	quiet    bool // a client has answered a call of its message without a continuation
	outputs  []string
	approved bool // an approval of it was sent
	denied   bool // a refusal of it was sent
	frames   map[string]int
	listed   map[string]bool // by clients whose lists had the call with an approval
	state    string          // of its result, which never changes; empty before
	ended    int             // the incarnation when a client or the check has got the result; 0 before
	output   string
	message  string // and digest are known only of calls about budgets; empty before
	digest   string
	granted  bool // its approval has counted as a grant
	// elsewhere is nil for a call that no other party completes.
	elsewhere *externalLedger
}

// plansLocked records the calls of a plan that is about to be sent.
func (w *Observer) plansLocked(request string, p *Plan) {
	if !p.Model {
		return
	}
	p.eachUse(request, func(id string, u Use) {
		l := &callLedger{id: id, use: u, kind: kindOf(id), frames: map[string]int{}, listed: map[string]bool{}}
		if w.calls[id] = l; l.kind.external != nil {
			l.elsewhere = &externalLedger{}
		}
		w.callIDs = append(w.callIDs, id)
		w.answered = w.answered || l.kind.within > 0 || l.elsewhere != nil // an expiry continues the message
	})
}

// madeCall records that the model makes a call.
func (w *Observer) madeCall(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.calls[id]; l.made == 0 {
		l.made = w.incarnations
	}
}

// runBegins records that a run of a call begins, and returns its number.
func (w *Observer) runBegins(c *chat.Call, incarnation int) (use Use, run int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[c.ID]
	if l == nil {
		w.Faultf("a tool runs %+v, which no model has made", c)
		return use, 0
	}
	l.runs++
	if l.first == 0 {
		l.first = incarnation
	}
	l.last = incarnation
	if l.elsewhere != nil {
		l.elsewhere.begunLocked()
	}
	w.checkKeyLocked(l, c)
	policy := l.kind.policy
	switch {
	case l.kind.client:
		w.Faultf("the server runs the call %s, which is for a client", l.id)
	case l.state != "":
		w.Faultf("the call %s runs, and has the result %s %s", l.id, l.state, l.output)
	case policy <= ledger.PolicyAtMostOnce && l.runs > 1:
		w.Faultf("the call %s runs again", l.id)
	case policy == ledger.PolicyIdempotent && l.runs > maxToolRuns, policy == ledger.PolicyReconcile && l.runs > maxToolRuns:
		w.Faultf("the call %s runs %d times", l.id, l.runs)
	case policy == ledger.PolicyReconcile && l.runs > 1 && l.closed < l.runs-1:
		w.Faultf("the call %s runs again, and Find has not answered NotDone after run %d", l.id, l.runs-1)
	case l.use.asks() && !l.approved:
		w.Faultf("the call %s runs, and no approval was sent", l.id)
	}
	w.ranLocked(l)
	return l.use, l.runs
}

// maxToolRuns is the documented maximum of the runs of a call.
const maxToolRuns = 5

// checkKeyLocked compares the call that a tool gets with the plan. Its key is always the same, and no other call has it.
func (w *Observer) checkKeyLocked(l *callLedger, c *chat.Call) {
	if l.key == "" {
		l.key = c.Key
	}
	if w.keys[c.Key] == "" {
		w.keys[c.Key] = l.id
	}
	if c.Key == "" || l.key != c.Key || w.keys[c.Key] != l.id {
		w.Faultf("a run of the call %s has the key %q; the call had %q, and the key is of %q", l.id, c.Key, l.key, w.keys[c.Key])
	}
	if c.Tool != l.use.Tool || c.Input != l.use.input() || c.State != chat.CallRunning {
		w.Faultf("a run of the call %s gets %+v, want the input %s", l.id, c, l.use.input())
	}
	w.checkDigestLocked(l, c.Digest)
}

// checkDigestLocked checks that calls have equal digests if and only if their tools and inputs are equal.
func (w *Observer) checkDigestLocked(l *callLedger, digest string) {
	if isBudgetCall(l.id) {
		if len(digest) != 64 || l.digest != "" && l.digest != digest {
			w.Faultf("the call %s has the digest %q, and had %q", l.id, digest, l.digest)
		}
		l.digest = digest
		return
	}
	input := l.use.input()
	if w.digests[input] == "" && w.inputs[digest] == "" {
		w.digests[input], w.inputs[digest] = digest, input
	}
	if len(digest) != 64 || w.digests[input] != digest {
		w.Faultf("the call %s has the digest %q; that of its input is %q", l.id, digest, w.digests[input])
	}
}

var errRefused = errors.New("the service refuses a request that was reported as not done")

// receipt is the result of the effect of a call.
func receipt(call string) string { return "receipt of " + call }

// effect is the request of a run to the service. The service recognises the keys of calls with the policy Idempotent.
func (w *Observer) effect(c *chat.Call, run int) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[c.ID]
	if run <= l.closed {
		return "", errRefused
	}
	if l.kind.policy == ledger.PolicyIdempotent && w.served[c.Key] {
		return receipt(l.id), nil
	}
	w.served[c.Key] = true
	if l.effects++; l.effects > 1 {
		w.Faultf("the call %s has had %d effects", l.id, l.effects)
	}
	return receipt(l.id), nil
}

// answerFind answers a question about a call with the policy Reconcile.
func (w *Observer) answerFind(c *chat.Call, incarnation int) (any, ledger.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[c.ID]
	if l == nil || l.kind.policy != ledger.PolicyReconcile || l.state != "" {
		w.Faultf("Find is called for %+v", c)
		return nil, ledger.AnswerUnknown, nil
	}
	w.checkKeyLocked(l, c)
	l.finds, l.last = l.finds+1, incarnation
	switch {
	case l.use.Find == findUnknown:
		w.occursLocked("Find answers Unknown")
		return nil, ledger.AnswerUnknown, nil
	case l.use.Find == findFails:
		w.occursLocked("Find fails")
		return nil, ledger.AnswerDone, errTool
	case l.effects > 0:
		w.occursLocked("Find answers Done")
		return receipt(l.id), ledger.AnswerDone, nil
	}
	w.occursLocked("Find answers NotDone")
	l.closed = l.runs
	return nil, ledger.AnswerNotDone, nil
}

// ranLocked records the features that the run of a call shows.
func (w *Observer) ranLocked(l *callLedger) {
	switch {
	case l.runs > 1 && l.kind.policy == ledger.PolicyIdempotent:
		w.occursLocked("Idempotent runs again")
	case l.runs > 1:
		w.occursLocked("Reconcile runs again")
	}
	if l.use.asks() {
		w.occursLocked("a call runs after an approval")
	}
}

// decision is a decision about a call that the program or an operator has sent.
type decision struct {
	id, call, actor string
	approve         bool
	completes       bool   // it completes an external call, with a result if approve is set
	digest          string // that was sent
	result          result // empty if it is not known
}

// result is the answer to a decision.
type result string

// The answers.
const (
	applied    result = "applied"
	late       result = "late"
	stale      result = "stale"
	notWaiting result = "not waiting"
	noCall     result = "no call"
)

// decides records a decision that is about to be sent.
func (w *Observer) decides(call, actor string, approve bool, digest string, completes bool) *decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = true
	d := &decision{id: fmt.Sprint("decision ", len(w.decisions)+1), call: call, actor: actor, approve: approve, digest: digest, completes: completes}
	w.decisions = append(w.decisions, d)
	if l := w.ledgerLocked(call, ""); l != nil && !completes {
		l.approved, l.denied = l.approved || approve, l.denied || !approve
		w.decidesLocked(l, actor)
	}
	return d
}

// decidesLocked records the features that a decision shows.
func (w *Observer) decidesLocked(l *callLedger, by string) {
	now := time.Now()
	if last, ok := w.decidedBy[l.id]; ok && last.by != by {
		w.occursLocked("two parties decide about a call")
		if last.incarnation != w.incarnations {
			w.occursLocked("two parties decide, before and after an ending")
		} else if now.Sub(last.at) <= time.Second {
			w.occursLocked("two parties decide within a second")
		}
	}
	w.decidedBy[l.id] = party{by, now, w.incarnations, w.tickLocked()}
	if len(w.running) > 0 {
		w.occursLocked("a decision during a run of a call")
	}
	if q := w.requestLocked(w.requestOfLocked(l.id)); q != nil && q.stopped > 0 {
		w.occursLocked("a decision about a call of a stopped reply")
	}
}

// party is a party that has decided about a call.
type party struct {
	by          string
	at          time.Time
	incarnation int
	sent        int
}
