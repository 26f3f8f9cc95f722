// Package simtest has the project's own workloads as scenarios of dohosttest. Each workload
// uses one feature of objects, and checks at every point of ending that nothing
// acknowledged is lost, nothing is done twice and nothing is torn.
//
// A check compares the state with the answers that clients received. It takes expected
// values such as the sum of the requests from the clients, never from the object.
package simtest

import (
	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// Workload is a workload.
type Workload struct {
	Name string
	// New makes the scenario, with a state of its own: two scenarios that New has made may
	// run at the same time.
	New func() dohosttest.Scenario
}

// Scenarios lists the workloads.
func Scenarios() []Workload {
	return []Workload{
		{"counter", newCounter},
		{"outcomes", newOutcomes},
		{"alarm-loop", newAlarmLoop},
		{"alarm-for-now", newAlarmForNow},
		{"failing-alarms", newFailingAlarms},
		{"mutual-calls", newMutualCalls},
		{"collection", newCollection},
		{"transactions", newTransactions},
		{"export", newExport},
		{"stream", newStream},
		{"no-wait", newNoWait},
		{"queue", newQueue},
		{"exclusive", newExclusive},
		{"everything", newEverything},
		{"payment", newPayment},
		{"at-most-once", newAtMostOnce},
		{"rollback", newRollback},
		{"cached-state", newCachedState},
		{"alarm-changes", newAlarmChanges},
		{"alarm-put-off", newAlarmPutOff},
		{"cancel", newCancel},
		{"refusal", newRefusal},
		{"fiber", newFiber},
		{"fiber-resumed", newFiberResumed},
		{"fiber-hook", newFiberHook},
		{"announcements", newAnnouncements},
		{"presence", newPresence},
		{"socket-messages", newSocketMessages},
		{"sub-agents", newSubAgents},
		{"kept-alive", newKeptAlive},
		{"fiber-cancelled", newFiberCancelled},
		{"shared-state", newSharedState},
		{"tail", newTail},
	}
}

// objectPlaces are the places where endings differ in their effect. Storage operations are not
// among them: all endings between two of these places leave the same state.
var objectPlaces = []dohost.Place{
	dohost.PlaceConstruct, dohost.PlaceStart, dohost.PlaceAlarm, dohost.PlaceCommit,
	dohost.PlaceCommitted, dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceRelease,
	dohost.PlaceAwait, dohost.PlaceEffect, dohost.PlaceAwaited, dohost.PlaceResume, dohost.PlaceChunk, dohost.PlaceOutcome, dohost.PlaceEnd,
}

// agentPlaces are the places between which an agent's stored state changes.
var agentPlaces = []dohost.Place{dohost.PlaceCommitted, dohost.PlaceDurable, dohost.PlaceAwaited}
