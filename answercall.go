package dohost

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dohost/dohost/internal/seal"
	"github.com/dohost/dohost/runtime"
)

const (
	// keepMore is added to the retention period, for attempts that are on their way, and clocks of machines that differ.
	keepMore = 3 * time.Minute
	// maxStoredResult bounds the stored result of a call, as JSON.
	maxStoredResult = 1 << 20
	// maxStoredCalls bounds the results that an object stores, in bytes.
	maxStoredCalls = 64 << 20
	// storedCallSize is counted for each stored call in addition to its texts.
	storedCallSize = 256
	// deletedCalls is the number of expired rows that a new call deletes at most.
	deletedCalls = 4
)

// storedCall is the row of a call with an id.
type storedCall struct {
	Key    string // of callKey
	Method string
	Sum    []byte // SHA-256 of the argument
	// Answer is the encoded answer. Without one the run is in progress, or was interrupted after its first Await.
	Answer  []byte `msgpack:",omitempty"`
	Expires int64  // ms since 1970
}

func (r *storedCall) size() int {
	return storedCallSize + len(r.Key) + len(r.Method) + len(r.Answer)
}

// storedCalls are the calls with an id of an object. They are rows of the object, so they move and are restored with its effects.
var storedCalls = Collection[storedCall]{
	Name:    "dohost.calls",
	Key:     func(r storedCall) string { return r.Key },
	Indexes: []Index[storedCall]{{Name: "expires", Of: func(r storedCall) Key { return KeyOf(r.Expires) }}},
}

// callKey returns the key of the row of a call. Each caller has ids of its own.
func callKey(c *RemoteCall) string {
	h := sha256.New()
	for _, s := range []string{c.Caller.Class, c.Caller.Name, c.CallID} {
		fmt.Fprintf(h, "%d %s", len(s), s)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// callTotal has the sum of the sizes of the stored calls of an object, in its only row.
type callTotal struct{ Bytes int }

var callTotals = Collection[callTotal]{Name: "dohost.calls.total", Key: func(callTotal) string { return totalKey }}

const totalKey = "total"

// addToTotal adds to the size of the stored calls, and returns the sum.
func addToTotal(ctx context.Context, s *Storage, n int) (sum int, err error) {
	total, _, err := callTotals.Get(ctx, s, totalKey)
	if err != nil {
		return 0, err
	}
	sum = max(total.Value.Bytes+n, 0) // DeleteAll may have deleted the row
	return sum, callTotals.Put(ctx, s, callTotal{sum})
}

// admitCall writes the row of a call that is about to run. It also deletes some expired rows, so an object needs no alarm for them: it keeps the
// rows of runs in progress, which may take longer than the retention period.
func admitCall(ctx context.Context, s *Storage, row storedCall, inProgress func(key string) bool) error {
	expired, err := storedCalls.List(ctx, s, &Query[storedCall]{
		Index: "expires", End: KeyOf(time.Now().UnixMilli() + 1), Where: func(r storedCall) bool { return !inProgress(r.Key) }, Limit: deletedCalls,
	})
	if err != nil {
		return err
	}
	for _, r := range expired {
		if err := removeCall(ctx, s, &r.Value); err != nil {
			return err
		}
	}
	return Transaction(ctx, func(ctx context.Context) error {
		total, err := addToTotal(ctx, s, row.size())
		if err == nil && total > maxStoredCalls {
			err = errCallsFull
		}
		if err != nil {
			return err
		}
		return storedCalls.Put(ctx, s, row)
	})
}

// removeCall deletes a row.
func removeCall(ctx context.Context, s *Storage, row *storedCall) error {
	return Transaction(ctx, func(ctx context.Context) error {
		if _, err := storedCalls.Delete(ctx, s, row.Key); err != nil {
			return err
		}
		_, err := addToTotal(ctx, s, -row.size())
		return err
	})
}

// callsInProgress are the runs of calls with an id, of all objects of a host. Entries are added and read with the turn of the object.
type callsInProgress struct {
	mu      sync.Mutex // guards running; no lock is taken while it is held
	running map[callInProgress]*callRun
}

type callInProgress struct {
	epoch Epoch  // of the incarnation
	key   string // of callKey
}

// callRun is a run of a call. It does not change.
type callRun struct {
	row  storedCall    // as it was when the run began
	done chan struct{} // closed when the run ends
}

// begin adds a run. end removes it.
func (c *callsInProgress) begin(key callInProgress, row storedCall) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = map[callInProgress]*callRun{}
	}
	run := &callRun{row, make(chan struct{})}
	c.running[key] = run
	return func() {
		c.mu.Lock()
		if c.running[key] == run {
			delete(c.running, key)
		}
		c.mu.Unlock()
		close(run.done)
	}
}

// get returns the run; nil if there is none.
func (c *callsInProgress) get(key callInProgress) *callRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[key]
}

// exposedCall is a call of Invoke at the host of the object. After an error of the host the event may still use it.
type exposedCall struct {
	*RemoteCall
	host   *Host
	method runtime.Method
	share  *bodyShare
	key    string          // of callKey
	gone   <-chan struct{} // closed when no caller waits for the answer

	waited bool   // for an earlier run; there is no argument any more
	answer []byte // set when Handle returns; nil if there is none
}

// AnswerCall runs a call that a [Remote] of another host has received, and returns the answer for it. The caller must have verified that the call
// comes from another host: AnswerCall calls no Authorize function. It refuses a call without an id, and a call with a longer id or retention period
// than Invoke permits. It does not change c. If ctx comes from [Host.ReadCall], the argument counts toward the read budget until the method has
// returned. A repetition that waits for a run in progress releases the bytes.
func (h *Host) AnswerCall(ctx context.Context, c *RemoteCall) (answer []byte) {
	if c.CallID == "" || len(c.CallID) > maxCallID || c.Keep < 0 || c.Keep > maxKeep {
		return encodeFailure(&Error{Op: c.Method, ID: c.ID, Err: errCallRange, Outcome: OutcomeNotRun})
	}
	answer, err := h.invoke(ctx, c)
	if err == nil {
		return answer
	}
	e := errorOf(err)
	if e.Err == runtime.ErrClosed || e.Err == errNoProcedure {
		e.Retryable = true // another host may have the object soon, or this one a later program
	}
	return encodeFailure(e)
}

// invoke runs a call of an object of this host. The answer has the error of the method; err is an *Error of the host.
func (h *Host) invoke(ctx context.Context, c *RemoteCall) (answer []byte, err error) {
	m, err := h.invocable(c.ID.Class, c.Method)
	if err != nil {
		return nil, &Error{Op: c.Method, ID: c.ID, Err: err, Outcome: OutcomeNotRun}
	}
	x := &exposedCall{
		RemoteCall: c, host: h, method: m, share: argumentShare(ctx), key: callKey(c), gone: ctx.Done(),
	}
	err = h.rt.Do(ctx, c.ID, runtime.Call{Op: c.Method, Size: len(c.Argument), Depth: c.Depth, Handler: x})
	if e := errorOf(err); err != nil && (e.Outcome != OutcomeRan || x.answer == nil) {
		return nil, unmarked(err)
	}
	return x.answer, nil
}

// Handle runs the method, or finds its answer.
func (x *exposedCall) Handle(ctx context.Context, instance any) error {
	x.share.begin()
	defer x.share.release()
	if x.CallID == "" {
		return x.run(ctx, instance, maxCallResult)
	}
	st := stateOf(runtime.StateOf(ctx, seal.New()))
	store, sum := st.Storage(), sha256.Sum256(x.Argument)
	for {
		run := x.host.calls.get(callInProgress{st.Epoch(), x.key})
		row, found, err := earlierCall(ctx, store, x.key, run)
		switch {
		case err != nil:
			return notRunError{err}
		case !found && x.waited:
			x.answer = encodeFailure(&Error{Op: x.Method, ID: x.ID, Err: errRunWithoutResult, Outcome: OutcomeNotRun, Retryable: true})
			return nil
		case !found:
			return x.runAndStore(ctx, st, instance, sum[:])
		case row.Method != x.Method || !bytes.Equal(row.Sum, sum[:]):
			x.refuse(errCallConflict, OutcomeUnknown) // of the call that has the id
			return nil
		case len(row.Answer) > 0:
			x.answer = row.Answer
			return countResult(ctx, len(x.answer))
		case run == nil:
			x.refuse(errCallInterrupted, OutcomeUnknown)
			return nil
		}
		if err := x.wait(ctx, run); err != nil {
			return err
		}
	}
}

// wait waits until an earlier run of the call has ended. It releases the argument first: few repetitions need it.
func (x *exposedCall) wait(ctx context.Context, run *callRun) error {
	without := *x.RemoteCall
	without.Argument = nil
	x.RemoteCall, x.waited = &without, true
	x.share.release()
	return Await(ctx, func(ctx context.Context) error {
		select {
		case <-run.done:
			return nil
		case <-x.gone:
			return notRunError{context.Canceled}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// earlierCall returns the row of a call with an id. If it is in progress, its row may have been deleted.
func earlierCall(ctx context.Context, s *Storage, key string, run *callRun) (row storedCall, found bool, err error) {
	if run != nil {
		return run.row, true, nil
	}
	stored, found, err := storedCalls.Get(ctx, s, key)
	return stored.Value, found, err
}

// runAndStore runs the method for the first time, and stores its answer.
func (x *exposedCall) runAndStore(ctx context.Context, st *State, instance any, sum []byte) error {
	store := st.Storage()
	row := storedCall{Key: x.key, Method: x.Method, Sum: sum, Expires: x.expiry()}
	inProgress := func(key string) bool { return x.host.calls.get(callInProgress{st.Epoch(), key}) != nil }
	if err := admitCall(ctx, store, row, inProgress); err != nil {
		return notRunError{err}
	}
	defer x.host.calls.begin(callInProgress{st.Epoch(), x.key}, row)()
	failed := x.run(ctx, instance, maxStoredResult)
	if _, ok := failed.(notRunError); ok {
		if err := removeCall(ctx, store, &row); err != nil {
			return notRunError{errors.Join(failed, err)}
		}
		return failed
	}
	if x.answer == nil { // the incarnation has ended
		return failed
	}
	row.Answer, row.Expires = x.answer, x.expiry()
	if err := x.store(ctx, store, row); err != nil {
		x.answer = encodeFailure(&Error{Op: x.Method, ID: x.ID, Err: fmt.Errorf("dohost: the result of the call cannot be stored: %w", err), Outcome: OutcomeRan})
		return errors.Join(failed, err)
	}
	return failed
}

// store writes the row of a call that has returned.
func (x *exposedCall) store(ctx context.Context, s *Storage, row storedCall) error {
	return Transaction(ctx, func(ctx context.Context) error {
		if _, err := addToTotal(ctx, s, len(row.Answer)); err != nil {
			return err
		}
		return storedCalls.Put(ctx, s, row)
	})
}

func (x *exposedCall) expiry() int64 { return time.Now().Add(x.Keep + keepMore).UnixMilli() }

// run runs the method, and sets the answer.
func (x *exposedCall) run(ctx context.Context, instance any, limit int) error {
	result, err := x.method(ctx, instance, x.Argument)
	if _, ok := err.(notRunError); ok {
		return err
	}
	if err == nil && len(result) > limit {
		err = &LimitError{Subject: "JSON of the result", Size: len(result), Limit: limit}
	}
	if err != nil {
		x.refuse(err, OutcomeRan)
		return err
	}
	x.answer = encodeResult(result)
	return countResult(ctx, len(x.answer))
}

// refuse sets an answer with an error.
func (x *exposedCall) refuse(err error, o Outcome) {
	x.answer = encodeFailure(&Error{Op: x.Method, ID: x.ID, Err: err, Outcome: o})
}
