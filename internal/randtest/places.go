package randtest

import "github.com/dohost/dohost"

// Places returns the places where endings differ in their effect on programs of agents. Storage operations are not among them.
func Places() []dohost.Place {
	return []dohost.Place{
		dohost.PlaceConstruct, dohost.PlaceStart, dohost.PlaceAlarm, dohost.PlaceTransaction, dohost.PlaceCommit, dohost.PlaceCommitted,
		dohost.PlaceSync, dohost.PlaceDurable, dohost.PlaceRelease, dohost.PlaceAwait, dohost.PlaceEffect, dohost.PlaceAwaited, dohost.PlaceResume,
		dohost.PlaceOutcome, dohost.PlaceEnd,
	}
}
