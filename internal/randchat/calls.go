package randchat

import (
	"context"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// call makes the program execute an instruction.
func (w *Observer) call(ctx context.Context, h *dohosttest.Host, in Instr) error {
	agent := w.agent(h)
	switch in.Op {
	case Ask:
		q := w.newRequest(nil, in)
		if _, err := dohost.Call(ctx, agent, (*machine).ask, q.id); err == nil {
			w.acknowledge(q.id)
		}
	case Cancel:
		if q, ok := w.choose(nil, in.K); ok {
			w.stop(q.id, false)
			_, _ = dohost.Call(ctx, agent, (*machine).cancel, q.id)
		}
	case Clear:
		w.mu.Lock()
		d := w.clearLocked()
		w.mu.Unlock()
		if _, err := dohost.CallNoArg(ctx, agent, (*machine).clear); err == nil {
			w.mu.Lock()
			d.done = w.tickLocked()
			w.mu.Unlock()
		}
	case Wait:
		if q, ok := w.choose(nil, in.K); ok {
			// The call may end with its incarnation.
			_, _ = dohost.Call(ctx, agent, (*machine).wait, q.id)
		}
	case Decide:
		w.decide(ctx, h, in)
	case Operate:
		w.operate(ctx, h, in)
	case End:
		w.end(h, in)
	case Complete:
		w.complete(ctx, h, in)
	case Grant:
		w.grant(ctx, h, in)
	case Audit:
		// The call may end with its incarnation.
		_, _ = dohost.CallNoArg(ctx, agent, (*machine).checkAudit)
	}
	return w.Err()
}

// checkAudit checks the audit log.
func (a *machine) checkAudit(ctx context.Context) (struct{}, error) {
	_, err := a.audit(ctx)
	return struct{}{}, err
}

// ask requests a reply to a new message.
func (a *machine) ask(ctx context.Context, id string) (struct{}, error) {
	q, _ := a.w.find(id)
	got, err := chat.Ask(ctx, a, []chat.Message{chat.Text(q.user.ID, chat.RoleUser, q.user.Text)}, &chat.AskOptions{ID: id})
	if err == nil && got != id {
		a.w.Faultf("Ask returns %q, want %q", got, id)
	}
	return struct{}{}, err
}

// wait waits for the end of a request.
func (a *machine) wait(ctx context.Context, id string) (struct{}, error) {
	q, _ := a.w.find(id)
	r, ok, err := chat.Wait(ctx, a, id)
	if err != nil {
		return struct{}{}, err
	}
	now, _ := a.w.find(id)
	a.w.Compared()
	switch {
	case !ok && q.acked > 0 && !q.forgotten():
		a.w.Faultf("Wait does not know %s", id)
	case ok && (r.ID != id || now.ended > 0 && now.outcome != string(r.Status)):
		a.w.Faultf("Wait returns %s as %s, and clients got %s as %s", r.ID, r.Status, id, now.outcome)
	}
	return struct{}{}, nil
}

// cancel cancels a request. The model knows whether it is open if its handler was called, unless it may have completed with
// a call that waits for a client.
func (a *machine) cancel(ctx context.Context, id string) (struct{}, error) {
	was, err := chat.Cancel(ctx, a, id)
	if err != nil {
		return struct{}{}, err
	}
	p, err := get[progress](ctx, a, progressKey(id))
	if err != nil {
		return struct{}{}, err
	}
	q, _ := a.w.find(id)
	a.w.Compared()
	over := p.over()
	switch {
	case was && over:
		a.w.Faultf("Cancel ends %s, which has ended: %+v", id, p)
	case !was && !over && p.Runs > 0 && !q.halted && !q.plan.Model && !a.gaveUp(&q, &p):
		a.w.Faultf("Cancel does not end %s, which is open: %+v", id, p)
	case was:
		p.Stopped = true
	}
	return struct{}{}, dohost.Put(ctx, a.Storage(), progressKey(id), p)
}

// clear clears the conversation.
func (a *machine) clear(ctx context.Context) (struct{}, error) {
	if err := chat.Clear(ctx, a); err != nil {
		return struct{}{}, err
	}
	list, err := chat.Messages(ctx, a, 0)
	if err != nil {
		return struct{}{}, err // the incarnation has ended since
	}
	a.w.Compared()
	if len(list) > 0 {
		a.w.Faultf("after Clear there are %d messages", len(list))
	}
	for _, q := range a.w.all() {
		p, err := get[progress](ctx, a, progressKey(q.id))
		if err != nil {
			return struct{}{}, err
		}
		if p.Runs == 0 || p.Result != "" || p.Responses > 0 {
			continue
		}
		p.Cleared, p.MaybeOver = true, q.plan.Model || a.gaveUp(&q, &p)
		if err := dohost.Put(ctx, a.Storage(), progressKey(q.id), p); err != nil {
			return struct{}{}, err
		}
	}
	return struct{}{}, nil
}
