package policytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dohost/dohost/ledger"
)

// The statuses of calls that have ended. Package ledger and package chat use the same words.
const (
	completed = "completed"
	failed    = "failed"
	unknown   = "unknown"
)

// checkOutcome compares the outcome of a call with its effects. The caller holds the lock.
func (s *Subject) checkOutcome(o Outcome) {
	c := s.begin(o.ID) // a call whose function has not run has no record yet
	by, n := since(c.before, s.effectsUntilNext(c))
	switch {
	case n > 1:
		s.contradict(tooMany(by, n, c.runs), c.site)
	case o.Status == completed && n == 0:
		s.contradict("but the call has a result, and the service has no effect of it", c.site)
	case o.Status == unknown && !s.mayBeUnknown(c):
		s.contradict("but the outcome is unknown"+textOf(o), c.site)
	case o.Status == failed && !c.failed:
		s.contradict("but the call has failed, and its function returned no error"+textOf(o), c.site)
	case o.Status != completed && o.Status != unknown && o.Status != failed:
		s.contradict(fmt.Sprintf("but at rest the call is %s", o.Status), c.site)
	}
	if s.checked {
		return
	}
	if n > 0 {
		s.count.effective++
	}
	if o.Status == unknown {
		s.count.unknown++
		if n == 0 {
			s.count.falsely++
		}
	}
	if c.interrupted || o.Status == unknown && n > 0 {
		s.count.interrupted++
	}
}

// mayBeUnknown reports whether the policy allows an unknown outcome of a call.
func (s *Subject) mayBeUnknown(c *call) bool {
	switch s.Policy {
	case ledger.PolicyIdempotent:
		return c.failed
	case ledger.PolicyReconcile:
		return c.failed || c.foundUnknown
	}
	return true
}

// effectsUntilNext returns the effects at the service when the next call began, or now.
func (s *Subject) effectsUntilNext(c *call) map[string]int {
	if i := slices.Index(s.calls, c); i+1 < len(s.calls) {
		return s.calls[i+1].before
	}
	return s.effects()
}

// tooMany describes more than one effect of a call.
func tooMany(by map[string]int, n, runs int) string {
	keys := slices.Sorted(maps.Keys(by))
	for _, key := range keys {
		if by[key] > 1 {
			return fmt.Sprintf("but the service has %s for one key", count(by[key]))
		}
	}
	text := fmt.Sprintf("but the service has %s of one call, with the keys %q", count(n), keys)
	if runs > 1 {
		text += ": each run sends another key"
	}
	return text
}

// count formats a number of effects.
func count(n int) string {
	if n == 1 {
		return "1 effect"
	}
	return fmt.Sprintf("%d effects", n)
}

func textOf(o Outcome) string {
	if o.Text == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.TrimSpace(o.Text))
}

// formOf returns the first character of the JSON of a result, with one for all numbers and one for both truth values.
func formOf(result any) (byte, error) {
	data, err := json.Marshal(result)
	if err != nil {
		return 0, err
	}
	switch c := data[0]; {
	case c == '-' || c >= '0' && c <= '9':
		return '0', nil
	case c == 'f':
		return 't', nil
	default:
		return c, nil
	}
}

// forms name the forms of formOf.
var forms = map[byte]string{'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "a truth value", 'n': "null"}

// misfit returns the reason why a result of Find cannot replace one of the function; empty if it can.
func (s *Subject) misfit(result any, decode func([]byte) error) string {
	form, err := formOf(result)
	if err != nil {
		return err.Error()
	}
	if decode != nil {
		data, err := json.Marshal(result)
		if err == nil {
			err = decode(data)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	if s.form == 0 || form == s.form || form == 'n' && s.form == '[' || form == '[' && s.form == 'n' { // a nil slice is null
		return ""
	}
	return fmt.Sprintf("it is %s, and the function returns %s", forms[form], forms[s.form])
}
