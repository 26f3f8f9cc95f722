package dohost

import (
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Listener is notified of a host's actions: logs, metrics and tests are listeners.
type Listener = runtime.Listener

// Tee returns a Listener that notifies all of ls.
func Tee(ls ...Listener) Listener { return runtime.Tee(ls...) }

// The arguments of a Listener.
type (
	// Ended describes an incarnation that has ended.
	Ended = runtime.Ended
	// EndedEvent describes an event after its code has returned.
	EndedEvent = runtime.Event
	// AlarmRun describes a run of an alarm handler.
	AlarmRun = runtime.Alarm
	// LongTurn is a turn that was held for more than a second.
	LongTurn = runtime.LongTurn
	// DiskSpace reports that the store refuses writes for lack of space, or accepts them again.
	DiskSpace = objectstore.DiskSpace
)
