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
	// Attempts bounds the calls of fn. Zero means 5; negative, no bound.
	Attempts int
	// Base is the first delay, which doubles up to Most; the delay is drawn from zero to
	// that. Zero means 50 ms; negative, no delay.
	Base time.Duration
	// Most bounds the delay. Zero means 10 s, or Base if that is more; negative, no bound.
	Most time.Duration
	// Window is the time after which no attempt begins. Zero means 10 s; negative,
	// no bound.
	Window time.Duration
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
	if opts.Attempts == 0 {
		opts.Attempts = 5
	}
	if opts.Base == 0 {
		opts.Base = 50 * time.Millisecond
	}
	switch {
	case opts.Most == 0:
		opts.Most = max(10*time.Second, opts.Base)
	case opts.Most < 0:
		opts.Most = math.MaxInt64
	}
	if opts.Window == 0 {
		opts.Window = 10 * time.Second
	}
	start, unknown := time.Now(), false
	for attempt := 1; ; attempt++ {
		err := fn(ctx)
		if err == nil || attempt == opts.Attempts || !opts.repeatable(err) {
			return mayHaveRun(err, unknown)
		}
		e, _ := errors.AsType[*Error](err)
		unknown = unknown || e.Ran == RanUnknown
		delay := opts.delay(attempt)
		if opts.Window > 0 && delay > opts.Window-time.Since(start) {
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
	if o.Base < 0 {
		return 0
	}
	most := o.Most
	if doublings := min(attempt-1, 62); o.Base <= most>>doublings {
		most = o.Base << doublings
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
