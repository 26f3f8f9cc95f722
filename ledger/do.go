package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/work"
)

// Do performs an operation of a kind, or returns the stored result of an equal one: an operation of the same position
// ([dohost.WorkPosition]) and scope ([Scope]) whose arguments are the same ([Kind].Same). call performs the outside effect, such as a request. It runs without the
// object's turn, as the function of a [dohost.Await], and gets the ID of the operation, which is the same in each attempt. Do
// has written the result when it returns, in the batch of the writes that follow; the object's outputs wait until that batch
// is durable.
//
// ctx must hold the turn of the object of st, and Do gives up the turn. If an equal Do is in progress in the same
// incarnation, Do waits until that Do returns. Then it reads the stored outcome: it returns the result if there is one, and
// otherwise acts as a new Do. So call must not wait for a Do of the same operation, and a Do in an [dohost.Exclusive] section
// must not wait for one outside of it, which cannot return before the section ends.
//
// Errors:
//   - an [UnknownError], if the outcome is unknown and the kind's [Policy] does not allow a repetition; if ctx ends before the repetition
//     or before Find; if the object deletes its storage during the call; or if the result cannot be
//     stored: for a result of more than 8 MiB, the Err of the Do that made the call has a [*dohost.LimitError]
//   - the error of call, if it proves that the operation had no effect; the next Do calls again
//   - with PolicyReconcile, an error after MaxAttempts calls that had no effect; the next Do calls again
//   - [dohost.ErrMisuse] for an incomplete Kind, a nil State or a nil call
//   - [ErrNoCanonicalForm]
//   - an error for a stored result that cannot be decoded
//   - the context's cause, if it has ended before the call, or while Do waits for an equal Do
//   - the errors of [dohost.Await] and of [dohost.Collection]
//
// If the store has no space for the outcome of a call, Do tries to write it once a second, until there is space or ctx ends. Before
// another call of the operation it waits 100 ms, doubled for each further one, up to 10 s.
func Do[A, R any](
	ctx context.Context, st *dohost.State, k *Kind[A, R], args A, call func(ctx context.Context, id ID) (R, error),
) (result R, err error) {
	if _, err := k.describe(); err != nil {
		return result, fmt.Errorf("%w: %w", err, dohost.ErrMisuse)
	}
	if st == nil || call == nil {
		return result, fmt.Errorf("ledger: Do of kind %q without a State or a function: %w", k.Name, dohost.ErrMisuse)
	}
	text, form, err := canonical(k.Same(args))
	if err != nil {
		return result, fmt.Errorf("%w: operation of kind %q: %w", ErrNoCanonicalForm, k.Name, err)
	}
	o := k.task(st, args, call)
	data, err := o.do(ctx, form, text)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(data, &result); err != nil {
		var none R
		return none, fmt.Errorf("ledger: the stored result of the operation %s of kind %q cannot be decoded: %w", o.id, o.kind, err)
	}
	o.passed(ctx)
	return result, nil
}

// DoNoResult is [Do] of an operation that returns only an error.
func DoNoResult[A any](
	ctx context.Context, st *dohost.State, k *Kind[A, struct{}], args A, call func(ctx context.Context, id ID) error,
) error {
	var withResult func(ctx context.Context, id ID) (struct{}, error)
	if call != nil {
		withResult = func(ctx context.Context, id ID) (struct{}, error) { return struct{}{}, call(ctx, id) }
	}
	_, err := Do(ctx, st, k, args, withResult)
	return err
}

// task is a Do, without its type parameters.
type task struct {
	st          *dohost.State
	kind        string
	policy      *work.Policy
	declared    Policy // of the kind
	maxAttempts int
	call        func(context.Context, ID) (json.RawMessage, error)
	find        func(context.Context, ID) (json.RawMessage, Answer, error)
	unknown     func(ID) string
	noEffect    func(error) bool

	id ID
	// place is the place of the operation, or nil without a position. equal is the ID that the operation would have then: that of
	// all equal operations.
	place *place
	equal ID
	// row is the row of the operation, and version the version that is stored; zero if none is. While the Do is in progress, no
	// other Do writes the row, so another version means that the object has deleted its storage.
	row     row
	version uint64
	// result is the result that is to be stored with the row. Nil means none.
	result json.RawMessage
	// counts are added to those of the kind when the row is written.
	counts counted
}

func (o *task) do(ctx context.Context, form, text []byte) (json.RawMessage, error) {
	epoch := o.st.Epoch().String()
	scope := ScopeOf(ctx)
	if err := o.identify(ctx, scope, form); err != nil {
		return nil, err
	}
	for {
		p, ok := progressOf(epoch, o.id)
		if !ok {
			break
		}
		if _, _, err := dohost.Recv(ctx, p.done); err != nil {
			return nil, err
		}
	}
	old, ok, err := operations.Get(ctx, o.st.Storage(), string(o.id))
	if err != nil {
		return nil, err
	}
	if o.row, o.version = old.Value, old.Version; o.row.Expires > 0 && o.row.Expires <= time.Now().UnixMilli() {
		ok, o.version = false, 0
		if err := deleteRow(ctx, o.st, &o.row); err != nil {
			return nil, err
		}
	}
	if ok && o.row.Outcome == work.Completed {
		return resultOf(ctx, o.st, &o.row)
	}
	defer begin(epoch, o.id)()
	switch {
	case !ok:
		if err := o.deleteExpired(ctx); err != nil {
			return nil, err
		}
		o.row = row{
			ID: o.id, Kind: o.kind, Position: clip(o.place.String(), maxArgs), Scope: clip(scopeText(scope), maxArgs), Args: clip(string(text), maxArgs),
			Started: time.Now().UnixMilli(),
		}
		return o.run(ctx, work.Event{Kind: work.Due})
	case o.row.State == work.Ended:
		o.row.Begun, o.row.Doubt = 0, false
		return o.run(ctx, work.Event{Kind: work.Restart})
	case o.row.State == work.Dead && o.find == nil:
		return nil, o.unknownError(o.storedError())
	case o.row.State == work.Dead:
		return o.ask(ctx, work.Event{Kind: work.Retry}, nil)
	}
	if !o.row.Reported && epochOf(o.row.Owner) != epoch { // the class does not declare its kinds
		o.row.reportInterrupted(ctx, o.st)
	}
	return o.interrupted(ctx, work.Event{Kind: work.Due}, nil)
}

// run applies an event that begins a call to the row, makes the call, and writes its outcome.
func (o *task) run(ctx context.Context, ev work.Event) (json.RawMessage, error) {
	before, isNew := o.row, o.version == 0
	if err := o.start(ev); err != nil {
		return nil, err
	}
	if err := o.put(ctx); err != nil {
		return nil, err
	}
	var result json.RawMessage
	var failed error
	called := false
	err := dohost.Await(ctx, func(ctx context.Context) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		called = true
		result, failed = o.call(ctx, o.id)
		return nil
	})
	switch {
	case err != nil && !called: // the Await was refused, or the context has ended
		return nil, errors.Join(err, o.restore(ctx, before, isNew))
	case err != nil:
		return nil, err
	case failed == nil:
		o.result = result
		return result, o.step(ctx, o.returned(work.Event{}))
	case !o.row.Doubt && o.noEffect(failed):
		o.row.Error = clip(failed.Error(), maxError)
		if err := o.step(ctx, o.returned(work.Event{Failed: true, Final: true})); err != nil {
			return nil, errors.Join(failed, err)
		}
		return nil, unmarked(failed)
	}
	failed, unstorable := o.tookEffect(failed, "the call took effect, but")
	o.row.Error = clip(failed.Error(), maxError)
	return o.interrupted(ctx, work.Event{Kind: work.Due, Failed: true, Final: unstorable}, failed)
}

// start begins a call in the row.
func (o *task) start(ev work.Event) error {
	ev.Owner = newOwner(o.st)
	eff := o.apply(ev)
	if eff == work.Run && o.row.State == work.Waiting {
		eff = o.apply(work.Event{Kind: work.Begun, Owner: ev.Owner})
	}
	if eff != work.Run && eff != work.None || o.row.State != work.Running {
		return o.impossible(ev)
	}
	o.row.Begun++
	o.row.Error, o.row.Reported = "", false
	return nil
}

// tookEffect records that an operation took effect, if err is about its result. A later answer NotDone does not change that.
func (o *task) tookEffect(err error, text string) (_ error, unstorable bool) {
	if _, unstorable = errors.AsType[*resultError](err); unstorable {
		o.row.TookEffect = true
		err = fmt.Errorf("%s %w", text, err)
	}
	return err, unstorable
}

var errDeleted = errors.New("ledger: the row was deleted during the call")

// storedError returns the error of the last call as it is stored; nil if there was none.
func (o *task) storedError() error {
	if o.row.Error == "" {
		return nil
	}
	return errors.New(o.row.Error)
}

// returned returns the event that ends the present call.
func (o *task) returned(ev work.Event) work.Event {
	ev.Kind, ev.Owner, ev.Run = work.Returned, o.row.Owner, o.row.Run
	return ev
}

// interrupted continues with an operation whose last call has an unknown outcome.
func (o *task) interrupted(ctx context.Context, ev work.Event, failed error) (json.RawMessage, error) {
	ev.Owner = newOwner(o.st)
	switch next, eff := work.Step(o.row.Item, ev, o.policy, time.Now()); {
	case eff == work.CallHook:
		return o.ask(ctx, ev, failed)
	case eff == work.Run:
		if err := o.pause(ctx, failed); err != nil {
			return nil, err
		}
		o.row.Doubt = true
		return o.run(ctx, ev)
	case eff == work.None && next.State == work.Dead:
		return nil, o.endUnknown(ctx, ev, failed, false)
	}
	return nil, o.impossible(ev)
}

// pause waits before the repetition of a call that has failed. If the context ends, the row keeps the error, and the next Do
// continues.
func (o *task) pause(ctx context.Context, failed error) error {
	if failed == nil {
		return nil
	}
	if err := dohost.Sleep(ctx, o.delay()); err != nil {
		return o.unknownError(errors.Join(failed, err, o.put(ctx)))
	}
	return nil
}

// endUnknown makes the operation unknown by an event, and reports that unless it was unknown before. It returns an [UnknownError], or the error
// of the write.
func (o *task) endUnknown(ctx context.Context, ev work.Event, cause error, again bool) error {
	if !again {
		o.counts.unknown = 1
	}
	if err := o.step(ctx, ev); err != nil {
		return err
	}
	err := o.unknownError(cause)
	if again { // it was unknown before
		return err
	}
	reportUnknown(ctx, o.st, o.kind, o.id, o.declared, err)
	return err
}

// The delays between calls.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 10 * time.Second
)

// delay returns the delay before the next call of an operation.
func (o *task) delay() time.Duration {
	d := backoff.Delay(o.row.Begun-1, firstDelay, maxDelay)
	return backoff.Jitter(d, backoff.Share(o.st.ID().String(), string(o.id), fmt.Sprint(o.row.Begun)))
}

// ask asks the other side. ev is the event that has led to the question. Nothing is written before the answer, since Find
// changes nothing.
func (o *task) ask(ctx context.Context, ev work.Event, failed error) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, o.unknownError(errors.Join(failed, context.Cause(ctx), o.put(ctx)))
	}
	var result json.RawMessage
	var answer Answer
	var findErr error
	err := dohost.Await(ctx, func(ctx context.Context) error {
		result, answer, findErr = o.find(ctx, o.id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if ev.Kind == work.Retry {
		o.apply(ev)
	}
	if eff := o.apply(work.Event{Kind: work.HookCalled, Owner: newOwner(o.st)}); eff != work.None {
		return nil, o.impossible(ev)
	}
	findErr, _ = o.tookEffect(findErr, "ledger: Find returned Done, but")
	if findErr == nil && answer == AnswerNotDone && o.row.TookEffect {
		findErr = errors.New("ledger: Find returned NotDone, but the operation took effect: its result could not be stored")
	}
	if ev.Kind == work.Retry && findErr == nil && (answer == AnswerDone || answer == AnswerNotDone) { // it resolves an unknown operation
		o.counts = resolved(answer == AnswerDone)
	}
	switch {
	case findErr == nil && answer == AnswerDone:
		o.result = result
		return result, o.step(ctx, work.Event{Kind: work.Decided, Outcome: work.Completed})
	case findErr == nil && answer == AnswerNotDone && o.row.Begun < o.maxAttempts:
		if err := o.pause(ctx, failed); err != nil {
			return nil, err
		}
		o.row.Doubt = false
		return o.run(ctx, work.Event{Kind: work.Decided})
	case findErr == nil && answer == AnswerNotDone:
		err := fmt.Errorf("ledger: operation %s of kind %q had no effect in %d calls", o.id, o.kind, o.row.Begun)
		return nil, errors.Join(err, failed, o.step(ctx, work.Event{Kind: work.Decided, Outcome: work.Failed}))
	}
	if findErr != nil {
		o.row.Error = clip(findErr.Error(), maxError)
	}
	return nil, o.endUnknown(ctx, work.Event{Kind: work.HookReturned, Failed: true, Final: true}, errors.Join(failed, findErr), ev.Kind == work.Retry)
}

// apply changes the row by an event, without writing it.
func (o *task) apply(ev work.Event) (eff work.Effect) {
	now := time.Now()
	o.row.Item, eff = work.Step(o.row.Item, ev, o.policy, now)
	o.row.Changed = now.UnixMilli()
	return eff
}

// step applies an event that ends the call, and writes the row.
func (o *task) step(ctx context.Context, ev work.Event) error {
	if eff := o.apply(ev); eff != work.None {
		return o.impossible(ev)
	}
	return o.save(ctx)
}

// impossible returns the error for an event that the state of the row does not allow.
func (o *task) impossible(ev work.Event) error {
	return fmt.Errorf("ledger: operation %s: the event %v is impossible in the state %v", o.id, ev.Kind, o.row.State)
}

// unknownError returns the error of an operation with an unknown outcome.
func (o *task) unknownError(err error) error {
	text, panicked := o.unknownText()
	if panicked != nil {
		err = errors.Join(err, panicked)
	}
	return &UnknownError{ID: o.id, Kind: o.kind, Since: time.UnixMilli(o.row.Started), Text: clip(text, maxError), Err: err}
}

// unknownText returns the text of Kind.Unknown. If that panics, the text is a general one: the panic would end the incarnation in
// each Do of the operation.
func (o *task) unknownText() (text string, panicked error) {
	defer func() {
		if p := recover(); p != nil {
			text, panicked = "the outcome is unknown", fmt.Errorf("ledger: Kind.Unknown of kind %q panicked: %v", o.kind, p)
		}
	}()
	return o.unknown(o.id), nil
}
