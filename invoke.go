package dohost

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/dohost/dohost/internal/errkind"
	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

// InvokeOptions are the options of [Invoke]. Nil means the zero InvokeOptions.
type InvokeOptions struct {
	// CallID names the call, in 1 to 128 bytes of UTF-8: no other call from the calling object to that object may have it. All calls
	// with a context outside of events share one set of ids. Invoke repeats a call with an id, and the program may do so too, even
	// after a restart if it has stored the id. The ID of an operation of package ledger is such an id. Empty means a random id for
	// an object of another host, and no id for an object of this host.
	CallID string
	// Keep is the retention period of the result of a call with a CallID. A later repetition runs the method again. Zero means 24 h;
	// less than zero and more than 30 days are errors.
	Keep time.Duration
	// Since is when the program chose the CallID. If that is longer ago than Keep, Invoke makes no attempt and returns an error, since the call may
	// have run and its result may have been deleted: the code of [DescribeError] is "call_expired". Zero means that Invoke does not check it.
	Since time.Time
}

// The bounds of a call of Invoke.
const (
	maxCallID     = 128
	defaultKeep   = 24 * time.Hour
	maxKeep       = 30 * defaultKeep
	generatedKeep = 2 * time.Minute // longer than all attempts of a call together
	maxRepeating  = time.Minute     // from the first attempt to the start of the last
	maxPanics     = 3               // attempts until one that ends with a panic or a time limit is not repeated

	maxCallArgument = 16 << 20 // bytes of JSON
	maxCallResult   = 16 << 20 // likewise
)

// Invoke calls an exposed method ([Expose], [ExposeRead]) of an object by its name, and returns its result when everything that the object
// has written is durable. It is [Call] for objects that may be on another host, as in a cluster (package cluster), and works the same way
// for objects of this host. Argument and result are JSON of at most 16 MiB, even for a class bound ByReference. The type of the result
// cannot be inferred:
//
//	balance, err := dohost.Invoke[int](ctx, Accounts.Get(st, "bob"), "deposit", 5, nil)
//
// Inside a turn Invoke is an [Await]: the call leaves once the caller's writes are durable. As with Call, the host calls no Authorize
// function.
//
// The object stores the result of a call with an id (see [InvokeOptions]) in one batch with the last writes of the method, and a repetition gets
// that result. So the effects of a method without an Await occur once, however often the call is repeated. A method that awaits runs at most once:
// if its incarnation ends during an Await, the error of this call and of all repetitions has OutcomeUnknown and the code "call_interrupted", until
// Keep is over. Repetitions get the same error if the disk is too full for the result, although the writes of the method are stored. A repetition waits for a run in progress. All of this also applies to methods of ExposeRead, which may write. So a call with an id
// creates the object. [Storage.DeleteAll] deletes the stored results of earlier calls, and the rows of calls in progress: if a method or another
// event calls it, and the incarnation of the method then ends during an Await, a repetition runs the method again. The JSON of a result that is
// stored has at most 1 MiB, so larger results fail in each call with an id and in each call from another host.
//
// Invoke repeats a call with an id for up to a minute while its outcome is unknown, or while no host serves the object. It repeats the call at most
// twice if a method of the object panics or exceeds a time limit, and not at all if [State.Abort] or a restore ends the method's incarnation: both
// may also delete the id, so a repetition by the program may run the method again.
//
// The errors are as for Call, with these differences. An error of the method is not the same value: errors.As finds a [*PublicError]
// in it without its Err, errors.Is the kinds of errors, and its text has at most 4 KiB. An error with the code "elsewhere" ([DescribeError]) means that the
// host has no Options.Remote. [ErrConflict] means that the CallID belongs to another call, which may have run: the outcome is unknown.
// [ErrOverloaded] also means that the object stores 64 MiB of results, or that too many calls wait for it.
func Invoke[Out, O, In any](ctx context.Context, s Stub[O], method string, in In, o *InvokeOptions) (Out, error) {
	return invokeMethod[Out](ctx, &s.to, method, in, o)
}

// invokeMethod is Invoke for an object of any class.
func invokeMethod[Out any](ctx context.Context, to *target, method string, in any, o *InvokeOptions) (Out, error) {
	var out, none Out
	c, err := o.call(to.id, method)
	if err == nil {
		if caller := runtime.StateOf(ctx, seal.New()); caller != nil {
			c.Caller = caller.ID()
		}
		c.Argument, err = json.Marshal(in)
	}
	if err == nil && len(c.Argument) > maxCallArgument {
		err = &LimitError{Subject: "JSON of the argument", Size: len(c.Argument), Limit: maxCallArgument}
	}
	if err != nil {
		return none, to.failure(method, outcomeOf(err), err)
	}
	result, err := to.invoke(ctx, c, o)
	if err != nil {
		return none, err
	}
	if err := json.Unmarshal(result, &out); err != nil {
		return none, to.failure(method, OutcomeRan, fmt.Errorf("dohost: the result of %s cannot be decoded: %w", method, err))
	}
	return out, nil
}

var (
	errCallExpired = errkind.New(errkind.ErrConflict, "the call id is older than the retention period of its result")
	// errCallInterrupted is the error of a call whose earlier run has committed writes and has not returned.
	errCallInterrupted = errkind.New(errkind.ErrFenced, "the incarnation of an earlier run of this call has ended during an Await")
	// errCodeReset and errCodeFault are ends of an incarnation: by State.Abort or a restore, and by a panic or a time limit.
	errCodeReset    = errors.New("the object's code has aborted or restored the object")
	errCodeFault    = errors.New("the object's code has panicked, or exceeded a time limit")
	errCallConflict = errkind.New(errkind.ErrConflict, "the call id belongs to a call of another method, or with another argument")
	// errRunWithoutResult is the error of a repetition that has waited for a run, and needs its argument again.
	errRunWithoutResult = errors.New("dohost: an earlier run of this call has ended, and the object has no result of it")
	errCallRange        = errkind.New(errkind.ErrMisuse, "the id or the retention period of a call is out of range")
	errCallsFull        = errkind.New(errkind.ErrOverloaded, "the object stores too many results of calls")
)

// outcomeOf returns the outcome of a call that was not made.
func outcomeOf(err error) Outcome {
	if err == errCallExpired {
		return OutcomeUnknown // of an earlier one
	}
	return OutcomeNotRun
}

// call returns the call with these options, without its argument.
func (o *InvokeOptions) call(id ID, method string) (*RemoteCall, error) {
	c := &RemoteCall{ID: id, Method: method}
	if o == nil {
		return c, nil
	}
	c.CallID, c.Keep = o.CallID, o.Keep
	if c.Keep == 0 {
		c.Keep = defaultKeep
	}
	switch {
	case c.Keep < 0 || c.Keep > maxKeep:
		return nil, fmt.Errorf("%w: InvokeOptions.Keep is %v: want at most %v", ErrMisuse, o.Keep, maxKeep)
	case c.CallID == "" && (o.Keep != 0 || !o.Since.IsZero()):
		return nil, fmt.Errorf("%w: InvokeOptions.Keep and Since without a CallID", ErrMisuse)
	case len(c.CallID) > maxCallID || !utf8.ValidString(c.CallID):
		return nil, fmt.Errorf("%w: the call id %.140q: want up to %d bytes of UTF-8", ErrMisuse, c.CallID, maxCallID)
	case o.expired(c):
		return nil, errCallExpired
	}
	return c, nil
}

// expired reports whether the retention period of a result of the call may be over.
func (o *InvokeOptions) expired(c *RemoteCall) bool {
	return o != nil && !o.Since.IsZero() && time.Since(o.Since) > c.Keep
}

// invoke makes a call, and repeats one with an id. The error is an *Error.
func (t *target) invoke(ctx context.Context, c *RemoteCall, o *InvokeOptions) (result json.RawMessage, err error) {
	if c.CallID == "" && t.at.host().rt.IsElsewhere(t.id) {
		c.CallID, c.Keep = rand.Text(), generatedKeep
	}
	if c.CallID == "" {
		return t.invokeOnce(ctx, c)
	}
	policy := &RetryPolicy{MaxAttempts: -1, BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second, MaxElapsed: maxRepeating, ShouldRetry: mayRepeatCall}
	err = Retry(ctx, policy, func(ctx context.Context) error {
		if o.expired(c) {
			return t.failure(c.Method, OutcomeUnknown, errCallExpired)
		}
		result, err = t.invokeOnce(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// mayRepeatCall permits a repetition of a call with an id. After a fault of the object's code, in its method or in another one, it permits few:
// each run of a method that panics ends an incarnation. After an abort or a restore it permits none, since the object's code has ended the incarnation
// on purpose, and the row of the call may be lost.
func mayRepeatCall(err error, attempt int) bool {
	e := errorOf(err)
	if e == nil || e.Outcome != OutcomeUnknown {
		return retryNotRun(err, attempt)
	}
	end := codeEnd(e)
	switch {
	case end == errCodeReset, end == errCodeFault && attempt >= maxPanics:
		return false
	case errors.Is(err, errCallInterrupted), errors.Is(err, errCallConflict), errors.Is(err, errCallExpired):
		return false
	}
	return !e.Overloaded()
}

// codeEnd returns errCodeReset or errCodeFault if the object's code has ended the incarnation of an attempt, and nil otherwise.
func codeEnd(e *Error) error {
	switch err := e.Err.(type) {
	case *Fenced:
		switch err.Reason {
		case ReasonAborted, ReasonRestored:
			return errCodeReset
		case ReasonPanic, ReasonConstructor, ReasonExclusive, ReasonAlarm, ReasonEvent, ReasonOutput:
			return errCodeFault
		}
	case *remoteError:
		return err.end
	}
	return nil
}

// invokeOnce makes one attempt of a call. The error is an *Error.
func (t *target) invokeOnce(ctx context.Context, c *RemoteCall) (result json.RawMessage, err error) {
	h := t.at.host()
	var answer []byte
	if h.rt.IsElsewhere(t.id) {
		answer, err = h.invokeElsewhere(ctx, c)
	} else if answer, err = h.invoke(ctx, c); err != nil {
		if e, ok := err.(*Error); ok && e.Err == runtime.ErrClosed {
			_, fixed := t.at.(*Host)
			e.Retryable = !fixed
		}
	}
	if err != nil {
		return nil, err
	}
	return decodeAnswer(c, answer)
}

// invokeElsewhere makes one attempt of a call to an object of another host.
func (h *Host) invokeElsewhere(ctx context.Context, c *RemoteCall) (answer []byte, err error) {
	if h.remote == nil {
		return nil, &Error{Op: c.Method, ID: c.ID, Err: errkind.ErrElsewhere, Outcome: OutcomeNotRun}
	}
	sent := *c
	sent.Depth = runtime.DepthOf(ctx)
	began := false
	answer, err = AwaitValue(ctx, func(ctx context.Context) ([]byte, error) {
		began = true
		return h.remote.InvokeRemote(ctx, &sent)
	})
	if _, ok := err.(*Error); err == nil || ok {
		return answer, err
	}
	failed := &Error{Op: c.Method, ID: c.ID, Err: err}
	if !began {
		failed.Outcome = OutcomeNotRun
	}
	return nil, failed
}
