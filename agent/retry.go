package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// RetryPolicy bounds the attempts of a failing operation. The zero policy means the defaults.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of attempts, including the first. Zero means 3.
	MaxAttempts int
	// BaseDelay is half the bound of the first delay. The bound doubles up to MaxDelay; the delay is drawn between zero
	// and the bound. Zero means 100 ms.
	BaseDelay time.Duration
	// MaxDelay bounds the delay, and is at least BaseDelay. Zero means 3 s, or BaseDelay if that is more.
	MaxDelay time.Duration
	// ShouldRetry, if set, reports whether to retry after the attempt of this number, from 1, failed with err.
	// It cannot be stored: only [Try] accepts it.
	ShouldRetry func(err error, attempt int) bool
}

// withDefaults fills a policy. The errors name the field.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	switch {
	case p.MaxAttempts < 0:
		return p, fmt.Errorf("agent: RetryPolicy.MaxAttempts is %d: want 1 or more", p.MaxAttempts)
	case p.BaseDelay < 0:
		return p, fmt.Errorf("agent: RetryPolicy.BaseDelay is %v: want more than zero", p.BaseDelay)
	case p.MaxDelay < 0 || p.MaxDelay > 0 && p.MaxDelay < p.BaseDelay:
		return p, fmt.Errorf("agent: RetryPolicy.MaxDelay is %v: want at least BaseDelay, which is %v", p.MaxDelay, p.BaseDelay)
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	if p.BaseDelay == 0 {
		p.BaseDelay = 100 * time.Millisecond
		if p.MaxDelay > 0 {
			p.BaseDelay = min(p.BaseDelay, p.MaxDelay)
		}
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(3*time.Second, p.BaseDelay)
	}
	return p, nil
}

// bound returns the maximum delay after an attempt.
func (p RetryPolicy) bound(attempt int) time.Duration {
	if doublings := min(attempt, 62); p.BaseDelay <= p.MaxDelay>>doublings {
		return p.BaseDelay << doublings
	}
	return p.MaxDelay
}

// delay returns the delay after an attempt. draw, between zero and one, selects it between zero and its bound.
func (p RetryPolicy) delay(attempt int, draw float64) time.Duration {
	return time.Duration(math.Round(draw * float64(p.bound(attempt))))
}

// Try calls fn until it succeeds or the policy gives up; nil means the default policy. It gives up the turn
// while it waits, as [dohost.Sleep] does. [dohost.Retry] repeats calls that did not run; Try repeats operations
// that ran and failed. It does not retry after the end of the incarnation or of ctx.
//
// Errors: the last error of fn; one for an invalid policy, before fn is called.
func Try(ctx context.Context, p *RetryPolicy, fn func(context.Context) error) error {
	var policy RetryPolicy
	if p != nil {
		policy = *p
	}
	policy, err := policy.withDefaults()
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := fn(ctx)
		if err == nil || attempt >= policy.MaxAttempts || ctx.Err() != nil {
			return err
		}
		if policy.ShouldRetry != nil && !policy.ShouldRetry(err, attempt) {
			return err
		}
		// Drawn from the time, so that a test in virtual time draws the same again.
		draw := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(attempt))).Float64()
		if dohost.Sleep(ctx, policy.delay(attempt, draw)) != nil {
			return err
		}
	}
}

// backoff is the stored part of a policy.
type backoff struct {
	Attempts int           `msgpack:",omitempty"`
	Base     time.Duration `msgpack:",omitempty"`
	Most     time.Duration `msgpack:",omitempty"`
}

// kept returns the stored part of a policy.
func (p RetryPolicy) kept() (backoff, error) {
	if p.ShouldRetry != nil {
		return backoff{}, fmt.Errorf("agent: RetryPolicy.ShouldRetry is a function, which no row can keep")
	}
	_, err := p.withDefaults()
	return backoff{p.MaxAttempts, p.BaseDelay, p.MaxDelay}, err
}
