package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/runtime"
)

// FakeService is the double of an outside system that objects have effects on: a bank, a mail
// server, a model. It records the requests, so that a check can distinguish effects that
// never ran, ran once and ran twice. The zero FakeService takes every request as a new one.
//
// Inside an Await each request is a point: the incarnation may end between its effect and
// its answer (effect). The Await has further points: before the first request
// (await), and after the last answer (awaited).
//
// A FakeService in [Scenario.Services] starts empty in every run. Its methods may be called
// from any goroutine.
type FakeService struct {
	// Idempotent makes a repeated request, with a key that was served before, return the
	// same answer without an effect.
	Idempotent bool
	// Latency is how long the service takes, before the effect and after it.
	Latency time.Duration
	// Fail, if set, is called before the effect of each request and after it: an error is
	// the answer. request counts the requests of that key, from 1. It must be a pure
	// function, so that each run has the same failures.
	Fail func(key string, request int, m FailurePoint) error

	mu       sync.Mutex
	log      *eventLog
	requests map[string]int
	effects  map[string]int
	bytes    int // of requests that repeat an effect
	repeats  int
}

// FailurePoint is the time of a FakeService's failure.
type FailurePoint int

// The failure points.
const (
	FailureBeforeEffect FailurePoint = iota // the request is refused
	FailureAfterEffect                      // it took effect, and the answer is lost
)

// begin resets the service.
func (s *FakeService) begin(log *eventLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = log
	s.clear()
}

// clear removes all requests. The caller holds the lock.
func (s *FakeService) clear() {
	s.requests, s.effects, s.bytes, s.repeats = map[string]int{}, map[string]int{}, 0, 0
}

// Call requests an effect. The key is the idempotency key; payload is the content of the
// request, and counts in the recovery cost if it is sent again. Call it inside an Await,
// with the context that the Await passes to its function.
//
// Errors: the error of Fail; the cause of ctx, after which the effect may have happened, or not.
func (s *FakeService) Call(ctx context.Context, key, payload string) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	n, err := s.countRequest(key)
	if err != nil {
		return err
	}
	s.recordEffect(key, n, payload)
	if err := EffectPoint(ctx); err != nil {
		return err
	}
	if s.Fail != nil {
		if err := s.Fail(key, n, FailureAfterEffect); err != nil {
			s.logf(key, n, "took effect, and its answer was lost: %v", err)
			return err
		}
	}
	return s.wait(ctx)
}

// EffectPoint is the point between an effect outside the process and its answer: a run may end the incarnation or the
// process there. A double of a service calls it after the effect, with the context that the Await passes to its
// function, and returns its error. Outside a run it does nothing.
//
// Errors: the cause of ctx, if the run has ended the incarnation.
func EffectPoint(ctx context.Context) error { return runtime.Visit(ctx, eviction.PlaceEffect) }

// wait waits for the service's latency. A request of an incarnation that has ended does not
// leave.
func (s *FakeService) wait(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.Latency == 0 {
		return nil
	}
	return dohost.Sleep(ctx, s.Latency)
}

// countRequest counts a request, and calls Fail.
func (s *FakeService) countRequest(key string) (n int, err error) {
	s.mu.Lock()
	if s.requests == nil {
		s.requests, s.effects = map[string]int{}, map[string]int{}
	}
	s.requests[key]++
	n = s.requests[key]
	s.mu.Unlock()
	if s.Fail != nil {
		if err = s.Fail(key, n, FailureBeforeEffect); err != nil {
			s.logf(key, n, "was refused: %v", err)
		}
	}
	return n, err
}

// recordEffect records the effect.
func (s *FakeService) recordEffect(key string, n int, payload string) {
	s.mu.Lock()
	if s.effects[key] > 0 {
		s.repeats++
		s.bytes += len(payload)
	}
	if !s.Idempotent || s.effects[key] == 0 {
		s.effects[key]++
	}
	effects := s.effects[key]
	s.mu.Unlock()
	s.logf(key, n, "arrived; effect %d", effects)
}

func (s *FakeService) logf(key string, n int, format string, args ...any) {
	s.mu.Lock()
	log := s.log
	s.mu.Unlock()
	if log != nil {
		log.addText(dohost.ID{}, "service: request %d for %q %s", n, key, fmt.Sprintf(format, args...))
	}
}

// Effects returns how often the effect of that key happened.
func (s *FakeService) Effects(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[key]
}

// Requests returns how many requests of that key arrived.
func (s *FakeService) Requests(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[key]
}

// Keys returns the requested keys, in order.
func (s *FakeService) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.requests))
}

// Total returns the number of effects, of all keys. A bug that repeats a request with
// another key is visible in Total, and neither in RanOnce nor in the recovery cost.
func (s *FakeService) Total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, effects := range s.effects {
		n += effects
	}
	return n
}

// RanOnce returns nil if the effect of that key happened once, otherwise an error that
// distinguishes never from more often.
func (s *FakeService) RanOnce(key string) error {
	switch n := s.Effects(key); n {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("dohosttest: %q never ran", key)
	default:
		return fmt.Errorf("dohosttest: %q ran %d times, want once", key, n)
	}
}

// ErrRefused is an error for [FakeService.Fail] to return.
var ErrRefused = errors.New("dohosttest: the fake service refuses the request")
