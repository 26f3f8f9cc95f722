package randchat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// origin returns the request that a message was the first reply to, or fallback if the message is empty.
func (m *message) origin(fallback string) string {
	if i := slices.IndexFunc(m.Calls, func(k call) bool { return !isBudgetCall(k.ID) }); i >= 0 {
		id, _, _ := strings.Cut(m.Calls[i].ID, "-")
		return id
	}
	if id, n, _ := parseWords(m.Text); n > 0 {
		return id
	}
	return fallback
}

// model yields the words and the calls of a plan from those on that the message has.
type model struct {
	w       *Observer
	request string
	plan    Plan
}

// Stream implements [chat.Model].
func (m *model) Stream(ctx context.Context, p *chat.Prompt) iter.Seq2[chat.Chunk, error] {
	return func(yield func(chat.Chunk, error) bool) {
		partial, err := messageOf(p.Partial)
		if err != nil {
			yield(chat.Chunk{}, err)
			return
		}
		m.w.checkResults(&partial)
		m.w.modelBegins(p)
		_, n, _ := parseWords(partial.Text)
		for i := n; i < len(m.plan.Words); i++ {
			w := m.plan.Words[i]
			switch {
			case w.Before == Fail:
				yield(chat.Chunk{}, publicFailure(m.request))
				return
			case w.Before == Sleep:
				select {
				case <-time.After(time.Duration(w.N) * time.Millisecond):
				case <-ctx.Done():
					return
				}
			case w.Before == Call:
				if made, ok := m.call(&partial, i, w, yield); made || !ok {
					return
				}
			}
			if !yield(chat.TextDelta(fmt.Sprint("text ", len(partial.Calls)), word(m.request, i)), nil) {
				return
			}
		}
	}
}

// call makes the calls before word i that the message does not have.
func (m *model) call(partial *message, i int, w Word, yield func(chat.Chunk, error) bool) (made, ok bool) {
	for j, u := range w.Calls {
		id := callID(m.request, i, j, u)
		if slices.ContainsFunc(partial.Calls, func(c call) bool { return c.ID == id }) {
			continue
		}
		m.w.madeCall(id)
		if made = true; !yield(chat.ToolInput(id, u.Tool, u.input()), nil) {
			return true, false
		}
	}
	return made, true
}

// checkResults checks that a model which is asked gets the results of all calls.
func (w *Observer) checkResults(partial *message) {
	w.Compared()
	for _, k := range partial.Calls {
		if !strings.HasPrefix(k.State, "output-") {
			w.Faultf("the model is asked, and the call %v has no result", k)
		}
	}
}

func messageOf(m chat.Message) (message, error) {
	list, err := messagesOf([]chat.Message{m})
	if err != nil {
		return message{}, err
	}
	return list[0], nil
}

// answer answers with the model of a plan.
func (x *run) answer(ctx context.Context, origin string, p Plan) error {
	var tools []chat.Tool
	for i := range kinds {
		tools = append(tools, x.toolOf(&kinds[i]))
	}
	completed := x.w.answers(x.r.Partial().ID)
	err := chat.Answer(ctx, x.r, &model{x.w, origin, p}, &chat.AnswerOptions{Tools: tools})
	if err == nil {
		completed()
		x.checkSuspended()
	}
	return err
}

func (x *run) toolOf(k *kind) chat.Tool {
	t := chat.Tool{ToolSpec: chat.ToolSpec{Name: k.name}, Policy: k.policy, Timeout: k.timeout, External: k.external}
	if !k.client {
		t.Run = x.tool
	}
	if k.policy == ledger.PolicyReconcile {
		t.Find = x.find
	}
	if k.approve {
		t.Approve = &chat.Approval{Within: k.within}
	}
	if k.selects {
		t.Approve.If = func(_ context.Context, input json.RawMessage) (bool, error) {
			var u Use
			err := json.Unmarshal(input, &u)
			return u.Asks, err
		}
	}
	return t
}

// find asks the service about an interrupted call.
func (x *run) find(ctx context.Context, _ json.RawMessage) (out any, answer ledger.Answer, err error) {
	c, ok := chat.CallFrom(ctx)
	if !ok {
		x.w.Faultf("Find has no call")
	}
	failed := dohost.Await(ctx, func(ctx context.Context) error {
		out, answer, err = x.w.answerFind(&c, x.machine.incarnation)
		return dohosttest.EffectPoint(ctx)
	})
	if failed != nil {
		return nil, ledger.AnswerUnknown, failed
	}
	if err == nil && answer == ledger.AnswerDone {
		err = x.countRun(ctx, c.ID)
	}
	return out, answer, err
}

func toolKey(call string) string { return "tool/" + call }

var errTool = errors.New("the tool fails")

// tool runs a call, which is counted in the agent's storage in the batch of its result.
func (x *run) tool(ctx context.Context, _ json.RawMessage) (any, error) {
	c, ok := chat.CallFrom(ctx)
	if !ok {
		x.w.Faultf("a tool has no call")
	}
	x.w.Compared()
	u, n := x.w.runBegins(&c, x.machine.incarnation)
	if n == 0 {
		return nil, errTool
	}
	defer x.w.runs(c.ID)()
	if err := x.checkApproval(ctx, &c, u); err != nil {
		return nil, err
	}
	partial, err := messageOf(x.r.Partial())
	if err != nil {
		return nil, err
	}
	if err := x.wait(ctx, u, false, &partial); err != nil {
		return nil, err
	}
	switch {
	case u.Do == Refuse, u.Do == Recant && n > 1:
		return nil, ledger.NoEffect(errTool)
	case u.Do == Reject:
		return nil, errTool
	}
	out, err := x.perform(ctx, u, &c, n)
	if err != nil {
		return nil, err
	}
	if err := x.wait(ctx, u, true, &partial); err != nil {
		return nil, err
	}
	switch {
	case u.Do == Lose:
		return nil, errTool
	case u.Do == Break && n == 1 && !x.w.noEnds:
		panic("as the tool does")
	case ctx.Err() != nil:
		return out, nil // too late
	case kindOf(c.ID).external != nil:
		return nil, x.handOver(ctx, c.ID)
	}
	return out, x.countRun(ctx, c.ID)
}

// perform makes the request of a run to the service.
func (x *run) perform(ctx context.Context, u Use, c *chat.Call, n int) (out string, err error) {
	switch u.Do {
	case InTurn:
		return x.w.effect(c, n)
	case Deaf:
		ctx = context.WithoutCancel(ctx)
	}
	err = dohost.Await(ctx, func(ctx context.Context) error {
		var refused error
		out, refused = x.w.effect(c, n)
		return errors.Join(refused, dohosttest.EffectPoint(ctx))
	})
	return out, err
}

// countRun counts a result of a call in the agent's storage.
func (x *run) countRun(ctx context.Context, call string) error {
	n, err := get[int](ctx, x.machine, toolKey(call))
	if err != nil {
		return err
	}
	return dohost.Put(ctx, x.Storage(), toolKey(call), n+1)
}

// wait waits as a call does before or after its effect. Afterwards the other calls of the step have begun, since they run
// concurrently, and the context has ended if the time of the run has.
func (x *run) wait(ctx context.Context, u Use, late bool, partial *message) error {
	if u.Late != late || u.Wait == 0 {
		return nil
	}
	if err := dohost.Sleep(ctx, time.Duration(u.Wait)*time.Millisecond); err != nil && u.Do != Deaf {
		return err
	}
	if u.overdue() && ctx.Err() == nil {
		x.w.Faultf("a run of %+v takes longer than its tool may", u)
	}
	if ctx.Err() == nil && u.Wait >= 1000 {
		x.w.checkConcurrent(partial)
	}
	return nil
}

// checkConcurrent checks that the calls of a message that need no client have begun.
func (w *Observer) checkConcurrent(m *message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	others := 0
	for _, k := range m.Calls {
		l := w.calls[k.ID]
		if k.State != "input-available" || l == nil || l.kind.client || l.use.asks() {
			continue
		}
		if others++; l.runs+l.finds == 0 {
			w.Faultf("the call %v has not begun after another call has run for a second", k)
		}
	}
	if others > 1 {
		w.occursLocked("calls run concurrently")
	}
}

// runs records that a call runs until the returned function is called.
func (w *Observer) runs(call string) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[call]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.running[call]--; w.running[call] == 0 {
			delete(w.running, call)
		}
	}
}

// waits reports whether a message has a call without a result.
func (m *message) waits() bool {
	return slices.ContainsFunc(m.Calls, func(k call) bool { return !strings.HasPrefix(k.State, "output-") })
}

// continuationLocked returns the request of a continuation, which the agent makes when a call has its answer.
func (w *Observer) continuationLocked(id string) *request {
	q := w.requestLocked(id)
	if q == nil && strings.HasPrefix(id, "cont_") && w.answered {
		now := w.tickLocked()
		// It may have ended long ago.
		q = &request{id: id, continues: true, plan: Plan{Model: true}, sent: now, acked: now, over: time.Unix(0, 0)}
		if slices.ContainsFunc(w.deletions, func(d *deletion) bool { return d.clears }) {
			q.stopped, q.halted = now, true
		}
		q.number = len(w.requests)
		w.requests = append(w.requests, q)
	}
	return q
}

// begun records the request that a handler is called for, and returns a copy of it with the plan of its message.
func (w *Observer) begun(id, origin string) (q request, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.continuationLocked(id)
	if known == nil {
		return q, false
	}
	if first := w.requestLocked(origin); known.continues && first != nil {
		known.plan, known.origin = first.plan, origin
		first.continued = true
	}
	return *known, true
}
