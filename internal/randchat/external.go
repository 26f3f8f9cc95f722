package randchat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// externalTime is the limit of the external calls that have one.
const externalTime = 30 * time.Second

// completion is a completion of an external call that the program or an operator has sent.
type completion struct {
	chat.Completion
	call string
}

// state returns the state of a call that a completion has ended.
func (c *completion) state() chat.CallState {
	switch {
	case c.Unknown:
		return chat.CallUnknown
	case c.Error != "":
		return chat.CallFailed
	}
	return chat.CallCompleted
}

// externalLedger is the part of a callLedger about a call that another party completes.
type externalLedger struct {
	firstBegun, lastBegun time.Time // of its runs
	completions           []*completion
	operated              bool // an operator has sent a completion
}

// async reports whether another party completes a call after the model has got a first result.
func (l *callLedger) async() bool { return l.elsewhere != nil && l.kind.external.Async }

// knowsQueued reports whether an output is the first result of an asynchronous call. The key in it is known from the first run,
// which a call that an operator has completed may not have.
func (l *callLedger) knowsQueued(output string) bool {
	if l.key != "" {
		return output == fmt.Sprintf(`{"id":%q,"status":"queued"}`, l.key)
	}
	return l.elsewhere.operated && queuedOutput.MatchString(output)
}

// queuedOutput is the first result of an asynchronous call.
var queuedOutput = regexp.MustCompile(`^{"id":"call_[0-9a-z]{26}","status":"queued"}$`)

// sent reports whether a completion with the given state was sent.
func (e *externalLedger) sent(state chat.CallState) bool {
	return slices.ContainsFunc(e.completions, func(c *completion) bool { return c.state() == state })
}

// begunLocked records that a run begins to hand a call over.
func (e *externalLedger) begunLocked() {
	e.lastBegun = time.Now()
	if e.firstBegun.IsZero() {
		e.firstBegun = e.lastBegun
	}
}

// complete makes the other party of an external call complete it, immediately, or close to the end of the time for that.
func (w *Observer) complete(ctx context.Context, h *dohosttest.Host, in Instr) {
	to := aim{K: in.K, N: in.N}
	if in.N%3 == 0 {
		to.Call = w.awaitExpiry(ctx, h, in, chat.CallExternal)
	}
	w.tryFor(ctx, h, to, (*machine).complete)
}

// complete completes an external call, sometimes twice, and reports whether it has chosen one.
func (a *machine) complete(ctx context.Context, to aim) (bool, error) {
	times := 1
	if to.N%8 == 0 {
		times = 2
	}
	for range times {
		c := a.w.completes(to)
		if c == nil {
			return false, nil
		}
		to.Call, to.N = c.call, to.N+1
		if err := a.completeOnce(ctx, c); err != nil {
			return false, err
		}
	}
	return true, nil
}

// completes makes a completion of a call whose run has begun: of one without a result, or sometimes of any.
func (w *Observer) completes(to aim) *completion {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, id := range w.callIDs {
		if l := w.calls[id]; l.kind.external != nil && l.key != "" && (l.state == "" || l.async() || to.N%6 == 0) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	id := to.Call
	if !slices.Contains(ids, id) {
		id = ids[len(ids)-1-to.K%len(ids)]
	}
	return w.completionLocked(w.calls[id], to.N)
}

// completionLocked makes a completion, and records that it is sent.
func (w *Observer) completionLocked(l *callLedger, n int) *completion {
	c := &completion{call: l.id, Completion: chat.Completion{Key: l.key}}
	switch text := fmt.Sprint("completion ", w.tickLocked()); n % 7 {
	case 1:
		c.Error = text
	case 2:
		c.Error, c.Unknown = text, true
	default:
		c.Output = json.RawMessage(fmt.Sprintf("%q", text))
		l.outputs = append(l.outputs, string(c.Output))
	}
	l.elsewhere.completions = append(l.elsewhere.completions, c)
	w.answered = true
	return c
}

func completedKey(call string) string { return "completed/" + call }

func handedKey(call string) string { return "handed/" + call }

// handOver ends a run that hands a call over. In the same batch the call begins to wait: only a completion, an operator or the end of
// its time ends it from then on, and no interruption or stop.
func (a *machine) handOver(ctx context.Context, call string) error {
	return dohost.Put(ctx, a.Storage(), handedKey(call), true)
}

// completeOnce completes a call, and compares its states before and after that with the result. An applied completion is recorded
// in its batch.
func (a *machine) completeOnce(ctx context.Context, c *completion) error {
	before, _, err := chat.FindCall(ctx, a, c.Key)
	if err != nil {
		return a.unexpected(ctx, c.call, err)
	}
	applied, err := chat.Complete(ctx, a, &c.Completion)
	a.w.Compared()
	if errors.Is(err, chat.ErrNoCall) {
		// The call may have been there before: Complete first waits for earlier writes, and its message may be deleted until then.
		switch now, found, err := chat.FindCall(ctx, a, c.Key); {
		case err != nil:
			return a.unexpected(ctx, c.call, err)
		case found:
			a.w.Faultf("Complete does not find %+v", now)
		}
		a.w.occurs("a completion of no call")
		return a.checkAbsent(ctx, c.call)
	}
	if err != nil {
		return a.unexpected(ctx, c.call, err)
	}
	after, _, err := chat.FindCall(ctx, a, c.Key)
	if err != nil {
		return a.unexpected(ctx, c.call, err)
	}
	open, err := openCalls(ctx, a)
	if err != nil {
		return err
	}
	a.w.checkCompletion(c, &before, &after, applied, open)
	if !applied {
		return nil
	}
	earlier, err := get[string](ctx, a, completedKey(c.call))
	if err != nil {
		return err
	}
	if earlier != "" {
		a.w.Faultf("the completion %+v of %s is applied after %s", c.Completion, c.call, earlier)
	}
	return dohost.Put(ctx, a.Storage(), completedKey(c.call), c.Error+string(c.Output))
}

// endedState reports whether a call with this state has ended.
func endedState(s chat.CallState) bool {
	return slices.Contains([]chat.CallState{chat.CallCompleted, chat.CallFailed, chat.CallDenied, chat.CallExpired, chat.CallUnknown}, s)
}

// checkCompletion checks the result of a completion: the first one before the end of the time counts, and no other.
func (w *Observer) checkCompletion(c *completion, before, after *chat.Call, applied bool, open []chat.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[c.call]
	now, within := time.Now(), l.kind.external.Within
	wrong := ""
	switch {
	case before.ID != l.id || before.Tool != l.use.Tool || after.ID != l.id:
		wrong = "finds another call"
	case applied && endedState(before.State):
		wrong = "is applied to a call that has ended"
	case applied && within > 0 && now.After(l.elsewhere.lastBegun.Add(within+time.Millisecond)):
		wrong = "is applied after the time"
	case !applied && !endedState(before.State) && (within == 0 || now.Before(l.elsewhere.firstBegun.Add(within-time.Millisecond))):
		wrong = "is not applied, and the call waits"
	case applied && (after.State != c.state() || string(after.Output) != string(c.Output) || after.Error != c.Error):
		wrong = "is applied, and the call has another result"
	case !applied && !endedState(after.State):
		wrong = "leaves the call open"
	case !applied && endedState(before.State) && (after.State != before.State || string(after.Output) != string(before.Output) || after.Error != before.Error):
		wrong = "changes a call that has ended"
	case slices.ContainsFunc(open, func(o chat.Call) bool { return o.Key == c.Key }):
		wrong = "leaves the call in the list of the open calls"
	}
	if wrong != "" {
		w.Faultf("the completion %+v of %s %s: applied %t, before %+v, after %+v; the call is %+v, %+v", c.Completion, l.id, wrong, applied, *before, *after, *l, *l.elsewhere)
	}
	switch {
	case !applied && before.State == chat.CallUnknown && within > 0:
		w.occursLocked("a completion after its time, or after an unknown end")
	case !applied:
		w.occursLocked("a completion of a call that has ended")
	case before.State == chat.CallRunning:
		w.occursLocked("a completion during the run that hands the call over")
	default:
		w.occursLocked("a completion ends a call as " + string(c.state()))
	}
}

// operatorCompletes makes an operator's request a completion of its call, and records that it is sent.
func (w *Observer) operatorCompletes(r *dohost.AdminRequest, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.calls[r.ID]
	if l == nil {
		return
	}
	l.elsewhere.operated = true
	c := w.completionLocked(l, n-n%2) // an operator has no unknown outcome
	if r.Action = dohost.ActionComplete; c.Error != "" {
		r.Action, c.Unknown = dohost.ActionFail, false
		c.Output, _ = json.Marshal(c.Error)
	}
	r.Result = c.Output
}

// checkExternal compares an external call of the conversation, which is at rest, with the completion that was applied.
func (a *machine) checkExternal(ctx context.Context, k call) error {
	result, err := get[string](ctx, a, completedKey(k.ID))
	if err != nil {
		return err
	}
	handed, err := get[bool](ctx, a, handedKey(k.ID))
	if err != nil {
		return err
	}
	c, _, err := chat.FindCall(ctx, a, a.w.keyOf(k.ID))
	if err != nil {
		return err
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	l := a.w.calls[k.ID]
	if l.async() {
		a.w.checkAsyncLocked(k, &c, handed, result)
		return nil
	}
	e, ended := l.elsewhere, strings.HasPrefix(k.State, "output-")
	wrong := ""
	switch {
	case result != "" && !ended:
		wrong = "has lost its completion"
	case k.State == "output-available" && k.Output != result && !e.operated:
		wrong = "has a result that was not applied"
	case handed && k.State == "output-error" && result == "" && !e.operated && !l.mayExpire():
		wrong = "was handed over, and nothing has ended it"
	case ended || k.State == "approval-requested" || k.State == "approval-responded" && l.runs == 0:
	case !handed && !a.w.stoppedLocked(k.ID):
		wrong = "was not handed over"
	case l.kind.external.Within > 0:
		wrong = "waits after its time"
	}
	if wrong != "" {
		a.w.Faultf("at rest the call %v %s; the applied completion is %q: %+v, %+v", k, wrong, result, *l, *e)
	}
	return nil
}

// keyOf returns the key of a call, or "" before its first run.
func (w *Observer) keyOf(call string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[call].key
}

// checkAsyncLocked compares an asynchronous call, at rest, with the completion that was applied: its row has that, and its part the
// first result. found is the call by its key.
func (w *Observer) checkAsyncLocked(k call, found *chat.Call, handed bool, result string) {
	l := w.calls[k.ID]
	wrong := ""
	switch {
	case l.runs == 0:
	case found.ID != k.ID:
		wrong = "is not found by its key"
	case result != "" && (!endedState(found.State) || found.Error+string(found.Output) != result):
		wrong = "has lost its completion"
	case result == "" && handed && !l.elsewhere.operated && !l.mayExpire() && found.State != chat.CallExternal:
		wrong = "was handed over, and nothing has ended it"
	case handed && k.State != "output-available":
		wrong = "has no first result"
	case found.State == chat.CallExternal && l.mayExpire():
		wrong = "waits after its time"
	}
	if wrong != "" {
		w.Faultf("at rest the asynchronous call %v %s; the applied completion is %q: %+v, %+v", k, wrong, result, *found, *l)
	}
	if result != "" {
		w.occursLocked("an asynchronous call has the result of its completion")
	}
}

// mayExpire reports whether the time to complete an external call is over.
func (l *callLedger) mayExpire() bool {
	within := l.kind.external.Within
	return within > 0 && l.runs > 0 && !time.Now().Before(l.elsewhere.firstBegun.Add(within))
}

// unprovenLocked returns the reason why an external call may not have a final state, or "".
func (w *Observer) unprovenLocked(l *callLedger, state chat.CallState) string {
	e, use := l.elsewhere, l.use
	disturbed := w.stoppedLocked(l.id) || l.ended > l.made
	runFails := l.runs > 0 && (use.Do == Refuse || use.Do == Recant || use.Do == Reject || use.Do == Lose || use.Do == Break)
	switch {
	case e.operated, state != chat.CallFailed && state != chat.CallUnknown:
	case state == chat.CallFailed && !e.sent(state) && !runFails && !disturbed:
		return "has no reason to fail"
	case state == chat.CallUnknown && !e.sent(state) && !runFails && !disturbed && !l.mayExpire():
		return "has no doubt about its effect"
	}
	return ""
}
