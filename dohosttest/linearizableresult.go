package dohosttest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dohost/dohost/eviction"
)

// linearizableResult is the result of a Linearizable.
type linearizableResult struct {
	x        *workload
	runs     int
	outcomes [notRun + 1]int // of calls
	endings  [eviction.EndTakeOver + 1]int
	overlaps int
	took     time.Duration

	first   any  // answer
	several bool // answers differ

	err  error
	bad  *history // nil if the workload is bad as a whole
	note string
}

// search is Linearizable without output.
func (x *workload) search(t *testing.T) *linearizableResult {
	v := &linearizableResult{x: x}
	begun := time.Now()
	defer func() { v.took = time.Since(begun) }()
	for i := range uint64(x.runs) {
		h := x.try(t, x.fullHistory(x.seed+i))
		v.add(h)
		if i == 0 && h.err == nil {
			if v.err = x.pure(h); v.err != nil {
				return v
			}
		}
		if v.err = h.verify(); v.err != nil {
			v.shrinkFailure(t, h)
			return v
		}
		if i > 0 {
			continue
		}
		again := x.try(t, h.sub)
		if v.err = cmp.Or(again.err, differAt(h, again)); v.err != nil {
			v.bad = again
			return v
		}
	}
	v.err = v.vacuous()
	return v
}

// shrinkFailure searches for the shortest history that fails like h.
func (v *linearizableResult) shrinkFailure(t *testing.T, h *history) {
	v.bad = h
	if !errors.Is(v.err, errNoOrder) {
		return
	}
	try := func(p subHistory) *history { return v.x.try(t, p) }
	again := try(h.sub)
	if err := cmp.Or(again.err, differAt(h, again)); err != nil {
		v.note = fmt.Sprintf("not shortened, and it may not be reproducible: %v", err)
		return
	}
	v.bad = shrink(cmp.Or(v.x.searchSmall(try), h), try)
}

// add counts the calls and endings of a history.
func (v *linearizableResult) add(h *history) {
	v.runs++
	v.overlaps += h.overlaps()
	for _, s := range h.run.endings {
		v.endings[s.Ending]++
	}
	for _, c := range h.calls {
		v.outcomes[c.outcome]++
		if c.outcome != answered {
			continue
		}
		if v.outcomes[answered] == 1 {
			v.first = c.out
		}
		v.several = v.several || !reflect.DeepEqual(v.first, c.out)
	}
}

// vacuous returns the reason why the workload would pass for any behaviour of its objects.
func (v *linearizableResult) vacuous() error {
	const so = "it would pass by accident"
	ended := 0
	for _, n := range v.endings {
		ended += n
	}
	switch {
	case ended == 0:
		return fmt.Errorf("none of %d runs was interrupted: %s; use more Calls or Runs, or a higher Chance", v.runs, so)
	case v.overlaps == 0 && v.x.clients > 1:
		return fmt.Errorf("no two calls of one object overlapped in %d runs: %s; use more Clients or Calls, or fewer objects", v.runs, so)
	case !v.several:
		return fmt.Errorf("every answer was %v in %d runs: %s; add calls that read", v.first, v.runs, so)
	}
	return nil
}

// summary formats the result as a line.
func (v *linearizableResult) summary() string {
	var by []string
	for _, ending := range allEndings {
		if n := v.endings[ending]; n > 0 {
			by = append(by, fmt.Sprintf("%d %v", n, ending))
		}
	}
	return fmt.Sprintf("%d histories: %d calls answered, %d with unknown outcome, %d that did not run; %d overlaps; interruptions: %s; %v",
		v.runs, v.outcomes[answered], v.outcomes[unknown], v.outcomes[notRun], v.overlaps, strings.Join(by, ", "), v.took.Round(time.Millisecond))
}

// replay makes one history, from a failure's replay line.
func (x *workload) replay(t *testing.T, text string) {
	t.Helper()
	p, err := x.parseSubHistory(text)
	if err != nil {
		t.Fatalf("-dohosttest.replay: %v", err)
	}
	h := x.try(t, p)
	v := &linearizableResult{x: x, bad: h, err: h.verify()}
	v.add(h)
	if v.err != nil {
		t.Error(v.text(t.Name(), t.ArtifactDir()))
	}
	t.Log(v.summary())
}
