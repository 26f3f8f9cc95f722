// Package policytest checks a declared recovery policy by the effects at a service. It is the common part of
// ledger/ledgertest and chat/chattest: they run the calls, and this package ends their incarnations at every point, records
// the calls, and compares them with the service.
package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// Sample, if not zero, bounds the runs with one ending of a Subject without Places: see [dohosttest.Scenario]. TestMain of a kit
// sets it.
var Sample int

// Subject is a kind or a tool with a declared policy. Call and Find may be called from any goroutine.
type Subject struct {
	Name    string // such as: tool "charge"
	Policy  ledger.Policy
	Service dohosttest.Service
	// Site and FindSite are the places of the functions, if they are known before the first run.
	Site, FindSite string
	// Calls is the number of calls that a run makes.
	Calls int
	// Class and Run are those of a scenario.
	Class dohost.Class
	Run   func(ctx context.Context, h *dohosttest.Host) error
	// Outcomes returns the recorded outcomes of all calls, in their order.
	Outcomes func(ctx context.Context, h *dohosttest.Host) ([]Outcome, error)
	// Places and SettleTime are those of a scenario.
	Places     []dohost.Place
	SettleTime time.Duration

	mu             sync.Mutex
	calls          []*call  // of the present run, in the order of their first runs
	contradictions []string // of the present run
	// checked is set after the first check of the present run: the second one does not count again.
	checked bool
	form    byte // of the JSON of a result of the function; 0 if it has not returned one
	count   counters
}

// Outcome is the recorded outcome of a call.
type Outcome struct {
	ID     string
	Status string // completed, failed, unknown, or a status of a call that has not ended
	Text   string // of the error, if there is one
}

// counters count calls of all runs.
type counters struct {
	runs        int
	unknown     int
	falsely     int // unknown without an effect
	effective   int // with an effect
	interrupted int // with an effect before the end of an incarnation
}

// call is the record of a call in the present run.
type call struct {
	id     string
	before map[string]int // effects at the service before the call
	runs   int            // of its function
	// interrupted is set if an incarnation ended after an effect of the call, before the record of its result.
	interrupted bool
	// failed is set if the function returned an error while its incarnation lived.
	failed bool
	// foundUnknown is set if Find did not decide.
	foundUnknown bool
	site         string // of the function
}

// Explore ends the incarnation at every point of the calls. It returns the failures, and a summary; both may be empty if a
// run is replayed.
func (s *Subject) Explore(t *testing.T) (failures []string, summary string) {
	if s.Service == nil {
		return []string{s.Name + ": the service is nil"}, ""
	}
	sc := dohosttest.Scenario{
		Classes: []dohost.Class{s.Class}, Run: s.Run, Check: s.check, Reset: s.reset, Places: s.Places, SettleTime: s.SettleTime,
	}
	if s.Places == nil {
		sc.Sample = Sample
	}
	if fake, ok := s.Service.(*dohosttest.FakeService); ok {
		sc.Services = append(sc.Services, fake) // for the log
	}
	failed, summary := dohosttest.Explore(t, sc)
	for _, f := range failed {
		failures = append(failures, f.Error())
	}
	if summary == "" { // a replay
		return failures, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.count
	switch {
	case len(failures) > 0:
	case n.effective == 0:
		failures = append(failures, s.claim("but the service had no effect in any run", s.Site))
	case n.interrupted == 0:
		failures = append(failures, s.claim("but no run ended a call between its effect and the record of its result", s.Site))
	}
	return failures, fmt.Sprintf("%s, %v: in %d runs %d outcomes were unknown, %d of them without an effect (false unknowns)\n%s",
		s.Name, s.Policy, n.runs, n.unknown, n.falsely, summary)
}

// reset begins a run.
func (s *Subject) reset() {
	s.Service.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.contradictions, s.checked = nil, nil, false
	s.count.runs++
}

// effects returns the effects by key.
func (s *Subject) effects() map[string]int {
	n := map[string]int{}
	for _, key := range s.Service.Keys() {
		n[key] = s.Service.Effects(key)
	}
	return n
}

// since returns the effects after an earlier count, by key and in total.
func since(before, now map[string]int) (by map[string]int, total int) {
	by = map[string]int{}
	for key, n := range now {
		if d := n - before[key]; d != 0 {
			by[key] = d
			total += d
		}
	}
	return by, total
}

// begin returns the record of a call, with the lock held.
func (s *Subject) begin(id string) *call {
	for _, c := range s.calls {
		if c.id == id {
			return c
		}
	}
	c := &call{id: id, before: s.effects(), site: s.Site}
	s.calls = append(s.calls, c)
	return c
}

// contradict records a contradiction to the declaration, once in a run. The caller holds the lock.
func (s *Subject) contradict(text, site string) {
	if text = s.claim(text, site); !slices.Contains(s.contradictions, text) {
		s.contradictions = append(s.contradictions, text)
	}
}

func (s *Subject) claim(text, site string) string {
	text = fmt.Sprintf("%s: declared %v, %s", s.Name, s.Policy, text)
	if site != "" {
		text += ": " + site
	}
	return text
}

// ended reports whether the incarnation of a call has ended.
func ended(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, dohost.ErrFenced) || errors.Is(cause, dohost.ErrClosed) || errors.Is(err, dohost.ErrFenced)
}

// Call records a run of the function of a call. proves reports whether an error counts as a proof that there was no effect.
func (s *Subject) Call(ctx context.Context, id string, proves func(error) bool, f func(ctx context.Context) (any, error)) {
	s.mu.Lock()
	c := s.begin(id)
	c.runs++
	before := s.effects()
	if _, n := since(c.before, before); n > 0 {
		c.interrupted = true
	}
	s.mu.Unlock()
	place := &site{}
	result, err := place.call(ctx, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := place.text(); at != "" {
		s.Site, c.site = at, at
	}
	if err == nil {
		if form, err := formOf(result); err == nil {
			s.form = form
		}
		return
	}
	c.failed = c.failed || !ended(ctx, err)
	if _, n := since(before, s.effects()); n > 0 && proves(err) {
		s.contradict(fmt.Sprintf("but an error with the mark NoEffect had %s (%q)", count(n), err), c.site)
	}
}

// Find records an answer of Find. decode decodes the JSON of a result; it may be nil.
func (s *Subject) Find(ctx context.Context, id string, decode func([]byte) error, f func(ctx context.Context) (any, ledger.Answer, error)) {
	s.mu.Lock()
	c := s.begin(id)
	s.mu.Unlock()
	place := &site{}
	var answer ledger.Answer
	result, err := place.call(ctx, func(ctx context.Context) (result any, err error) {
		result, answer, err = f(ctx)
		return result, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended(ctx, err) { // the answer does not count
		return
	}
	at := cmp.Or(place.text(), s.FindSite, s.Site)
	_, n := since(c.before, s.effects())
	c.interrupted = c.interrupted || n > 0
	switch {
	case err != nil, answer == ledger.AnswerUnknown:
		c.foundUnknown = true
	case answer == ledger.AnswerNotDone && n > 0:
		s.contradict(fmt.Sprintf("but Find returned NotDone, and the service has %s of the call", count(n)), at)
	case answer == ledger.AnswerDone && n == 0:
		s.contradict("but Find returned Done, and the service has no effect of the call", at)
	}
	if err == nil && answer == ledger.AnswerDone {
		if why := s.misfit(result, decode); why != "" {
			s.contradict("but Find returned Done without a usable result: "+why, at)
			c.foundUnknown = true // the ledger treats it as the answer Unknown
		}
	}
}

// check compares a run with the service, after recovery.
func (s *Subject) check(ctx context.Context, h *dohosttest.Host) error {
	outcomes, err := s.Outcomes(ctx, h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(outcomes) != s.Calls {
		s.contradict(fmt.Sprintf("but %d calls are recorded, want %d", len(outcomes), s.Calls), s.Site)
	}
	for _, o := range outcomes {
		s.checkOutcome(o)
	}
	s.checked = true
	var errs []error
	for _, text := range s.contradictions {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}
