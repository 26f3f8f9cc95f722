package runtime

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dohost/dohost/internal/invariants"
	"github.com/dohost/dohost/internal/lifecycletest"
	"github.com/dohost/dohost/objectstore"
)

// TestObjectStatesAllowTheDrawnTransitions tries each pair of states: transitionLocked accepts those in the diagram,
// and panics for all others in builds that check invariants.
func TestObjectStatesAllowTheDrawnTransitions(t *testing.T) {
	drawn := lifecycletest.Drawn(t, "objectstate.go")
	for from := range objectState(len(objectEdges)) {
		for to := range objectState(len(objectEdges)) {
			allowed := drawn[lifecycletest.Transition{From: from.String(), To: to.String()}]
			delete(drawn, lifecycletest.Transition{From: from.String(), To: to.String()})
			if slices.Contains(objectEdges[from], to) != allowed {
				t.Errorf("%v to %v: in the diagram %t, in the table %t", from, to, allowed, !allowed)
			}
			for _, matches := range []bool{true, false} {
				err := tryTransition(from, to, (to == objectLive) == matches)
				switch refuse := invariants.Enabled && !(allowed && matches); {
				case refuse && err == nil:
					t.Errorf("%v to %v, with the incarnation of that state %t, was accepted", from, to, matches)
				case !refuse && err != nil:
					t.Errorf("%v to %v, with the incarnation of that state %t: %v", from, to, matches, err)
				}
			}
		}
	}
	if len(drawn) > 0 {
		t.Errorf("the diagram has transitions of other states: %v", drawn)
	}
}

// tryTransition makes a transition of a new object, with an incarnation or without, and returns the value of its panic.
func tryTransition(from, to objectState, withIncarnation bool) (err any) {
	defer func() { err = recover() }()
	o := &object{class: &class{}, name: "a", state: from}
	if withIncarnation {
		o.incarnation = &o.first
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.transitionLocked(to)
	if o.state != to {
		panic("the state did not change")
	}
	return nil
}

// TestSweeperDropsAnObjectRemovedByAnImport checks an object that an import evicted, and removed, between the check of
// its idle time and the end of that check.
func TestSweeperDropsAnObjectRemovedByAnImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, objectstore.NewMemFS(), Options{})
		if _, err := add(t.Context(), h, "a", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * sweepEvery) // the sweeper has found it at rest
		o := h.lookup(id("a"))
		if !h.evictIdle(o, o.incarnation, ReasonEvicted) || o.state != objectRemoved {
			t.Fatalf("the object is %v", o.state)
		}
		o.mu.Lock()
		o.releaseLocked(runnerRequest{}) // as the last line of idle
		time.Sleep(3 * sweepEvery)
		synctest.Wait()
		if o.toSweep || len(h.sweeper.pending) > 0 || o.state != objectRemoved {
			t.Errorf("to sweep %t, %d objects to check, the object is %v", o.toSweep, len(h.sweeper.pending), o.state)
		}
	})
}
