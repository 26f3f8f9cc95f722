package chat

import (
	"testing"

	"github.com/dohost/dohost"
)

// TestErrorsOfMissingObjects has errors of calls of an object that does not exist. A post may have run before: its task may exist then. A node of an
// older version may be replaced.
func TestErrorsOfMissingObjects(t *testing.T) {
	for _, c := range []struct {
		name string
		err  *dohost.Error
		want bool
	}{
		{"no class", &dohost.Error{Err: dohost.ErrNotFound, Outcome: dohost.OutcomeNotRun}, true},
		{"no procedure on another node", &dohost.Error{Err: dohost.ErrNotFound, Outcome: dohost.OutcomeNotRun, Retryable: true}, false},
		{"no class after a lost answer", &dohost.Error{Err: dohost.ErrNotFound, Outcome: dohost.OutcomeUnknown}, false},
		{"an error of the function", &dohost.Error{Err: dohost.ErrNotFound, Outcome: dohost.OutcomeRan}, false},
		{"overloaded", &dohost.Error{Err: dohost.ErrOverloaded, Outcome: dohost.OutcomeNotRun}, false},
	} {
		if got := [3]bool{finalAskError(c.err), finalTaskError(c.err), refusedTask(c.err)}; got != [3]bool{c.want, c.want, c.want} {
			t.Errorf("%s: final for a request, final for a task, no task: %v, want %t", c.name, got, c.want)
		}
	}
}
