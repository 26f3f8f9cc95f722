package eviction

import (
	"fmt"
	"slices"
	"strconv"
)

// Place is a kind of point in the code of the runtime. A policy decides there whether an incarnation ends.
type Place uint8

// The places where an incarnation can end, in the order of its events.
const (
	PlaceConstruct   Place = iota // the constructor begins
	PlaceStart                    // an event begins
	PlaceAlarm                    // an alarm handler begins
	PlaceStorage                  // a storage operation
	PlaceTransaction              // the end of a transaction's function
	PlaceCommit                   // a batch is about to be committed
	PlaceCommitted                // it is committed, and in memory only
	PlaceSync                     // it is on its way to the disk
	PlaceDurable                  // it is on the disk, and nothing has left
	PlaceRelease                  // a result, or a piece of a response, is about to leave
	PlaceAwait                    // inside an Await, the turn given up, before its function
	PlaceEffect                   // inside an Await, something outside has happened
	PlaceAwaited                  // inside an Await, after its function
	PlaceResume                   // the turn is held again
	PlaceChunk                    // a piece of a streamed response was committed
	PlaceOutcome                  // an alarm handler has returned, its outcome is not written
	PlaceEnd                      // an event has ended
)

// The places where no incarnation can end. Something is about to begin there, or a caller has its answer. The host
// ignores the decision of a policy there.
const (
	PlaceSend     = PlaceEnd + 1 + iota // a call is about to enter a queue
	PlaceAnswer                         // a caller has its answer
	PlaceWake                           // an incarnation is about to begin
	PlaceHoldTurn                       // a HoldTurn is about to queue for the turn
	PlaceRecord                         // a record is about to be made
	PlaceDue                            // alarms are about to be checked
	PlaceSweep                          // idle objects and time limits are about to be checked
	PlaceClose                          // a closing host is about to end the other incarnations
	PlaceFail                           // a host whose store has failed is about to end all incarnations
	PlaceSlept                          // a Sleep is over

	// NumPlaces is the number of all places.
	NumPlaces = int(PlaceSlept) + 1
)

var placeNames = [NumPlaces]string{
	"construct", "start", "alarm", "storage", "transaction", "commit", "committed", "sync", "durable", "release",
	"await", "effect", "awaited", "resume", "chunk", "outcome", "end",
	"send", "answer", "wake", "hold-turn", "record", "due", "sweep", "close", "fail", "slept",
}

// String returns the place's name, as in the flags.
func (p Place) String() string {
	if int(p) >= NumPlaces {
		return "place " + strconv.Itoa(int(p))
	}
	return placeNames[p]
}

// MarshalText encodes the place's name: JSON has names, and not a list of places as bytes.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Ends reports whether an incarnation can end at the place.
func (p Place) Ends() bool { return p <= PlaceEnd }

// Places returns the places where an incarnation can end.
func Places() []Place {
	var all []Place
	for p := PlaceConstruct; p.Ends(); p++ {
		all = append(all, p)
	}
	return all
}

// ParsePlace returns the place with a name, if an incarnation can end there.
func ParsePlace(name string) (Place, error) {
	i := slices.Index(placeNames[:], name)
	if i < 0 || !Place(i).Ends() {
		return 0, fmt.Errorf("dohost: chaos place %q: want some of %v", name, Places())
	}
	return Place(i), nil
}
