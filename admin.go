package dohost

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/dohost/dohost/internal/socket"
	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// Info describes an object at one moment. Inspecting an object neither wakes it nor keeps it in memory.
type Info struct {
	ID      ID
	Durable bool         // the object has durable data
	Alarm   time.Time    // when its alarm is due, as it is on the disk; zero if none is set
	Attempt int          // runs of the alarm that have failed
	Err     string       // the text of the last of these failures
	Parked  *ParkedAlarm // the alarm, if it is parked; then no alarm is set

	// Sockets is the number of its WebSockets, including sockets that are being closed. Without an
	// incarnation they hibernate.
	Sockets int

	Live   bool          // it has an incarnation
	Epoch  string        // the number of the incarnation
	Age    time.Duration // of that
	Idle   time.Duration // since its last event; zero while it has one
	Events uint64        // since it came into memory
	Queued int           // events that have not started
	Pins   []Pin         // why it may not be evicted for idleness
}

// Pin is a reason to keep an object in memory.
type Pin = runtime.Pin

// Inspect describes an object, in memory and on the disk.
func (h *Host) Inspect(ctx context.Context, id ID) (Info, error) {
	if err := id.Validate(); err != nil {
		return Info{}, err
	}
	rt, _ := h.rt.Inspect(id)
	rt.ID = id
	info := h.infoOf(rt)
	if err := h.inspection().inspect(ctx, &info); err != nil {
		return Info{}, err
	}
	return info, nil
}

func (h *Host) infoOf(rt runtime.Info) Info {
	return Info{
		ID: rt.ID, Sockets: h.sockets.Count(rt.ID), Live: rt.Epoch != (objectstore.Epoch{}), Epoch: rt.Epoch.String(), Age: rt.Age, Idle: rt.Idle,
		Events: rt.Events, Queued: rt.Queued, Pins: rt.Pins,
	}
}

// Live yields the objects that have an incarnation, in no particular order. It does not read the disk, so the
// fields about durable state are zero.
func (h *Host) Live() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		h.rt.Incarnations(func(rt runtime.Info) bool { return yield(h.infoOf(rt)) })
	}
}

// IsLive reports whether the object has an incarnation.
func (h *Host) IsLive(id ID) bool {
	rt, ok := h.rt.Inspect(id)
	return ok && rt.Epoch != (objectstore.Epoch{})
}

// LiveCount returns the number of objects that have an incarnation.
func (h *Host) LiveCount() int { return h.rt.Live() }

// SocketInfo describes an object's WebSocket at one moment.
type SocketInfo = socket.Info

// SocketState is the state of a WebSocket's connection.
type SocketState = socket.State

// The states of a connection. While a connection is opening, the object has accepted it, but the client has no
// response yet. The object sends nothing more on a closing connection.
const (
	SocketOpening = socket.StateOpening
	SocketOpen    = socket.StateOpen
	SocketClosing = socket.StateClosing
)

// Sockets describes an object's WebSockets, in the order of their acceptance. Like Inspect, it does not wake the
// object.
func (h *Host) Sockets(id ID) []SocketInfo { return h.sockets.Infos(id) }

// CloseSockets closes the WebSockets of an object, or only those with a tag if tag is not empty, and returns their
// number. Frames that have left the object are sent first; frames that still wait for the disk are not sent. The
// connection of a socket that is already closing is cut. The code is 1008, so clients do not reconnect by
// themselves. As always, the host notifies the object of each closed socket, which wakes the object.
func (h *Host) CloseSockets(id ID, tag string) int {
	return h.sockets.CloseAll(id, tag, socket.Closing{Code: closePolicy, Reason: "closed by an operator"})
}

// closePolicy is "policy violation".
const closePolicy = 1008

// SocketCount returns the number of WebSockets of objects with an incarnation, and of objects
// without one: the latter hibernate.
func (h *Host) SocketCount() (live, hibernating int) {
	for id, n := range h.sockets.Objects() {
		if h.IsLive(id) {
			live += n
		} else {
			hibernating += n
		}
	}
	return live, hibernating
}

// Pins returns the reasons that keep the object in memory; none if the object is not in memory or may be evicted.
func (h *Host) Pins(id ID) []Pin {
	rt, _ := h.rt.Inspect(id)
	return rt.Pins
}

// Zombies lists the events that still run in ended incarnations, as "class/name op".
func (h *Host) Zombies() []string { return h.rt.Zombies() }

// Stats counts the work of the store since it was opened.
func (h *Host) Stats() StoreStats { return h.rt.Store().Stats() }

// Classes returns the bound classes, in order of their names.
func (h *Host) Classes() []Class { return h.inspection().bound() }

// StoredClasses returns the names of the classes that have durable objects, in order. With
// [ErrDamaged], they are the classes that have an object outside the damaged blocks.
func (h *Host) StoredClasses(ctx context.Context) ([]string, error) {
	return h.inspection().storedClasses(ctx)
}

// CheckProblem is a problem that [CheckDir] found.
type CheckProblem = objectstore.Problem

// CheckStats counts the data that [CheckDir] read.
type CheckStats = objectstore.CheckStats

// CheckDir reads the whole store in dir, which no host may be using, and reports all problems: problems of the stored data
// itself, and the faults that the classes find in their objects ([Handlers].OnInspect). It returns an error only if it
// could not finish.
func CheckDir(ctx context.Context, dir string, report func(CheckProblem), classes ...Class) (stats CheckStats, err error) {
	err = readDir(dir, func(s *objectstore.Store) (err error) {
		stats, err = checkStore(ctx, s, report, classes)
		return err
	})
	return stats, err
}

func readDir(dir string, fn func(*objectstore.Store) error) error {
	s, err := objectstore.Open(dir, &objectstore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(fn(s), s.Close())
}
