package agent

import (
	"errors"
	"time"

	"github.com/dohost/dohost"
)

// storedRetry is the stored form of a [dohost.RetryPolicy].
type storedRetry struct {
	Attempts int           `msgpack:",omitempty"`
	Base     time.Duration `msgpack:",omitempty"`
	Most     time.Duration `msgpack:",omitempty"`
	Elapsed  time.Duration `msgpack:",omitempty"`
}

// storedPolicy returns the stored form of a policy.
func storedPolicy(p dohost.RetryPolicy) (storedRetry, error) {
	if p.ShouldRetry != nil {
		return storedRetry{}, errors.New("agent: RetryPolicy.ShouldRetry is a function, which cannot be stored: want nil")
	}
	return storedRetry{p.MaxAttempts, p.BaseDelay, p.MaxDelay, p.MaxElapsed}, nil
}

// policy returns the stored policy with a ShouldRetry function.
func (b storedRetry) policy(shouldRetry func(error, int) bool) *dohost.RetryPolicy {
	return &dohost.RetryPolicy{
		MaxAttempts: b.Attempts, BaseDelay: b.Base, MaxDelay: b.Most, MaxElapsed: b.Elapsed, ShouldRetry: shouldRetry,
	}
}
