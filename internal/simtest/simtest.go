// Package simtest has the project's own workloads as scenarios of dohosttest. Each workload
// uses one feature of objects, and checks at every point of ending that nothing
// acknowledged is lost, nothing is done twice and nothing is torn.
//
// A check compares the state with the answers that clients received. It takes expected
// values such as the sum of the requests from the clients, never from the object.
package simtest

import "github.com/dohost/dohost/dohosttest"

// Named is a workload.
type Named struct {
	Name string
	// New makes the scenario, with a state of its own: two scenarios that New has made may
	// run at the same time.
	New func() dohosttest.Scenario
}

// Scenarios lists the workloads.
func Scenarios() []Named {
	return []Named{
		{"counter", newCounting},
		{"outcomes", newOutcomes},
		{"alarm-loop", newAlarmLoop},
		{"alarm-for-now", newAlarmForNow},
		{"failing-alarms", newFailing},
		{"mutual-calls", newCircle},
		{"collection", newShelving},
		{"transactions", newVaulting},
		{"export", newMoving},
		{"stream", newStreaming},
		{"no-wait", newMetering},
		{"queue", newQueueing},
		{"exclusive", newExclusion},
		{"everything", newTilling},
		{"payment", newPaying},
		{"at-most-once", newAtMostOnce},
		{"rollback", newClaiming},
		{"cached-state", newBoarding},
		{"alarm-changes", newVisiting},
		{"alarm-put-off", newPuttingOff},
		{"cancel", newCancelling},
		{"refusal", newRefusing},
		{"fiber", newStudying},
		{"fiber-resumed", newResuming},
		{"fiber-hook", newFinishing},
		{"announcements", newAnnouncing},
		{"presence", newPresence},
		{"socket-messages", newDictation},
		{"sub-agents", newRaising},
		{"kept-alive", newKeeping},
		{"fiber-cancelled", newDismissing},
		{"shared-state", newSharing},
		{"tail", newTailing},
	}
}

// turns are the places where endings differ in their effect. Storage operations are not
// among them: all endings between two of these places leave the same state.
var turns = []string{
	"construct", "start", "alarm", "handover", "handed", "sync", "durable", "release", "await", "effect", "awaited",
	"resume", "chunk", "settle", "end",
}

// landings are the places between which an agent's stored state changes.
var landings = []string{"handed", "durable", "awaited"}
