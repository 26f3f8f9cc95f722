package dohost

import (
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Listener is notified of a host's actions: logs, metrics and tests are listeners.
type Listener = runtime.Listener

// Tee returns a Listener that notifies all of ls.
func Tee(ls ...Listener) Listener { return runtime.Tee(ls...) }

// The arguments of a Listener.
type (
	// Epoch numbers an incarnation.
	Epoch = objectstore.Epoch
	// Ended describes an incarnation that has ended.
	Ended = runtime.Ended
	// EndedEvent describes an event after its code has returned.
	EndedEvent = runtime.Event
	// AlarmRun describes a run of an alarm handler.
	AlarmRun = runtime.Alarm
	// ParkedAlarm is an alarm that the host no longer delivers, until its object sets an alarm
	// or an operator revives the parked one.
	ParkedAlarm = runtime.ParkedAlarm
	// ParkReason is the reason for parking an alarm.
	ParkReason = objectstore.ParkReason
	// LongTurn is a turn that was held for more than a second.
	LongTurn = runtime.LongTurn
	// DiskSpace reports that the store refuses writes for lack of space, or accepts them again.
	DiskSpace = objectstore.DiskSpace
	// Damage describes an unreadable part of the store.
	Damage = objectstore.Damage
	// DamageError is the error of a read that needs a damaged block: [ErrDamaged].
	DamageError = objectstore.DamageError
)

// The reasons for parking an alarm.
const (
	ParkedFailed      = objectstore.ParkedFailed      // seven runs in a row failed
	ParkedConstructor = objectstore.ParkedConstructor // seven runs in a row failed, the last one in the constructor
	ParkedDeaths      = objectstore.ParkedDeaths      // six processes ended while the handler ran alone
	ParkedNoHandler   = objectstore.ParkedNoHandler   // the class has no OnAlarm any more
)

// StoreStats counts the work of a store.
type StoreStats = objectstore.Stats

// Chaos ends incarnations at random, as a pure function of its seed and the place.
type Chaos = eviction.Chaos

// ParseChaos makes a [Chaos] from the values of the command's chaos flags.
func ParseChaos(evict, at, mode string, seed uint64) (Chaos, error) {
	return eviction.ParseChaos(evict, at, mode, seed)
}

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
