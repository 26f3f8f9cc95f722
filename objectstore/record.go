package objectstore

import (
	"errors"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// record is generations that become durable together, as one Pebble batch. It
// belongs to the committer.
type record struct {
	db    *pebble.DB
	log   *slog.Logger
	batch *pebble.Batch
	parts []part
	// changes are the alarm slots that the record changes, in the order of parts.
	changes []AlarmChange
	size    int64 // of the batch, in bytes
	dead    int64 // what its deletions weigh
}

// part is one range's generation.
type part struct {
	r *Range
	g *generation
	// lead says that the committer is to release the range's outputs.
	lead bool
}

// objects yields those whose writes are in the record.
func (rec *record) objects(yield func(ID) bool) {
	for _, p := range rec.parts {
		if !yield(p.r.id) {
			return
		}
	}
}

// encode writes all parts into the batch. It reads Pebble, which holds all that
// is below the record: one record is in flight at a time.
func (rec *record) encode() error {
	for _, p := range rec.parts {
		if err := rec.encodePart(p.r, p.g); err != nil {
			return err
		}
	}
	return nil
}

func (rec *record) encodePart(r *Range, g *generation) error {
	if g.slot.changed {
		if err := rec.removeSlot(r, g); err != nil {
			return err
		}
	}
	// Before the rows, which are younger than the deletion.
	if g.cleared {
		if err := rec.deleteAll(r, &g.clearing); err != nil {
			return err
		}
	}
	if err := rec.setMark(r, g.mark); err != nil {
		return err
	}
	for i := range g.set.rows {
		if err := rec.row(r.prefix, &g.set.rows[i], g.cleared); err != nil {
			return err
		}
	}
	return rec.setSlot(r, g)
}

func (rec *record) row(prefix []byte, w *row, cleared bool) error {
	n := len(prefix)
	if w.deleted {
		if cleared {
			return nil
		}
		return rec.deleteRow(prefix, w.key)
	}
	d := rec.batch.SetDeferred(n+len(w.key), len(w.value))
	copy(d.Key[copy(d.Key, prefix):], w.key)
	copy(d.Value, w.value)
	return d.Finish()
}

// deleteAll deletes what Pebble has of a range.
func (rec *record) deleteAll(r *Range, c *clearing) error {
	rec.dead += c.dead
	if c.all {
		rec.dead += tombstoneWeight
		return rec.batch.DeleteRange(r.prefix, prefixEnd(r.prefix), nil)
	}
	return c.yield(func(key []byte) error { return rec.deleteRow(r.prefix, key) })
}

func (rec *record) deleteRow(prefix, key []byte) error {
	rec.dead += tombstoneWeight
	d := rec.batch.DeleteDeferred(len(prefix) + len(key))
	copy(d.Key[copy(d.Key, prefix):], key)
	return d.Finish()
}

// delete deletes a key.
func (rec *record) delete(key []byte) error {
	rec.dead += tombstoneWeight
	return rec.batch.Delete(key, nil)
}

func (rec *record) setMark(r *Range, m markChange) error {
	switch m {
	case markSet:
		return rec.batch.Set(importingKey(r.id), []byte{indexVersion}, nil)
	case markCleared:
		return rec.delete(importingKey(r.id))
	}
	return nil
}

// removeSlot removes the slot that Pebble has, and its index entries.
func (rec *record) removeSlot(r *Range, g *generation) error {
	old, ok, err := rec.slotBefore(r)
	if err != nil && !errors.Is(err, ErrFormat) {
		return err
	}
	if ok || g.slot.set {
		rec.changes = append(rec.changes, AlarmChange{ID: r.id, Slot: g.slot.slot, Set: g.slot.set})
	}
	if err != nil {
		// Its index entries cannot be found; a delivery compares them with the slot.
		rec.log.Error("alarm slot cannot be read, replacing it", "object", r.id.String(), "err", err)
	}
	if !ok || err != nil {
		return nil
	}
	if err := rec.delete(alarmKey(dueMS(old.Due), r.id)); err != nil {
		return err
	}
	if old.AtBoot {
		if err := rec.delete(bootKey(r.id)); err != nil {
			return err
		}
	}
	if !g.slot.set {
		return rec.delete(slotKey(r.id))
	}
	return nil
}

// slotBefore is the slot that Pebble has: that of the last record, if it changed it.
func (rec *record) slotBefore(r *Range) (s Slot, ok bool, err error) {
	r.mu.Lock()
	g := r.landed
	if g != nil && g.slot.changed {
		defer r.mu.Unlock()
		return g.slot.slot, g.slot.set, nil
	}
	r.mu.Unlock()
	v, ok, err := r.store.appendGet(nil, rec.db, slotKey(r.id))
	if !ok || err != nil {
		return s, ok, err
	}
	s, err = decodeSlot(v)
	return s, true, err
}

// setSlot writes the new slot and its index entries.
func (rec *record) setSlot(r *Range, g *generation) error {
	if !g.slot.set {
		return nil
	}
	s := g.slot.slot
	due := dueMS(s.Due)
	entry := indexEntry{dueMS: due, generation: s.Generation}.encode()
	if err := rec.batch.Set(slotKey(r.id), encodeSlot(s), nil); err != nil {
		return err
	}
	if err := rec.batch.Set(alarmKey(due, r.id), entry, nil); err != nil {
		return err
	}
	if s.AtBoot {
		return rec.batch.Set(bootKey(r.id), entry, nil)
	}
	return nil
}
