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
	"github.com/dohost/dohost/runtime"
)

// Service is the double of something outside that objects have an effect on: a bank, a
// mail server, a model. It remembers what was asked of it, so that a check can tell what
// never ran, ran once and ran twice. The zero Service takes every request as a new one.
//
// Inside an Await each request is a point: the incarnation may end between its effect and
// its answer (effect). Before the first request, and after the last answer, are those of
// the Await (await, awaited).
//
// A Service that is listed in [Scenario.Services] begins anew with every run. Its
// methods may be called from any goroutine.
type Service struct {
	// Idempotent says that a request with a key that was served before has no effect,
	// and the same answer.
	Idempotent bool
	// Latency is how long the service takes, before the effect and after it.
	Latency time.Duration
	// Fail, if set, is asked before the effect of each request and after it: an error is
	// the answer. request counts the requests of that key, from 1. It must be a pure
	// function, so that each run meets the same failures.
	Fail func(key string, request int, m Moment) error

	mu       sync.Mutex
	log      *journal
	requests map[string]int
	effects  map[string]int
	bytes    int // of requests that repeat an effect
	repeats  int
}

// Moment is when a Service fails.
type Moment int

// The moments.
const (
	BeforeEffect Moment = iota // the request is refused
	AfterEffect                // it took effect, and the answer is lost
)

// begin forgets everything.
func (s *Service) begin(log *journal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.requests, s.effects, s.bytes, s.repeats = log, map[string]int{}, map[string]int{}, 0, 0
}

// Call asks for an effect. The key is the idempotency key; payload is what a request
// would carry, and counts in the recovery bill if it is sent again. Call it inside an
// Await, with the context that this passes to its function.
//
// Errors: what Fail returns, and why ctx has ended: then the effect may have happened,
// or not.
func (s *Service) Call(ctx context.Context, key, payload string) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	n, err := s.arrive(key)
	if err != nil {
		return err
	}
	s.happen(key, n, payload)
	if err := runtime.Visit(ctx, runtime.PlaceEffect); err != nil {
		return err
	}
	if s.Fail != nil {
		if err := s.Fail(key, n, AfterEffect); err != nil {
			s.note(key, n, "took effect, and its answer was lost: %v", err)
			return err
		}
	}
	return s.wait(ctx)
}

// wait takes the service's time. A request of an incarnation that has ended does not
// leave.
func (s *Service) wait(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.Latency == 0 {
		return nil
	}
	timer := time.NewTimer(s.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arrive counts a request, which may be refused.
func (s *Service) arrive(key string) (n int, err error) {
	s.mu.Lock()
	if s.requests == nil {
		s.requests, s.effects = map[string]int{}, map[string]int{}
	}
	s.requests[key]++
	n = s.requests[key]
	s.mu.Unlock()
	if s.Fail != nil {
		if err = s.Fail(key, n, BeforeEffect); err != nil {
			s.note(key, n, "was refused: %v", err)
		}
	}
	return n, err
}

// happen is the effect.
func (s *Service) happen(key string, n int, payload string) {
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
	s.note(key, n, "arrived; effect %d", effects)
}

func (s *Service) note(key string, n int, format string, args ...any) {
	s.mu.Lock()
	log := s.log
	s.mu.Unlock()
	if log != nil {
		log.note(dohost.ID{}, "service: request %d for %q %s", n, key, fmt.Sprintf(format, args...))
	}
}

// Effects says how often the effect of that key happened.
func (s *Service) Effects(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects[key]
}

// Requests says how many requests of that key arrived.
func (s *Service) Requests(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[key]
}

// Keys returns the keys that were asked for, in order.
func (s *Service) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.requests))
}

// Total says how many effects happened, of all keys. A bug that asks again with another
// key shows here, and neither in RanOnce nor in the recovery bill.
func (s *Service) Total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, effects := range s.effects {
		n += effects
	}
	return n
}

// RanOnce is nil if the effect of that key happened once, else an error that says
// whether it never ran or ran more often.
func (s *Service) RanOnce(key string) error {
	switch n := s.Effects(key); n {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("%q never ran", key)
	default:
		return fmt.Errorf("%q ran %d times, want once", key, n)
	}
}

// Bill is what endings have cost: by how much runs in which something was ended did more
// than the untouched one. What a run did less counts against that.
type Bill struct {
	Effects int           // requests to services with a key whose effect had happened
	Bytes   int           // that those carried
	Events  int           // events that started more often than in an untouched run
	Lives   int           // incarnations more
	Time    time.Duration // virtual time more, until the run was at rest
}

func (b *Bill) add(c Bill) {
	b.Effects += c.Effects
	b.Bytes += c.Bytes
	b.Events += c.Events
	b.Lives += c.Lives
	b.Time += c.Time
}

// String is the bill in a line.
func (b Bill) String() string {
	return fmt.Sprintf("%s repeated (%d bytes), %s redelivered, %s more, %v",
		count(b.Effects, "effect"), b.Bytes, count(b.Events, "event"), count(b.Lives, "incarnation"), b.Time.Round(time.Millisecond))
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 || n == -1 {
		return fmt.Sprintf("%d %s", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// ErrRefused is an error for [Service.Fail] to return.
var ErrRefused = errors.New("the service refuses")
