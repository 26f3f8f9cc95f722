package objectstore

import (
	"context"
	"fmt"

	"github.com/dohost/dohost/internal/frame"
)

// resetCompared makes the next pass compare the archive with the last applied record again.
func (y *Standby) resetCompared() { y.compared, y.identified = false, frame.Name{} }

// compare checks that the archive is of the standby's history. It verifies the chain of the object that has the last applied record, so an
// object that was refused after its last record is refused again. If no object has the record, compare checks the store and the fork of
// another object, once for each name. That does not set compared: the archive may be of another history of this fork, so the next pass
// searches for the record again.
func (y *Standby) compare(ctx context.Context, list *archiveList) error {
	name, has := y.comparedObject(list)
	if !has && name == y.identified {
		return nil
	}
	content, err := y.from.Get(ctx, name.String())
	if err != nil {
		return err
	}
	var f frame.Frame
	if name.Base() {
		f, err = frame.NewBase(name.Last).Next(content)
	} else {
		f, _, err = frame.Decode(content)
	}
	if err == nil {
		if err := y.ofHistory(&f); err != nil {
			return err
		}
	}
	same := !has
	switch {
	case err != nil || !has:
	case name.Base():
		same = f.Prev == y.at.Sum
	default:
		same, err = y.hasRecord(content)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: object %v: %w", ErrDamagedArchive, name, err)
	case !same:
		return fmt.Errorf("%w: record %d of the archive differs from the record of the standby", ErrForeignArchive, y.at.Number)
	}
	y.compared, y.identified = has, name
	return nil
}

// hasRecord verifies the records of an object, and reports whether the last applied one is among them as it was applied.
func (y *Standby) hasRecord(content []byte) (same bool, err error) {
	at, err := y.positionBefore(content)
	found := false
	for err == nil && len(content) > 0 {
		var f frame.Frame
		if f, content, err = at.Next(content); f.Number == y.at.Number {
			found, same = true, f.Sum == y.at.Sum
		}
	}
	if err == nil && !found {
		err = &frame.Error{Number: y.at.Number, Reason: "it is missing in its object"}
	}
	return same, err
}

// ofHistory checks that a frame is of the store and the fork that the standby follows.
func (y *Standby) ofHistory(f *frame.Frame) error {
	if id, mine := (Identity{f.Store.String(), f.Fork}), y.Status().Identity; id != mine {
		return fmt.Errorf("%w: the archive is of %v, the standby follows %v", ErrForeignArchive, id, mine)
	}
	return nil
}

// comparedObject returns an object to compare, and whether its name includes the last applied record.
func (y *Standby) comparedObject(list *archiveList) (name frame.Name, has bool) {
	for _, o := range list.records {
		if name = o.Name; o.First <= y.at.Number && o.Last >= y.at.Number {
			return name, true
		}
	}
	for _, b := range list.bases {
		if name = b.parts[0]; b.number == y.at.Number {
			return name, true
		}
	}
	return name, false
}
