package randchat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
)

// machine is a chat agent that executes the plans of requests.
type machine struct {
	*chat.Agent[struct{}]
	w           *Observer
	incarnation int
	lastEnd     int // when a handler has ended its reply last; 0 before
}

// policies are the policies of the classes.
var policies = []chat.Policy{chat.PolicyQueue, chat.PolicyLatest, chat.PolicyMerge, chat.PolicyDrop, chat.PolicyDebounce}

// machinesOf returns the namespace of the agents with a policy.
func machinesOf(p chat.Policy) dohost.Namespace[machine] {
	return dohost.Namespace[machine]("random-chat-" + string(p))
}

// agent returns the agent of a run.
func (w *Observer) agent(h *dohosttest.Host) dohost.Stub[machine] {
	return machinesOf(w.policy).Get(h, "a")
}

// The ends of requests.
const (
	completed = string(chat.StatusCompleted)
	failed    = string(chat.StatusFailed)
	aborted   = string(chat.StatusAborted)
	skipped   = string(chat.StatusSkipped)
)

const (
	maxAttempts = 5 // in a row without a new chunk
	hookCalls   = 6 // that may be interrupted
	debounce    = 2 * time.Second
	gaveUpText  = "no further attempts"
	// known is how long a request is known after its end, with a reserve.
	known = 9 * time.Minute
)

// Classes returns the classes of the agents that execute the plans of requests, one for each policy.
func Classes(w *Observer) (all []dohost.Class) {
	for _, p := range policies {
		all = append(all, class(w, p))
	}
	return all
}

func class(w *Observer, p chat.Policy) dohost.Class {
	handlers := agent.Handlers[machine, struct{}]{}
	if w.guarded {
		handlers.Authorize = refuseAll
	}
	return chat.Bind(machinesOf(p), func(_ context.Context, base *chat.Agent[struct{}]) (*machine, error) {
		return &machine{Agent: base, w: w, incarnation: w.wake()}, nil
	}, &chat.Handlers[machine, struct{}]{
		Agent:      handlers,
		Reply:      (*machine).reply,
		OnResponse: (*machine).onResponse,
		OnRecovery: (*machine).onRecovery,
		Options: chat.Options{
			Policy: p, Debounce: debounce, Budget: w.budget.options(), Price: func(chat.Usage) int64 { return 1 },
			Recovery: chat.Recovery{MaxAttempts: maxAttempts, ProgressTimeout: -1, FailureMessage: gaveUpText},
		},
	})
}

// progress is the progress of a request in the model. It is a value in the agent's storage, which is written in the
// batch of the changes that it records.
type progress struct {
	Runs      int    // of the handler
	Since     int    // the incarnation of its last new word
	Result    string // how the handler has ended it
	Responses int    // calls of OnResponse
	Stopped   bool   // by Cancel
	Cleared   bool   // by Clear
	MaybeOver bool   // when it was cleared: it had completed with a call that waits for a client, or was given up
	Message   string // the id of its message
	Saved     int    // the checkpoint; 0 if there is none
	Saving    int    // one that may be saved
}

// over reports whether a request has ended.
func (p *progress) over() bool { return p.Result != "" || p.Responses > 0 || p.Stopped || p.Cleared }

// stopped reports whether a request was certainly stopped.
func (p *progress) stopped() bool { return p.Stopped || p.Cleared && !p.MaybeOver }

// saidKey is the key of the number of words in a message.
func saidKey(message string) string { return "said/" + message }

func progressKey(request string) string { return "request/" + request }

func get[T any](ctx context.Context, a *machine, key string) (v T, err error) {
	v, _, err = dohost.Get[T](ctx, a.Storage(), key)
	return v, err
}

var errFail = errors.New("the plan fails")

// publicFailure returns the error of a plan that fails.
func publicFailure(request string) error {
	return errors.Join(errFail, &dohost.PublicError{Message: "failure of " + request})
}

// reply executes the plan of a request.
func (a *machine) reply(ctx context.Context, r *chat.Reply) (err error) {
	partial, err := messageOf(r.Partial())
	if err != nil {
		return err
	}
	origin := a.w.originOf(&partial, r.ID)
	a.w.repliesTo(partial.ID, origin)
	q, ok := a.w.begun(r.ID, origin)
	if !ok {
		a.w.Faultf("the handler is called for %s, which was not sent", r.ID)
		return nil
	}
	p, err := get[progress](ctx, a, progressKey(r.ID))
	if err != nil {
		return err
	}
	if err := a.checkBegin(ctx, r, &q, &p); err != nil {
		return err
	}
	p.Runs++
	p.Message = r.Partial().ID
	a.w.mayEnd(r.ID)
	if err := dohost.Put(ctx, a.Storage(), progressKey(r.ID), p); err != nil {
		return err
	}
	run := &run{a, r, a.w.begin(r.ID, a.incarnation)}
	execute := run.plan
	if q.plan.Model {
		execute = func(ctx context.Context, p Plan) error { return run.answer(ctx, origin, p) }
	}
	if err := execute(ctx, q.plan); err != nil && !errors.Is(err, errFail) || ctx.Err() != nil {
		return a.unexpected(ctx, r.ID, err)
	} else if err != nil {
		return errors.Join(err, a.setResult(ctx, r.ID, failed))
	}
	return a.setResult(ctx, r.ID, completed)
}

// setResult records how the handler ends a request, in the batch of that end.
func (a *machine) setResult(ctx context.Context, id, result string) error {
	p, err := get[progress](ctx, a, progressKey(id))
	if err != nil {
		return err
	}
	p.Result, a.lastEnd = result, a.w.tick()
	a.w.mayEnd(id)
	return dohost.Put(ctx, a.Storage(), progressKey(id), p)
}

// unexpected reports an error that is not due to the end of the incarnation or of the reply.
func (a *machine) unexpected(ctx context.Context, id string, err error) error {
	if err != nil && ctx.Err() == nil && !errors.Is(err, dohost.ErrFenced) && !errors.Is(err, dohost.ErrClosed) {
		a.w.Faultf("the handler for %s: %v", id, err)
	}
	return err
}

// run is a call of the handler.
type run struct {
	*machine
	r *chat.Reply
	*activity
}

// plan executes a plan from the words on that the message has.
func (x *run) plan(ctx context.Context, p Plan) error {
	partial := x.r.Partial()
	said, err := get[int](ctx, x.machine, saidKey(partial.ID))
	if err != nil {
		return err
	}
	for i := said; i < len(p.Words); i++ {
		if err := x.act(ctx, p.Words[i], i); err != nil {
			return err
		}
		if err := x.r.Say(ctx, word(x.r.ID, i)); err != nil {
			return err
		}
		x.w.said(x.activity)
		if err := x.record(ctx, partial.ID, i+1); err != nil {
			return err
		}
	}
	return nil
}

// record records a new word, in its batch.
func (x *run) record(ctx context.Context, message string, said int) error {
	p, err := get[progress](ctx, x.machine, progressKey(x.r.ID))
	if err != nil {
		return err
	}
	if p.Stopped || p.Cleared {
		x.w.Faultf("the handler adds a word to the reply to %s, which was stopped", x.r.ID)
	}
	p.Since = x.machine.incarnation
	if err := dohost.Put(ctx, x.Storage(), progressKey(x.r.ID), p); err != nil {
		return err
	}
	return dohost.Put(ctx, x.Storage(), saidKey(message), said)
}

func (x *run) act(ctx context.Context, w Word, i int) error {
	switch w.Before {
	case Sleep:
		return dohost.Sleep(ctx, time.Duration(w.N)*time.Millisecond)
	case Sync:
		return x.Storage().Sync(ctx)
	case Save:
		return x.save(ctx, i+1)
	case Fail:
		return publicFailure(x.r.ID)
	case Panic:
		if x.w.try(tryName(x.r.ID, i)) <= w.N && !x.w.noEnds {
			panic("as the plan says")
		}
	}
	return nil
}

// save saves a checkpoint.
func (x *run) save(ctx context.Context, n int) error {
	change := func(set func(*progress)) error {
		p, err := get[progress](ctx, x.machine, progressKey(x.r.ID))
		if err != nil {
			return err
		}
		set(&p)
		return dohost.Put(ctx, x.Storage(), progressKey(x.r.ID), p)
	}
	if err := change(func(p *progress) { p.Saving = n }); err != nil {
		return err
	}
	if err := x.r.SaveCheckpoint(ctx, n); err != nil {
		return err
	}
	return change(func(p *progress) { p.Saved = n })
}

func tryName(request string, i int) string { return fmt.Sprintf("%s/%d", request, i) }

// checkBegin compares the conversation with the model when the handler is called.
func (a *machine) checkBegin(ctx context.Context, r *chat.Reply, q *request, p *progress) error {
	partial := r.Partial()
	said, err := get[int](ctx, a, saidKey(partial.ID))
	if err != nil {
		return err
	}
	id, n, ok := parseWords(partial.PlainText())
	if q.plan.Model {
		said = n
	}
	if !ok || n != said || n > 0 && id != r.ID && !q.continues {
		a.w.Faultf("the handler for %s continues %q, want %d words", r.ID, partial.PlainText(), said)
	}
	if p.Runs == 0 != (r.Attempt == 0) && p.Runs > r.Attempt {
		a.w.Faultf("the handler for %s is called with attempt %d after %d runs", r.ID, r.Attempt, p.Runs)
	}
	var saved int
	if _, err := r.Checkpoint(&saved); err != nil || saved != p.Saved && saved != p.Saving {
		a.w.Faultf("the handler for %s has the checkpoint %d, %v; want %d or %d", r.ID, saved, err, p.Saved, p.Saving)
	}
	if p.over() {
		a.w.Faultf("the handler is called for %s, which has ended: %+v", r.ID, *p)
	}
	if wait := time.Since(q.sentAt); a.w.policy == chat.PolicyDebounce && q.submits && wait <= debounce-time.Millisecond {
		a.w.Faultf("the handler is called for %s %v after it was sent", r.ID, wait)
	}
	if e, ok := a.w.replacing(q, a.lastEnd); ok && p.Runs == 0 {
		a.w.Faultf("the handler is called for %s, which %s replaces", r.ID, e.id)
	}
	list, err := r.Messages(ctx, 0)
	if err != nil {
		return err
	}
	before, err := messagesOf(list)
	if err != nil {
		return err
	}
	a.w.checkList(fmt.Sprintf("the handler for %s", r.ID), a.incarnation, before)
	if q.alone && a.w.isLast(q.id) && p.Runs == 0 && !sameList(before, q.list) {
		a.w.Faultf("the handler for %s gets %v, want %v", r.ID, before, q.list)
	}
	a.w.Compared()
	return a.checkOrder(ctx, q, p)
}

// checkOrder checks that the earlier requests of a client have ended when the handler is first called for one.
func (a *machine) checkOrder(ctx context.Context, q *request, p *progress) error {
	if p.Runs > 0 || q.continues {
		return nil
	}
	for _, e := range a.w.earlier(q) {
		of, err := get[progress](ctx, a, progressKey(e.id))
		if err != nil {
			return err
		}
		if !of.over() && !a.gaveUp(&e, &of) {
			a.w.Faultf("the handler is called for %s before %s has ended", q.id, e.id)
		}
	}
	return nil
}

// gaveUp reports whether the agent may have given a reply up: after more than maxAttempts attempts without a new word.
func (a *machine) gaveUp(q *request, p *progress) bool {
	strikes := a.incarnation - p.Since
	for i := range q.plan.Words {
		strikes += a.w.triesOf(tryName(q.id, i))
	}
	return strikes > maxAttempts
}

// messagesOf returns messages as the programs know them.
func messagesOf(list []chat.Message) (all []message, err error) {
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(data, &all)
}
