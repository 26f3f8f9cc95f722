package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dohost/dohost"
)

// RetryPolicy says how often something that fails is tried. The zero policy means the defaults.
type RetryPolicy struct {
	// Attempts is how often it is tried in all. Zero means 3.
	Attempts int
	// Base is half of what bounds the first delay. The bound doubles up to Most, and the
	// delay is drawn from zero to it. Zero means 100 ms.
	Base time.Duration
	// Most bounds the delay, and is at least Base. Zero means 3 s, or Base if that is more.
	Most time.Duration
	// ShouldRetry, if set, says whether the attempt of this number, from 1, that failed with
	// err, is followed by another. No row can keep it: it is for [Try] alone.
	ShouldRetry func(err error, attempt int) bool
}

// withDefaults fills a policy. The errors name the field.
func (p RetryPolicy) withDefaults() (RetryPolicy, error) {
	switch {
	case p.Attempts < 0:
		return p, fmt.Errorf("agent: RetryPolicy.Attempts is %d: want 1 or more", p.Attempts)
	case p.Base < 0:
		return p, fmt.Errorf("agent: RetryPolicy.Base is %v: want more than zero", p.Base)
	case p.Most < 0 || p.Most > 0 && p.Most < p.Base:
		return p, fmt.Errorf("agent: RetryPolicy.Most is %v: want at least Base, which is %v", p.Most, p.Base)
	}
	if p.Attempts == 0 {
		p.Attempts = 3
	}
	if p.Base == 0 {
		p.Base = 100 * time.Millisecond
		if p.Most > 0 {
			p.Base = min(p.Base, p.Most)
		}
	}
	if p.Most == 0 {
		p.Most = max(3*time.Second, p.Base)
	}
	return p, nil
}

// bound is the longest delay after an attempt.
func (p RetryPolicy) bound(attempt int) time.Duration {
	if doublings := min(attempt, 62); p.Base <= p.Most>>doublings {
		return p.Base << doublings
	}
	return p.Most
}

// delay is how long to wait after an attempt, drawn from zero to its bound by a number from
// zero to one.
func (p RetryPolicy) delay(attempt int, draw float64) time.Duration {
	return time.Duration(math.Round(draw * float64(p.bound(attempt))))
}

// Try calls fn until it succeeds, or the policy gives up; nil means the default one. It waits
// with the turn given up, as [dohost.Sleep] does. Where [dohost.Retry] repeats calls that did
// not run, this repeats what has run and failed. What has failed because the incarnation has
// ended, or ctx, is not tried again.
//
// Errors: fn's last one, and one for a policy that cannot be, before fn is called.
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
		if err == nil || attempt >= policy.Attempts || ctx.Err() != nil {
			return err
		}
		if policy.ShouldRetry != nil && !policy.ShouldRetry(err, attempt) {
			return err
		}
		// Drawn from the time, so that a test in virtual time finds the same again.
		draw := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(attempt))).Float64()
		if dohost.Sleep(ctx, policy.delay(attempt, draw)) != nil {
			return err
		}
	}
}

// backoff is what a row keeps of a policy.
type backoff struct {
	Attempts int           `msgpack:",omitempty"`
	Base     time.Duration `msgpack:",omitempty"`
	Most     time.Duration `msgpack:",omitempty"`
}

// kept is what a row keeps of a policy.
func (p RetryPolicy) kept() (backoff, error) {
	if p.ShouldRetry != nil {
		return backoff{}, fmt.Errorf("agent: RetryPolicy.ShouldRetry is a function, which no row can keep")
	}
	_, err := p.withDefaults()
	return backoff{p.Attempts, p.Base, p.Most}, err
}
