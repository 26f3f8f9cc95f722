// Package simtest is the project's own workloads as scenarios of dohosttest: each uses
// one part of what an object has, and checks that nothing acknowledged is lost, nothing
// done twice and nothing torn, wherever an incarnation ends.
//
// A check compares what is found with what clients were told. What can be known
// without looking at the object, such as the sum of what was sent, is not read from it.
package simtest

import "github.com/dohost/dohost/dohosttest"

// Named is a workload.
type Named struct {
	Name string
	// New makes the scenario, with a state of its own: of two that New has made, both
	// may run at the same time.
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
		{"circle", newCircle},
		{"collection", newShelving},
		{"transactions", newVaulting},
		{"export", newMoving},
		{"stream", newStreaming},
		{"no-wait", newMetering},
		{"queue", newQueueing},
		{"exclusive", newExclusion},
		{"till", newTilling},
		{"payment", newPaying},
		{"at-most-once", newAtMostOnce},
		{"desk", newClaiming},
		{"board", newBoarding},
		{"visit", newVisiting},
		{"put-off", newPuttingOff},
		{"cancel", newCancelling},
		{"refusal", newRefusing},
		{"fiber", newStudying},
		{"fiber-resumed", newResuming},
		{"fiber-hook", newFinishing},
		{"announcements", newAnnouncing},
		{"presence", newPresence},
		{"dictation", newDictation},
		{"sub-agents", newRaising},
		{"kept-alive", newKeeping},
		{"fiber-cancelled", newDismissing},
		{"shared-state", newSharing},
		{"tail", newTailing},
	}
}

// turns are the places where something is decided. A storage operation is none: no two
// endings between two of these places leave different things behind.
var turns = []string{
	"construct", "start", "alarm", "handover", "handed", "sync", "durable", "release", "await", "effect", "awaited",
	"resume", "chunk", "settle", "end",
}

// landings are the places between which an agent leaves something else behind.
var landings = []string{"handed", "durable", "awaited"}
