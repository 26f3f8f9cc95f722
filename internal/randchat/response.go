package randchat

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
)

// onResponse compares the end of a request with the model.
func (a *machine) onResponse(ctx context.Context, r chat.Response) error {
	m, err := messageOf(r.Message)
	if err != nil {
		return err
	}
	q, ok := a.w.begun(r.ID, a.w.originOf(&m, ""))
	if !ok {
		a.w.Faultf("OnResponse gets %s, which was not sent", r.ID)
		return nil
	}
	name := "response of " + r.ID
	a.w.hookCalled(r.ID, a.incarnation)
	switch q.number % 4 {
	case 0:
		if err := dohost.Await(ctx, func(context.Context) error { return nil }); err != nil {
			return err
		}
	case 1:
		if a.w.try(name) == 1 && !a.w.noEnds {
			panic("as the hook says")
		}
	}
	p, err := get[progress](ctx, a, progressKey(r.ID))
	if err != nil {
		return err
	}
	p.Responses++
	a.checkResponse(&q, &p, &r)
	if err := dohost.Put(ctx, a.Storage(), progressKey(r.ID), p); err != nil {
		return err
	}
	if q.number%4 == 2 {
		return errFail
	}
	return nil
}

// hookCalled records that OnResponse is called.
func (w *Observer) hookCalled(id string, incarnation int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.requestLocked(id); q.hooked == 0 {
		q.hooked = incarnation
	}
}

// gaveUpHook reports whether the agent may have given up OnResponse for a request: six calls were interrupted. The end of
// an incarnation may interrupt a call before the hook runs, after it was counted.
func (a *machine) gaveUpHook(q *request) bool {
	const uncounted = 2
	return q.hooked > 0 && a.incarnation-q.hooked >= hookCalls-1-uncounted
}

func (a *machine) checkResponse(q *request, p *progress, r *chat.Response) {
	a.w.Compared()
	gaveUp := string(r.Status) == failed && p.Result == "" && r.Error == gaveUpText && a.gaveUp(q, p)
	waits := q.plan.Model && string(r.Status) == completed && p.Result == "" // for a client, after an interruption
	stopped := string(r.Status) == aborted && p.Result == "" && q.stopped > 0
	if string(r.Status) != p.Result && !gaveUp && !stopped && !waits || p.stopped() && !stopped {
		a.w.Faultf("OnResponse gets %s as %s (%s), and the handler has ended it as %q", r.ID, r.Status, r.Error, p.Result)
	}
	if p.Responses > 1 {
		a.w.Faultf("OnResponse gets %s again", r.ID)
	}
	if q.ended > 0 && q.outcome != string(r.Status) {
		a.w.Faultf("OnResponse gets %s as %s, and clients as %s", r.ID, r.Status, q.outcome)
	}
	if id, n, ok := parseWords(r.Message.PlainText()); r.Message.ID != "" && (!ok || n > 0 && id != q.id && !q.continues || p.Result == completed && !q.plan.Model && n != len(q.plan.Words)) {
		a.w.Faultf("OnResponse gets %s with %q", r.ID, r.Message.PlainText())
	}
}
