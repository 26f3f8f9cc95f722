package dohost

import "github.com/dohost/dohost/eviction"

// Place is a kind of point in the host's code where a [Chaos] can end an incarnation. Its String is its name.
type Place = eviction.Place

// The places, in the order of an event.
const (
	PlaceConstruct   = eviction.PlaceConstruct   // the constructor begins
	PlaceStart       = eviction.PlaceStart       // an event begins
	PlaceAlarm       = eviction.PlaceAlarm       // an alarm handler begins
	PlaceStorage     = eviction.PlaceStorage     // a storage operation
	PlaceTransaction = eviction.PlaceTransaction // the end of a transaction's function
	PlaceCommit      = eviction.PlaceCommit      // a batch is about to be committed
	PlaceCommitted   = eviction.PlaceCommitted   // it is committed, and in memory only
	PlaceSync        = eviction.PlaceSync        // it is on its way to the disk
	PlaceDurable     = eviction.PlaceDurable     // it is on the disk, and nothing has left
	PlaceRelease     = eviction.PlaceRelease     // a result, or a piece of a response, is about to leave
	PlaceAwait       = eviction.PlaceAwait       // inside an Await, the turn given up, before its function
	PlaceEffect      = eviction.PlaceEffect      // inside an Await, something outside has happened
	PlaceAwaited     = eviction.PlaceAwaited     // inside an Await, after its function
	PlaceResume      = eviction.PlaceResume      // the turn is held again
	PlaceChunk       = eviction.PlaceChunk       // a piece of a streamed response was committed
	PlaceOutcome     = eviction.PlaceOutcome     // an alarm handler has returned, its outcome is not written
	PlaceEnd         = eviction.PlaceEnd         // an event has ended
)

// Places returns all places where a [Chaos] can end an incarnation, in the order of an event.
func Places() []Place { return eviction.Places() }

// ParsePlace returns the place with a name, as in the command's chaos flags. It returns an error, which lists the names,
// if no incarnation can end there.
func ParsePlace(name string) (Place, error) { return eviction.ParsePlace(name) }
