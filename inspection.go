package dohost

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

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

// Pins returns the reasons that keep the object in memory; none if the object is not in memory or may be evicted.
func (h *Host) Pins(id ID) []Pin {
	rt, _ := h.rt.Inspect(id)
	return rt.Pins
}

// Zombies lists the events that still run in ended incarnations, as "class/name op".
func (h *Host) Zombies() []string { return h.rt.Zombies() }

// Classes returns the bound classes, in order of their names.
func (h *Host) Classes() []Class { return h.inspection().bound() }

// StoredClasses returns the names of the classes that have durable objects, in order. With
// [ErrDamaged], they are the classes that have an object outside the damaged blocks.
func (h *Host) StoredClasses(ctx context.Context) ([]string, error) {
	return h.inspection().storedClasses(ctx)
}

// inspection reads the durable state of objects, of a host or of a standby.
type inspection struct {
	store   func() (*objectstore.Store, error)
	classes map[string]Class
	// panicked reports a panic of a function that lists items.
	panicked func(id ID, err error, stack []byte)
}

func (h *Host) inspection() inspection {
	panicked := func(id ID, err error, stack []byte) {
		h.rt.Report(id, "inspect:panic", slog.Attr{Key: "err", Value: truncatedValue(slog.AnyValue(err))}, slog.String("stack", string(stack)))
	}
	return inspection{func() (*objectstore.Store, error) { return h.rt.Store(), nil }, h.classes, panicked}
}

func (in inspection) snapshot(ctx context.Context) (*objectstore.Snapshot, error) {
	s, err := in.store()
	if err != nil {
		return nil, err
	}
	return s.Snapshot(ctx)
}

// bound returns the classes in order of their names.
func (in inspection) bound() []Class {
	var cs []Class
	for _, name := range slices.Sorted(maps.Keys(in.classes)) {
		cs = append(cs, in.classes[name])
	}
	return cs
}

// inspect completes the description of an object by its durable state.
func (in inspection) inspect(ctx context.Context, info *Info) error {
	sn, err := in.snapshot(ctx)
	if err != nil {
		return err
	}
	defer sn.Close()
	if info.Durable, err = sn.Exists(info.ID); err != nil {
		return err
	}
	slot, ok, err := sn.Slot(info.ID)
	if err != nil {
		return err
	}
	if p, parked := runtime.ParkedAlarmOf(info.ID, slot); parked {
		info.Parked = &p
	} else if ok {
		info.Alarm, info.Attempt, info.Err = slot.Due, slot.Attempt, slot.Error
	}
	return nil
}

func (in inspection) storedClasses(ctx context.Context) ([]string, error) {
	sn, err := in.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer sn.Close()
	var names []string
	var damage error
	for name, err := range sn.Classes() {
		switch {
		case err == nil:
			names = append(names, name)
		case errors.Is(err, objectstore.ErrDamaged):
			damage = errors.Join(damage, err)
		default:
			return nil, err
		}
	}
	return names, damage
}

func (in inspection) objects(ctx context.Context, class, after string) iter.Seq2[ID, error] {
	return func(yield func(ID, error) bool) {
		sn, err := in.snapshot(ctx)
		if err != nil {
			yield(ID{}, err)
			return
		}
		defer sn.Close()
		for id, err := range sn.Objects(class, after) {
			if !yield(id, err) {
				return
			}
		}
	}
}

func (in inspection) export(ctx context.Context, id ID, w io.Writer) error {
	sn, err := in.snapshot(ctx)
	if err != nil {
		return err
	}
	defer sn.Close()
	return sn.Export(id, w)
}

func (in inspection) details(ctx context.Context, id ID, q *DetailQuery) iter.Seq2[Resource, error] {
	return func(yield func(Resource, error) bool) {
		if err := id.Validate(); err != nil {
			yield(Resource{}, err)
			return
		}
		c := in.classes[id.Class]
		if c.inspect == nil {
			return
		}
		sn, err := in.snapshot(ctx)
		if err != nil {
			yield(Resource{}, err)
			return
		}
		defer sn.Close()
		v, err := viewOf(sn, id, q)
		if err != nil {
			yield(Resource{}, err)
			return
		}
		v.panicked = in.panicked
		for d, err := range c.inspect(ctx, v) {
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

func (in inspection) findDetails(ctx context.Context, id ID, q *DetailQuery) iter.Seq2[Resource, error] {
	of := q.clone()
	return func(yield func(Resource, error) bool) {
		for d, err := range in.details(ctx, id, &of) {
			switch {
			case err == nil && !of.selects(&d):
				continue
			case err == nil && of.After != "" && d.Cursor == "":
				d, err = Resource{}, errNoCursor
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}
