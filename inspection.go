package dohost

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/dohost/dohost/objectstore"
	"github.com/dohost/dohost/runtime"
)

// inspection reads the durable state of objects, of a host or of a standby.
type inspection struct {
	store   func() (*objectstore.Store, error)
	classes map[string]Class
}

func (h *Host) inspection() inspection {
	return inspection{func() (*objectstore.Store, error) { return h.rt.Store(), nil }, h.classes}
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
