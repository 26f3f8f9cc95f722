package runtime

import (
	"fmt"
	"slices"

	"github.com/dohost/dohost/internal/invariants"
)

// objectState is the state of an object's table entry. Each line of the diagram is a path; together they have all edges:
//
//	cold ── work waits ──▶ starting ── an event waits ──▶ live ── fenced ──▶ ending ── end reported ──▶ cold
//	cold ── work waits ──▶ starting ── no event is left ──▶ cold
//	cold ── Import ──▶ importing ── rows imported ──▶ cold
//	cold ── ReviveAlarm ──▶ reviving ── slot committed ──▶ cold
//	cold ── at rest ──▶ removed
//
// Work is a queued event, or a deferred write: of a slot, or of all of the object's state. The state changes in transitionLocked only, under object.mu:
//
//	state      ended by                        which does this before, without object.mu
//	cold       any goroutine
//	starting   the runner                      makes deferred writes, charges the alarm, refuses events
//	live       the goroutine that fences it
//	ending     the same goroutine              drops the writes of a crash, reports the end, answers callers
//	importing  the goroutine of Host.Import    writes the object's rows
//	reviving   that of Host.ReviveAlarm        writes the alarm slot
//	removed    no goroutine
//
// The states starting, ending, importing and reviving are claims: one goroutine may use object.rng without object.mu,
// and no incarnation begins. Work that arrives waits for the end of the claim; the goroutine that ends it requests a
// runner in the same critical section if work waits. In the state live an event enters the turn queue of the
// incarnation. The incarnation is set in that state and in no other. Its constructor runs in that state, as an event.
//
// These fields of an object are no part of its state, because each changes independently of it:
//
//   - toSweep and filed: membership in the sweeper's list and in its wheel. An object may be in both, and the wheel may
//     have entries of removed objects.
//   - prompt: how the last event was answered, a hint for callers.
//   - incarnation.dead: it outlives the state live, for code that still runs in the incarnation.
type objectState uint8

const (
	objectCold      objectState = iota // no incarnation, and no goroutine has a claim
	objectStarting                     // a runner is between incarnations
	objectLive                         // it has an incarnation
	objectEnding                       // its incarnation has ended, and the end is being reported
	objectImporting                    // Import has claimed it
	objectReviving                     // ReviveAlarm has claimed it
	objectRemoved                      // no longer in the table
)

// objectEdges has the states that may follow each state.
var objectEdges = [...][]objectState{
	objectCold:      {objectStarting, objectImporting, objectReviving, objectRemoved},
	objectStarting:  {objectLive, objectCold},
	objectLive:      {objectEnding},
	objectEnding:    {objectCold},
	objectImporting: {objectCold},
	objectReviving:  {objectCold},
	objectRemoved:   {},
}

// String returns the name of the state in the diagram.
func (s objectState) String() string {
	return [...]string{"cold", "starting", "live", "ending", "importing", "reviving", "removed"}[s]
}

// transitionLocked changes the object's state. The caller sets or clears the incarnation first. In builds that check
// invariants it panics if the table has no such edge.
func (o *object) transitionLocked(to objectState) {
	invariants.Held(&o.mu)
	if invariants.Enabled {
		if !slices.Contains(objectEdges[o.state], to) {
			panic(fmt.Sprintf("runtime: no transition of %v from %v to %v", o.id(), o.state, to))
		}
		if (to == objectLive) != (o.incarnation != nil) {
			panic(fmt.Sprintf("runtime: %v is %v with incarnation %p", o.id(), to, o.incarnation))
		}
	}
	o.state = to
}

// endClaim ends a claim other than that of a runner, and starts a runner if the object has work.
func (o *object) endClaim() {
	o.mu.Lock()
	o.transitionLocked(objectCold)
	o.releaseLocked(o.wakeLocked())
}

// wakeLocked requests a runner between incarnations, if there is work for it.
func (o *object) wakeLocked() runnerRequest {
	invariants.Held(&o.mu)
	if o.state != objectCold || (o.waiting.head == nil && o.deferredSlots == nil) {
		return runnerRequest{}
	}
	o.transitionLocked(objectStarting)
	return runnerRequest{wanted: true}
}

// isIdleLocked reports whether the object has nothing to do and nothing undurable.
func (o *object) isIdleLocked() bool {
	invariants.Held(&o.mu)
	idle := o.state == objectCold || o.state == objectLive && (o.incarnation.activity == nil || o.incarnation.queue.holder == nil)
	return idle && o.count == 0 && o.deferredSlots == nil && (o.rng == nil || o.rng.Clean())
}
