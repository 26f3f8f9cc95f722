package policytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/ledger"
)

// newSubject returns a subject whose one call has an outcome.
func newSubject(p ledger.Policy, list ...Outcome) *Subject {
	s := &Subject{Name: `kind "charge"`, Policy: p, Service: &dohosttest.FakeService{}, Calls: 1}
	s.Outcomes = func(context.Context, *dohosttest.Host) ([]Outcome, error) { return list, nil }
	s.reset()
	return s
}

// TestFindThatIsInterruptedDoesNotExcuse has a Find that returns an error: it excuses an unknown outcome only if its incarnation lives.
func TestFindThatIsInterruptedDoesNotExcuse(t *testing.T) {
	fenced, fence := context.WithCancelCause(t.Context())
	fence(fmt.Errorf("chaos: %w", dohost.ErrFenced))
	for _, c := range []struct {
		ctx     context.Context
		excuses bool
	}{{t.Context(), true}, {fenced, false}} {
		s := newSubject(ledger.PolicyReconcile, Outcome{ID: "1", Status: unknown, Text: "lost"})
		s.Find(c.ctx, "1", nil, func(context.Context) (any, ledger.Answer, error) {
			return nil, ledger.AnswerUnknown, errors.New("no answer")
		})
		err := s.check(t.Context(), nil)
		if c.excuses != (err == nil) || err != nil && err.Error() != `kind "charge": declared Reconcile, but the outcome is unknown (lost)` {
			t.Errorf("a Find that excuses (%v): %v", c.excuses, err)
		}
	}
}

func TestOutcomesAreChecked(t *testing.T) {
	for want, list := range map[string][]Outcome{
		"but 0 calls are recorded, want 1": nil,
		"but at rest the call is running":  {{ID: "1", Status: "running"}},
		"but the outcome is unknown":       {{ID: "1", Status: unknown}},
	} {
		err := newSubject(ledger.PolicyIdempotent, list...).check(t.Context(), nil)
		if err == nil || !strings.HasSuffix(err.Error(), "declared Idempotent, "+want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

func TestSiteOf(t *testing.T) {
	if at := SiteOf(TestSiteOf); at != "" { // a function of this package is not of a user
		t.Errorf("the site is %s", at)
	}
	if at := SiteOf((func())(nil)); at != "" {
		t.Errorf("the site of nil is %s", at)
	}
	if at := SiteOf(strings.ToUpper); !strings.HasPrefix(at, "strings.go:") {
		t.Errorf("the site of strings.ToUpper is %q", at)
	}
	if at := SiteOf((&strings.Builder{}).Len); at != "" { // of the wrapper of a method value
		t.Errorf("the site of a method value is %q", at)
	}
}
