package dohost

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// RetryOptions tunes [Retry]. Nil means the defaults.
type RetryOptions struct {
	// Idempotent permits fn to take effect twice: Retry then repeats a call with an unknown outcome too.
	Idempotent bool
	// MaxAttempts bounds the calls of fn. Zero means 5; negative, no bound.
	MaxAttempts int
	// BaseDelay is the first delay, which doubles up to MaxDelay; the delay is drawn from zero to
	// that. Zero means 50 ms; negative, no delay.
	BaseDelay time.Duration
	// MaxDelay bounds the delay. Zero means 10 s, or BaseDelay if that is more; negative, no bound.
	MaxDelay time.Duration
	// MaxElapsed is the time after which no attempt begins. Zero means 10 s; negative,
	// no bound.
	MaxElapsed time.Duration
}

// Retry calls fn until it succeeds or fails with an error that must not be retried. It retries calls that did not run
// and may be repeated and, with Idempotent, calls that may have run. It never retries an error that an object's own
// code returned, nor a call of an overloaded object, which needs less load and not more. Durable Objects give the
// same advice on .retryable and .overloaded.
//
// Errors: the last one of fn, also when ctx ends before the next attempt. If the last attempt did not run and an
// earlier one may have run, the error has RanUnknown.
func Retry(ctx context.Context, o *RetryOptions, fn func(context.Context) error) error {
	var opts RetryOptions
	if o != nil {
		opts = *o
	}
	if opts.MaxAttempts == 0 {
		opts.MaxAttempts = 5
	}
	if opts.BaseDelay == 0 {
		opts.BaseDelay = 50 * time.Millisecond
	}
	switch {
	case opts.MaxDelay == 0:
		opts.MaxDelay = max(10*time.Second, opts.BaseDelay)
	case opts.MaxDelay < 0:
		opts.MaxDelay = math.MaxInt64
	}
	if opts.MaxElapsed == 0 {
		opts.MaxElapsed = 10 * time.Second
	}
	start, unknown := time.Now(), false
	for attempt := 1; ; attempt++ {
		err := fn(ctx)
		if err == nil || attempt == opts.MaxAttempts || !opts.repeatable(err) {
			return mayHaveRun(err, unknown)
		}
		e, _ := errors.AsType[*Error](err)
		unknown = unknown || e.Ran == RanUnknown
		delay := opts.delay(attempt)
		if opts.MaxElapsed > 0 && delay > opts.MaxElapsed-time.Since(start) {
			return mayHaveRun(err, unknown)
		}
		if Sleep(ctx, delay) != nil {
			return mayHaveRun(err, unknown)
		}
	}
}

// mayHaveRun returns the last error of several attempts, with RanUnknown if an earlier attempt may have run.
func mayHaveRun(err error, unknown bool) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !unknown || e.Ran != RanNo {
		return err
	}
	last := *e
	last.Ran, last.Retryable = RanUnknown, false
	if err != error(e) {
		last.Err = err // keeps the errors that fn has wrapped around it
	}
	return &last
}

// delay draws the time to wait after an attempt.
func (o RetryOptions) delay(attempt int) time.Duration {
	if o.BaseDelay < 0 {
		return 0
	}
	most := o.MaxDelay
	if doublings := min(attempt-1, 62); o.BaseDelay <= most>>doublings {
		most = o.BaseDelay << doublings
	}
	// Drawn from the time, so that a test in virtual time finds the same again.
	draw := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(attempt)))
	return time.Duration(draw.Int64N(int64(most)))
}

func (o RetryOptions) repeatable(err error) bool {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Overloaded || e.Ran == RanYes:
		return false
	case e.Ran == RanNo:
		return e.Retryable
	}
	return o.Idempotent
}
