package chat

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/dohost/dohost/internal/work"
)

// replyPolicy returns the policy of requests.
func (k *conversation) replyPolicy() *work.Policy {
	p := k.options().Recovery.policy()
	p.EndHook, p.EndHookAfterCancel = k.class.response != nil, true
	return p
}

func (r Recovery) policy() *work.Policy {
	return &work.Policy{
		Known: true, Resumable: true,
		MaxRetries: r.MaxAttempts, CountAllAttempts: r.CountAllAttempts, MaxStallTime: r.ProgressTimeout,
	}
}

// step changes a request's row as an event requires, and returns the effect. Nothing is written yet.
func (k *conversation) step(r *replyRow, ev work.Event, now time.Time) (work.Effect, error) {
	next, eff := work.Step(r.Item, ev, k.replyPolicy(), now)
	if eff == work.Refused || eff == work.Impossible {
		return eff, fmt.Errorf("chat: request %q is %v, and the event %v is impossible in that state", r.ID, r.State, ev.Kind)
	}
	if r.Item = next; r.Ended == 0 && !r.Open() {
		r.Ended = now.UnixMilli()
	}
	return eff, nil
}

// nextCall returns a new name for a call of the handler. That name is the owner of the reply's row. If the row with this
// owner is still running after the call, or in another incarnation, the call was interrupted.
func (k *conversation) nextCall() string {
	if k.callPrefix == "" {
		k.callPrefix = ulid.Make().String()
	}
	k.callNumber++
	return k.callPrefix + "/" + strconv.Itoa(k.callNumber)
}

// isFirst reports whether this incarnation has begun the reply, and has not called its handler.
func (k *conversation) isFirst(r *replyRow) bool {
	return r.Attempt == 0 && k.callPrefix != "" && strings.HasPrefix(r.Owner, k.callPrefix+"/") && r.Owner != k.lastCall
}

// ending returns the event that ends an open request with a status.
func (r *replyRow) ending(s Status) work.Event {
	switch s {
	case StatusAborted:
		return work.Event{Kind: work.Cancel}
	case StatusSkipped:
		return work.Event{Kind: work.Cancel, Outcome: work.Skipped}
	}
	return work.Event{Kind: work.Returned, Owner: r.Owner, Run: r.Run, Failed: s == StatusFailed, Final: true}
}

// Reasons for giving up, in the words of @cloudflare/ai-chat.
const (
	reasonWorkBudget  = "work_budget_exceeded"
	reasonNoProgress  = "no_progress_timeout"
	reasonMaxAttempts = "max_attempts_exceeded"
)

// interrupted charges an attempt to a reply whose handler was interrupted, or whose model's answer was truncated, with the
// given number of chunks in its log. It returns the row after that, and "" if call resumes the reply, or the
// reason for giving it up.
func (r *replyRow) interrupted(
	rules Recovery, p *work.Policy, call string, chunks uint64, truncated bool, now time.Time,
) (next replyRow, why string) {
	next = *r
	over := next.countChunks(rules, p, chunks, now)
	late := next.OutOfTime(p, now)
	var eff work.Effect
	next.Item, eff = work.Step(next.Item, work.Event{Kind: work.Due, Owner: call, Failed: truncated, Final: over}, p, now)
	switch {
	case eff == work.Run:
		return next, ""
	case over:
		return next, reasonWorkBudget
	case late:
		return next, reasonNoProgress
	}
	return next, reasonMaxAttempts
}

// countChunks records the number of chunks in the log, which is the reply's progress, and reports whether they are too
// many.
func (r *replyRow) countChunks(rules Recovery, p *work.Policy, chunks uint64, now time.Time) (over bool) {
	if r.Attempt == 0 {
		r.FirstRun = chunks
	}
	if chunks > r.Logged {
		r.Item, _ = work.Step(r.Item, work.Event{Kind: work.Progressed, Owner: r.Owner, Run: r.Run}, p, now)
	}
	r.Logged = chunks
	return rules.MaxChunks >= 0 && chunks-r.FirstRun > uint64(rules.MaxChunks)
}

// attempts returns the number of attempts at the reply, including one that ended before it called the handler.
func (r *replyRow) attempts() int {
	switch {
	case r.Fiber == "":
		return 0
	case r.Outcome == work.Failed: // its end is counted
		return r.Attempt
	}
	return r.Attempt + 1
}
