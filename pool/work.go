package pool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// WorkOptions tunes [Work].
type WorkOptions struct {
	// Role is the role of the worker. Required.
	Role string
	// Name is for people, such as the name of the machine. At most 128 bytes.
	Name string
	// Conn is the connection of the worker, which no other worker may have: see [JoinRequest]. In a process that [Manage] has started it is
	// Process.Conn. Empty means a random one.
	Conn string
	// Wait bounds one request for a task. Zero means 30 s; it is at least 1 ms and at most 50 s.
	Wait time.Duration
}

// ErrNoRetry makes a task fail without further attempts, if the error of a worker's function wraps it.
var ErrNoRetry = errors.New("pool: the task is not to be repeated")

// ErrUncertain marks the failure of an attempt that may have had effects, if the error of a worker's function wraps it: see [Task].
var ErrUncertain = errors.New("pool: the attempt may have had effects")

// errLost is the cause of the end of a task's context when the worker has lost its claim.
var errLost = fmt.Errorf("pool: the lease of the task has lapsed: %w", ErrClaimLost)

// Work is a worker: it joins a role of a pool, claims tasks one after the other and calls do with each, until ctx ends. It sends heartbeats
// and renews the lease of the task while do runs. For several tasks at a time, call Work several times.
//
// The context of do ends with ctx, or when the worker has lost the task: then its cause is an [ErrClaimLost], and another worker may have the
// task. do reports progress with [Progress], and must do so within Options.Progress of the pool.
//
// The result of do ends the task; nil means the JSON null. A result that is not JSON, or is longer than Options.MaxResult of the pool, makes
// the task fail. If do returns an error, the task is pending again and the attempt counts, or the task has failed if the error
// wraps [ErrNoRetry]; after the end of ctx Work releases the task, and the attempt does not count. If do panics, the task has failed, and the
// panic continues. The worker leaves the pool when Work returns or panics. If the answer to its last claim is lost, the claim has an
// effect nevertheless: the claimed task is pending again only after Options.Acknowledged.
//
// Work returns the cause of ctx, a refusal such as [ErrFull], or an error of the server about the request, such as the error for a wrong
// token. It repeats a request while there is no answer, or one with the status 5xx, 408 or 429.
func Work(ctx context.Context, c *Client, o *WorkOptions, do func(context.Context, *Task) (json.RawMessage, error)) error {
	if o == nil || do == nil {
		return refuse(ErrInvalid, "Work without options or a function")
	}
	if err := checkNames("role", o.Role); err != nil {
		return err
	}
	if err := checkText("name", o.Name, maxName); err != nil {
		return err
	}
	wait, err := longPoll("WorkOptions", o.Wait)
	if err != nil {
		return err
	}
	w := &session{client: c, options: *o, wait: wait, conn: o.Conn}
	if w.conn == "" {
		w.conn = rand.Text()
	}
	if err := checkNames("conn", w.conn); err != nil {
		return err
	}
	if err := w.join(ctx, requestTimeout, c.repeat); err != nil {
		return err
	}
	defer w.leave(ctx)
	beating, stop := context.WithCancel(ctx)
	beats := sync.WaitGroup{}
	beats.Go(func() { w.beat(beating) })
	defer beats.Wait()
	defer stop()
	for {
		begun := time.Now()
		task, err := w.claim(ctx)
		if err == nil && task != nil {
			err = w.work(ctx, task, do)
		} else if err == nil && time.Since(begun) < wait/2 { // the host closes, or too many workers wait
			sleep(ctx, min(wait/2, time.Second))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// session is a worker that has joined.
type session struct {
	client  *Client
	options WorkOptions
	wait    time.Duration
	conn    string

	mu     sync.Mutex   // guards the field below
	joined JoinResponse // the last answer
}

// join joins the role by a method of the client.
func (w *session) join(ctx context.Context, limit time.Duration, call func(context.Context, time.Duration, string, any, any) error) error {
	var joined JoinResponse
	if err := call(ctx, limit, "join", JoinRequest{Role: w.options.Role, Conn: w.conn, Name: w.options.Name}, &joined); err != nil {
		return err
	}
	if err := joined.check(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.joined = joined
	return nil
}

// check refuses times that no pool has. With them the worker would send requests without a pause.
func (j *JoinResponse) check() error {
	for _, ms := range []int64{j.HeartbeatMS, j.TTLMS, j.LeaseMS} {
		if ms < 1 || ms > longestOption.Milliseconds() {
			return fmt.Errorf("pool: join: the answer does not come from a pool: it has a time of %d ms", ms)
		}
	}
	return nil
}

// times returns the time between two heartbeats, and that of a lease.
func (w *session) times() (beat, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.joined.HeartbeatMS) * time.Millisecond, time.Duration(w.joined.LeaseMS) * time.Millisecond
}

// leave leaves the pool. An error is without consequence: the worker is removed after its TTL.
func (w *session) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	var none struct{}
	_ = w.client.repeat(ctx, requestTimeout, "leave", LeaveRequest{w.options.Role, w.conn}, &none)
}

// beat sends heartbeats until ctx ends, and repeats one that has failed soon. A worker that was removed joins again.
func (w *session) beat(ctx context.Context) {
	every, _ := w.times()
	for pause := every; sleep(ctx, pause); {
		var answer HeartbeatResponse
		limit := min(requestTimeout, every)
		err := w.client.request(ctx, limit, "beat", HeartbeatRequest{w.options.Role, w.conn}, &answer)
		if errors.Is(err, ErrStale) {
			err = w.join(ctx, limit, w.client.request)
		}
		every, _ = w.times()
		if pause = every; err != nil {
			pause = every / 6
		}
	}
}

// claim waits for a task. It returns nil if there was none.
func (w *session) claim(ctx context.Context) (*Task, error) {
	var claimed ClaimResponse
	in := ClaimRequest{Role: w.options.Role, Conn: w.conn, WaitMS: w.wait.Milliseconds()}
	err := w.client.repeat(ctx, w.wait+requestTimeout, "claim", in, &claimed)
	if errors.Is(err, ErrFull) {
		return nil, nil
	}
	if errors.Is(err, ErrStale) {
		return nil, w.join(ctx, requestTimeout, w.client.repeat)
	}
	return claimed.Task, err
}

// work starts a task, and ends it in the way that do does.
func (w *session) work(ctx context.Context, task *Task, do func(context.Context, *Task) (json.RawMessage, error)) error {
	hold := ClaimRef{task.ID, w.conn, task.Fence}
	var started Task
	begun := time.Now()
	if err := w.client.repeat(ctx, requestTimeout, "start", hold, &started); err != nil {
		if ctx.Err() != nil {
			return w.end(ctx, "release", hold)
		}
		if errors.Is(err, ErrClaimLost) || errors.Is(err, ErrTransition) || errors.Is(err, ErrNotFound) {
			return nil // the pool has ended the claim
		}
		return err
	}
	p := &progress{}
	working, end := context.WithCancelCause(context.WithValue(ctx, progressKey{}, p))
	renewing, stop := context.WithCancel(working)
	renewals := sync.WaitGroup{}
	renewals.Go(func() { w.renew(renewing, hold, p, begun, end) })
	returned := false
	defer func() {
		stop()
		renewals.Wait()
		end(nil)
		if !returned { // a panic, or the end of the goroutine: an error changes nothing about it
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			_ = w.end(ending, "fail", FailRequest{ClaimRef: hold, Error: "the function of the worker has panicked", Uncertain: true})
		}
	}()
	result, failed := do(working, task)
	returned = true
	stop()
	renewals.Wait()
	return w.ended(ctx, hold, result, failed)
}

// ended ends a task whose function has returned.
func (w *session) ended(ctx context.Context, hold ClaimRef, result json.RawMessage, failed error) error {
	if failed == nil && len(result) > 0 && !json.Valid(result) {
		failed = fmt.Errorf("pool: the result is not JSON: %w", ErrNoRetry)
	}
	switch {
	case failed == nil:
		err := w.end(ctx, "handoff", HandoffRequest{hold, result})
		if errors.Is(err, ErrInvalid) { // it is too large
			err = w.end(ctx, "fail", FailRequest{ClaimRef: hold, Error: shorten(err.Error(), maxError)})
		}
		return err
	case ctx.Err() != nil:
		return w.end(ctx, "release", hold)
	}
	return w.end(ctx, "fail", FailRequest{ClaimRef: hold, Error: shorten(failed.Error(), maxError), Retry: !errors.Is(failed, ErrNoRetry), Uncertain: errors.Is(failed, ErrUncertain)})
}

// end ends the worker's part of a task. It repeats the request until ctx ends, and then for a while longer. If the pool has taken the task
// back, or has received the request before and the answer was lost, the part is over as well.
func (w *session) end(ctx context.Context, method string, in any) error {
	err := w.client.untilEnd(ctx, method, in, new(Task))
	if errors.Is(err, ErrClaimLost) || errors.Is(err, ErrTransition) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// renew renews the lease of a task until ctx ends. When the pool has ended the claim, or when a lease has passed since the last renewal
// with an answer was sent, it calls end: then another worker may have the task.
func (w *session) renew(ctx context.Context, hold ClaimRef, p *progress, last time.Time, end context.CancelCauseFunc) {
	_, lease := w.times()
	for pause := lease / 3; sleep(ctx, pause); {
		sent := time.Now()
		var task Task
		err := w.client.request(ctx, min(lease/3, lease-sent.Sub(last)), "renew", RenewRequest{hold, p.get()}, &task)
		if pause = lease / 12; err == nil {
			pause, last = lease/3, sent
		}
		if isRefusal(err) || time.Since(last) >= lease {
			end(errLost)
			return
		}
	}
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// progressKey is the context key of the progress of a task.
type progressKey struct{}

// progress is the progress of a task that the next renewal reports.
type progress struct {
	mu   sync.Mutex // guards the field below
	text string
}

func (p *progress) get() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text
}

// Progress reports progress of the task whose function runs with ctx: the next renewal of its lease, within a third of a lease, passes text
// on to the pool. It is progress if text differs from the last one. Longer texts than 1 KiB are cut. With another context it does nothing.
// Any goroutine may call it.
func Progress(ctx context.Context, text string) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = shorten(text, maxProgress)
}

// shorten returns a text as UTF-8 of at most limit bytes.
func shorten(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
