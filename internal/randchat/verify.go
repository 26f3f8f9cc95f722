package randchat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// checkList checks the stored conversation: it has the texts that clients have received, and none that is not known.
func (w *Observer) checkList(source string, incarnation int, list []message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range list {
		if indexOf(list[:i], m.ID) >= 0 {
			w.Faultf("%s gets message %s twice", source, m.ID)
		}
		if m.Role == "user" {
			w.knownLocked(m, source)
			continue
		}
		w.checkCallsLocked(&m, source, w.rested > 0)
		id, n, ok := parseWords(m.Text)
		q := w.requestLocked(id)
		if !ok || n > 0 && (q == nil || n > len(q.plan.Words)) {
			w.Faultf("%s gets the message %v", source, m)
		} else if n > 0 && incarnation == w.incarnations && q.restarts == 0 && !q.continued && !strings.HasPrefix(m.Text, q.seen) {
			w.Faultf("%s gets %v, and a client has the text %q", source, m, q.seen)
		}
	}
}

// earlier returns the requests that must have ended when the reply to another one begins.
func (w *Observer) earlier(q *request) (list []request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.requests {
		if e.ended > 0 || e.plan.Model || e.halted || e.stopped > 0 || w.policy != chat.PolicyQueue && e.submits {
			continue // or it may have been skipped
		}
		same := e.client != nil && e.client == q.client && e.connection == q.connection && e.resent+q.resent == 0 && e.sent < q.sent
		if e.id != q.id && (same || e.acked > 0 && e.acked < q.sent) {
			list = append(list, *e)
		}
	}
	return list
}

// Check compares the agent, which is at rest, with the model. The clients connect again, until each of their requests
// has ended.
func (w *Observer) Check(ctx context.Context, h *dohosttest.Host) error {
	w.endViewers()
	for range 3 {
		w.mu.Lock()
		clients := slices.Clone(w.clients)
		w.mu.Unlock()
		for _, c := range clients {
			if err := w.connect(ctx, h, c, false); err != nil {
				return err
			}
		}
		if err := h.WaitIdle(0); err != nil {
			return errors.Join(err, w.Err())
		}
	}
	var list []message
	var log *auditLog
	err := w.agent(h).Do(ctx, func(ctx context.Context, a *machine) (err error) {
		list, log, err = a.rest(ctx)
		return err
	})
	if err != nil {
		return err
	}
	calls := map[string]dohost.Resource{}
	for d, err := range h.Host().Details(ctx, w.agent(h).ID()) {
		if err != nil {
			return err
		}
		if d.Kind == "call" {
			calls[d.ID] = d
		}
		if d.Kind == "request" && (d.State == "queued" || d.State == "running") || d.Fault != "" {
			w.Faultf("at rest there is the %s %s: %s, %s", d.Kind, d.ID, d.Text, d.Fault)
		}
	}
	w.checkRows(list, calls, log)
	w.checkPages(list)
	return w.Err()
}

// chunkRow is a row of the log of a reply.
type chunkRow struct{ Reply, Seq uint64 }

var chunkRows = dohost.Collection[chunkRow]{
	Name: "dohost.chat.chunks",
	Key:  func(r chunkRow) string { return fmt.Sprint(r.Reply, r.Seq) },
}

// rest checks the conversation, which is at rest. It returns the conversation and the audit log.
func (a *machine) rest(ctx context.Context) ([]message, *auditLog, error) {
	stored, err := chat.Messages(ctx, a, 0)
	if err != nil {
		return nil, nil, err
	}
	list, err := messagesOf(stored)
	if err != nil {
		return nil, nil, err
	}
	a.w.rests(a.incarnation)
	chunks, err := chunkRows.Count(ctx, a.Storage(), nil)
	if err != nil {
		return nil, nil, err
	}
	if chunks > 0 {
		a.w.Faultf("at rest %d chunks are left", chunks)
	}
	a.w.checkList("at rest the agent", a.incarnation, list)
	a.w.checkPlaces(list)
	if err := a.checkGrants(ctx, stored); err != nil {
		return nil, nil, err
	}
	log, err := a.checkCalls(ctx, list)
	if err != nil {
		return nil, nil, err
	}
	for _, q := range a.w.all() {
		if err := a.checkRequest(ctx, &q, list); err != nil {
			return nil, nil, err
		}
	}
	return list, log, nil
}

// rests records the first incarnation that is at rest.
func (w *Observer) rests(incarnation int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rested == 0 {
		w.rested = incarnation
	}
}

// all returns copies of the requests.
func (w *Observer) all() (list []request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.requests {
		list = append(list, *q)
	}
	return list
}

// checkRequest checks the end of a request at rest.
func (a *machine) checkRequest(ctx context.Context, q *request, list []message) error {
	p, err := get[progress](ctx, a, progressKey(q.id))
	if err != nil {
		return err
	}
	if q.client != nil && q.ended == 0 && q.dropped == 0 && !q.forgotten() {
		a.w.Faultf("at rest %s has not ended", q.id)
	}
	unanswered := q.acked > 0 && p.Runs == 0 && p.Responses == 0 && !q.continues && q.stopped == 0 && q.outcome != skipped && !a.w.maySkip(q)
	if unanswered || p.Runs > 0 && p.Responses != 1 && !(p.Responses == 0 && a.gaveUpHook(q)) {
		a.w.Faultf("at rest %s (ended as %q) has %+v", q.id, q.outcome, p)
	}
	if p.stopped() && q.ended > 0 && q.outcome != aborted {
		a.w.Faultf("at rest %s has ended as %s, and was stopped", q.id, q.outcome)
	}
	if q.continues {
		return nil
	}
	a.w.checkUser(q, list)
	if p.Runs == 0 || a.w.gone(p.Message, q.sent) {
		return nil
	}
	said, err := get[int](ctx, a, saidKey(p.Message))
	if err != nil {
		return err
	}
	if p.Result == completed && !q.plan.Model && said != len(q.plan.Words) {
		a.w.Faultf("at rest the model has %d words of the reply to %s, which has completed", said, q.id)
	}
	text := ""
	i := indexOf(list, p.Message)
	if i >= 0 {
		text = list[i].Text
	}
	if q.plan.Model {
		_, said, _ = parseWords(text)
		if i >= 0 && p.Result == completed && !q.continued && !list[i].waits() && said != len(q.plan.Words) && !a.w.mayWait(list, i) {
			a.w.Faultf("at rest the reply to %s has completed with %v", q.id, list[i])
		}
	}
	if text != wordsOf(q.id, said) || !strings.HasPrefix(text, q.seen) && q.restarts == 0 && !q.continued {
		a.w.Faultf("at rest the reply to %s is %q, want %d words; a client has %q", q.id, text, said, q.seen)
	}
	if i < 0 || a.w.gone(q.user.ID, 0) || a.w.policy == chat.PolicyMerge {
		return nil
	}
	for i > 0 && list[i].Role == "assistant" {
		i--
	}
	if list[i].ID != q.user.ID {
		a.w.Faultf("at rest the reply to %s is after %v", q.id, list[i])
	}
	return nil
}

// maySkip reports whether the policy allows a request to be skipped.
func (w *Observer) maySkip(q *request) bool {
	p := w.policy
	return q.submits && p != chat.PolicyQueue && p != chat.PolicyDrop
}

// checkUser checks that the message of a request that is stored is in the conversation, unless it may have been deleted.
func (w *Observer) checkUser(q *request, list []message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	replaced := func(e *request) bool { return e.user.ID == q.user.ID && e.user.Text != q.user.Text }
	if q.acked == 0 || w.goneLocked(q.user.ID, q.sent) || slices.ContainsFunc(w.requests, replaced) {
		return
	}
	for _, m := range list {
		if m.Role != "user" {
			continue
		}
		if slices.Contains(strings.Split(m.Text, "\n\n"), q.user.Text) {
			return
		}
	}
	w.Faultf("at rest there is no message %v", q.user)
}

func wordsOf(request string, n int) (text string) {
	for i := range n {
		text += word(request, i)
	}
	return text
}

// checkPlaces checks that a message is stored after those that were stored before it was sent.
func (w *Observer) checkPlaces(list []message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == chat.PolicyMerge {
		return // messages are joined at the place of the last
	}
	for _, q := range w.requests {
		for _, e := range w.requests {
			at, before := indexOf(list, q.user.ID), indexOf(list, e.user.ID)
			if e.user.ID == q.user.ID || e.continues || q.continues || w.goneLocked(e.user.ID, 0) || w.goneLocked(q.user.ID, 0) {
				continue
			}
			if e.acked > 0 && e.acked < q.sent && at >= 0 && at < before {
				w.Faultf("at rest %v is before %v", q.user, e.user)
			}
		}
	}
}

// checkPages compares the pages of clients that are connected with the conversation, which is at rest.
func (w *Observer) checkPages(list []message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		for _, id := range c.sends {
			if q := w.requestLocked(id); c.ws != nil && q.ended == 0 && q.dropped == 0 {
				w.Faultf("at rest %s has sent %s, and has not got its end", c.name, id)
			}
		}
		lost := func(q *request) bool { return q.client == c && !c.known[q.id] } // too long ago to be sent again
		if c.ws == nil || c.stale || slices.ContainsFunc(w.requests, lost) {
			continue
		}
		w.Compared()
		moved := len(w.deletions) > 0 || w.policy == chat.PolicyMerge // a reply may have lost its question
		if !sameList(c.list, list) && !(moved && sameList(sorted(c.list), sorted(list))) {
			w.Faultf("at rest %s has\n%v, and the conversation is\n%v", c.name, c.list, list)
		}
	}
}

// mayWait reports whether message i may have no continuation, although no call of it waits: clients may answer without one, and
// the completion of an external call continues only the last message.
func (w *Observer) mayWait(list []message, i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(list[i].Calls, func(k call) bool {
		kind := kindOf(k.ID)
		return kind.client || kind.approve || kind.external != nil && (i < len(list)-1 || len(w.deletions) > 0 || w.stoppedLocked(k.ID))
	})
}

func sorted(list []message) []message {
	return slices.SortedFunc(slices.Values(list), func(a, b message) int { return strings.Compare(a.ID, b.ID) })
}
