package dohost

import (
	"github.com/dohost/dohost/eviction"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Listener is told what a host does: log, metrics and tests are listeners.
type Listener = runtime.Listener

// Tee returns a Listener that tells all of ls.
func Tee(ls ...Listener) Listener { return runtime.Tee(ls...) }

// What a Listener is told.
type (
	// Epoch numbers an incarnation.
	Epoch = objectstore.Epoch
	// Ended describes an incarnation that has ended.
	Ended = runtime.Ended
	// EndedEvent describes an event whose code has returned.
	EndedEvent = runtime.Event
	// AlarmRun describes a run of an alarm handler.
	AlarmRun = runtime.Alarm
	// LongTurn is a turn that was held for more than a second.
	LongTurn = runtime.LongTurn
	// DiskSpace is told when writes begin to be refused for want of space, and when
	// they are taken again.
	DiskSpace = objectstore.DiskSpace
	// Damage describes a part of the store that cannot be read.
	Damage = objectstore.Damage
)

// StoreStats counts what a store has done.
type StoreStats = objectstore.Stats

// Chaos ends incarnations at random, as a pure function of its seed and the place.
type Chaos = eviction.Chaos

// ParseChaos makes a Chaos of the values of the command's chaos flags.
func ParseChaos(evict, at, style string, seed uint64) (Chaos, error) {
	return eviction.ParseChaos(evict, at, style, seed)
}
