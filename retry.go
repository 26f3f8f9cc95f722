package dohost

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dohost/dohost/internal/backoff"
	"github.com/dohost/dohost/internal/errkind"
)

// RetryPolicy bounds the attempts of an operation that fails. The zero policy has the defaults of all fields, which
// are the same for [Retry] and for the queue and the schedules of package agent; its rows have larger ones. Using a policy does not change it:
// any number of goroutines may share one.
type RetryPolicy struct {
	// MaxAttempts bounds the attempts, including the first. Zero means 3; negative, no bound.
	MaxAttempts int
	// BaseDelay bounds the first delay. The bound doubles up to MaxDelay; each delay is drawn between zero and its
	// bound. Zero means 200 ms; negative, no delay.
	BaseDelay time.Duration
	// MaxDelay bounds each delay, the first included. Zero means 3 s, or BaseDelay if that is more; negative, no bound.
	MaxDelay time.Duration
	// MaxElapsed bounds the time from the start of the first attempt to the start of the last. Zero or negative means
	// no bound.
	MaxElapsed time.Duration
	// ShouldRetry reports whether to retry after the attempt of this number, from 1, failed with err. It is not called
	// after the end of ctx or of the incarnation, when no retry is possible. Nil means the default of the function
	// that takes the policy; [RetryIdempotent] and [RetryAnyError] are alternatives.
	ShouldRetry func(err error, attempt int) bool
}

// RetryIdempotent is a ShouldRetry for an operation that may take effect twice: it permits a retry of a call that may
// have run, in addition to a call that did not run and may be repeated. It refuses an error that an object's own code
// returned, and a call of an overloaded object.
func RetryIdempotent(err error, attempt int) bool {
	e := errorOf(err)
	return e != nil && !e.Overloaded() && e.Outcome == OutcomeUnknown || retryNotRun(err, attempt)
}

// RetryAnyError is a ShouldRetry for an operation that is repeated after every error, including errors of its own code.
func RetryAnyError(error, int) bool { return true }

// retryNotRun permits a retry of a call that did not run and may be repeated.
func retryNotRun(err error, _ int) bool {
	return allCalls(err, func(e *Error) bool { return !e.Overloaded() && e.Outcome == OutcomeNotRun && e.Retryable })
}

// didNotRun reports whether all calls that err is about did not run. Any other error may come from after a call.
func didNotRun(err error) bool {
	return allCalls(err, func(e *Error) bool { return e.Outcome == OutcomeNotRun })
}

// allCalls reports whether err consists of errors of calls only, all of them with a property.
func allCalls(err error, has func(*Error) bool) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *Error:
		return e != nil && has(e)
	case interface{ Unwrap() error }:
		return allCalls(e.Unwrap(), has)
	case interface{ Unwrap() []error }:
		list := e.Unwrap()
		return len(list) > 0 && !slices.ContainsFunc(list, func(err error) bool { return !allCalls(err, has) })
	}
	return false
}

// Retry calls fn until it succeeds or the policy gives up; a nil policy means the defaults. It gives up the turn while
// it waits, as [Sleep] does.
//
// With a nil ShouldRetry it retries calls that did not run and may be repeated. It then never retries an error that an
// object's own code returned, nor a call of an overloaded object, which needs less load, not more. Durable Objects
// give the same advice on .retryable and .overloaded. Retry does not call fn again after the end of ctx or of the
// incarnation, even if ShouldRetry would permit it.
//
// Errors: fn's last error, even when ctx ends before the next attempt. If it is an [Error] with OutcomeNotRun, but an
// earlier call may have run, the error has OutcomeUnknown. Any error of fn that is not only about calls with
// OutcomeNotRun counts as a call that may have run.
func Retry(ctx context.Context, p *RetryPolicy, fn func(context.Context) error) error {
	if fn == nil {
		return errkind.About("Retry", errNilFunc)
	}
	policy := p.withDefaults()
	start, ran := time.Now(), false
	for attempt := 1; ; attempt++ {
		err := fn(ctx)
		if err == nil || attempt == policy.MaxAttempts || ctx.Err() != nil || !policy.ShouldRetry(err, attempt) {
			return mayHaveRun(err, ran)
		}
		ran = ran || !didNotRun(err)
		delay := policy.delay(attempt)
		if policy.MaxElapsed > 0 && delay > policy.MaxElapsed-time.Since(start) {
			return mayHaveRun(err, ran)
		}
		if Sleep(ctx, delay) != nil {
			return mayHaveRun(err, ran)
		}
	}
}

// withDefaults fills a policy, which may be nil.
func (p *RetryPolicy) withDefaults() RetryPolicy {
	var policy RetryPolicy
	if p != nil {
		policy = *p
	}
	if policy.MaxAttempts == 0 {
		policy.MaxAttempts = 3
	}
	if policy.BaseDelay == 0 {
		policy.BaseDelay = 200 * time.Millisecond
	}
	switch {
	case policy.MaxDelay == 0:
		policy.MaxDelay = max(3*time.Second, policy.BaseDelay)
	case policy.MaxDelay < 0:
		policy.MaxDelay = math.MaxInt64
	}
	if policy.ShouldRetry == nil {
		policy.ShouldRetry = retryNotRun
	}
	return policy
}

// mayHaveRun returns the last error of several attempts, with OutcomeUnknown if an earlier attempt ran or may have run.
func mayHaveRun(err error, ran bool) error {
	e := errorOf(err)
	if e == nil || e.Outcome != OutcomeNotRun || !ran && didNotRun(err) {
		return err
	}
	last := *e
	last.Outcome, last.Retryable = OutcomeUnknown, false
	if err != error(e) {
		last.Err = err // keeps the errors that fn has wrapped around the call's error
	}
	return &last
}

// delay draws the time to wait after an attempt.
func (p *RetryPolicy) delay(attempt int) time.Duration {
	if p.BaseDelay < 0 {
		return 0
	}
	limit := backoff.Delay(attempt-1, p.BaseDelay, p.MaxDelay)
	// Drawn from the time, so that a test in virtual time gets the same delay in each run.
	draw := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(attempt)))
	return time.Duration(draw.Int64N(int64(limit)))
}
