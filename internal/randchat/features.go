package randchat

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dohost/dohost/chat"
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
	"github.com/dohost/dohost/ledger"
)

// Features counts the programs for each feature of approvals and tools.
type Features struct {
	w        *Observer
	begun    int // programs
	programs map[string]int
}

// many is the number of programs that show each of the expected features.
const many = 500

var expected = []string{
	"Find answers Done", "Find answers NotDone", "Find answers Unknown", "Find fails", "Idempotent runs again", "Reconcile runs again",
	"a call ends as completed", "a call ends as denied", "a call ends as expired", "a call ends as failed", "a call ends as unknown",
	"a call runs after an approval", "a completion after its time, or after an unknown end", "a completion during the run that hands the call over",
	"an asynchronous call has the result of its completion", "a completion ends a call as completed", "a completion ends a call as failed", "a completion ends a call as unknown",
	"a completion of a call that has ended", "a completion of no call", "a completion of the operator is applied",
	"a decision about a call of a stopped reply", "a decision or a completion close to an expiry",
	"a decision during a run of a call", "a decision of the operator is applied", "a decision of the operator is late",
	"a decision of the operator is stale", "a decision of the program is applied", "a decision of the program is late",
	"a decision of the program is no call", "a decision of the program is not waiting", "a decision of the program is stale",
	"a budget is exhausted before an answer", "a budget is exhausted during an answer",
	"a connection that may only read requests a change", "a model is asked after an approval of a budget", "a refusal withdraws an approval", "a run takes longer than Tool.Timeout", "calls run concurrently",
	"two parties decide about a call", "two parties decide within a second", "two parties decide, before and after an ending",
}

// Missing returns the expected features that did not occur. It returns none for a few programs.
func (f *Features) Missing() (names []string) {
	for _, name := range expected {
		if f.programs[name] == 0 && f.begun >= many {
			names = append(names, name)
		}
	}
	return names
}

// Scenario is [Scenario], and counts the features of its programs.
func (f *Features) Scenario(work Workload) (dohosttest.Scenario, *randtest.Report) {
	w := NewObserver()
	s, report := w.Scenario(work)
	reset := s.Reset
	s.Reset = func() {
		f.count()
		f.w = w
		f.begun++
		reset()
	}
	return s, report
}

// count counts the features of a program.
func (f *Features) count() {
	if f.w == nil { // before the first program
		return
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.programs == nil {
		f.programs = map[string]int{}
	}
	for name := range f.w.features {
		f.programs[name]++
	}
	clear(f.w.features)
}

// String returns a line for each feature, with the number of programs.
func (f *Features) String() string {
	f.count()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.programs)) {
		fmt.Fprintf(&b, "%5d programs: %s\n", f.programs[name], name)
	}
	return b.String()
}

// occurs records that a feature occurs in the program.
func (w *Observer) occurs(feature string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.occursLocked(feature)
}

func (w *Observer) occursLocked(feature string) { w.features[feature] = true }

// endsLocked records the features of a call that has ended.
func (w *Observer) endsLocked(l *callLedger, state chat.CallState) {
	w.occursLocked("a call ends as " + string(state))
	switch {
	case l.runs == 0:
	case l.use.overdue():
		w.occursLocked("a run takes longer than Tool.Timeout")
	case l.use.Do == Refuse:
		w.occursLocked("an error of a tool proves that there was no effect")
	case l.use.Do == Lose || l.use.Do == Reject:
		w.occursLocked("an error of a tool proves nothing")
	case state == chat.CallUnknown && l.kind.policy <= ledger.PolicyAtMostOnce:
		w.occursLocked("an AtMostOnce call is interrupted, with " + strconv.Itoa(l.effects) + " effects")
	}
}
