package objectstore

import "errors"

// record has the layers that become durable together, as one Pebble batch. Only the committer uses it.
type record struct {
	batch engineBatch
	parts []part
	// changes are the alarm slots that the record changes, in the order of parts.
	changes []AlarmChange
	frame   []byte // for a shared log; nil without one
	size    int64  // of the engine batch, in bytes
	dead    int64  // weight of its deletions
}

// part is one range's layer.
type part struct {
	r *Range
	g *layer
	// mustRelease: the committer has to release the range's outputs.
	mustRelease bool
	// before is the alarm slot that the engine has, if the layer changes it.
	before oldSlot
}

// oldSlot is a slot as it was read. With lost, it was there and cannot be decoded.
type oldSlot struct {
	slot Slot
	set  bool
	lost bool
}

// objects yields the objects with writes in the record.
func (rec *record) objects(yield func(ID) bool) {
	for _, p := range rec.parts {
		if !yield(p.r.id) {
			return
		}
	}
}

// encode writes all parts into the engine batch. It reads nothing, so an error concerns the whole record.
func (rec *record) encode() error {
	for i := range rec.parts {
		if err := rec.encodePart(&rec.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (rec *record) encodePart(p *part) error {
	r, g := p.r, p.g
	if g.slot.changed {
		if err := rec.removeSlot(p); err != nil {
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
	d := pebbleBatch(rec).SetDeferred(n+len(w.key), len(w.value))
	copy(d.Key[copy(d.Key, prefix):], w.key)
	copy(d.Value, w.value)
	return d.Finish()
}

// deleteAll deletes the rows of a range in Pebble.
func (rec *record) deleteAll(r *Range, c *clearing) error {
	rec.dead += c.dead
	if c.all {
		rec.dead += tombstoneWeight
		return pebbleBatch(rec).DeleteRange(r.prefix, prefixEnd(r.prefix), nil)
	}
	return c.yield(func(key []byte) error { return rec.deleteRow(r.prefix, key) })
}

func (rec *record) deleteRow(prefix, key []byte) error {
	rec.dead += tombstoneWeight
	d := pebbleBatch(rec).DeleteDeferred(len(prefix) + len(key))
	copy(d.Key[copy(d.Key, prefix):], key)
	return d.Finish()
}

// delete deletes a key.
func (rec *record) delete(key []byte) error {
	rec.dead += tombstoneWeight
	return pebbleBatch(rec).Delete(key, nil)
}

func (rec *record) setMark(r *Range, m markChange) error {
	switch m {
	case markSet:
		return pebbleBatch(rec).Set(importingKey(r.id), []byte{indexVersion}, nil)
	case markCleared:
		return rec.delete(importingKey(r.id))
	}
	return nil
}

// removeSlot removes the slot that the engine has, and its index entries.
func (rec *record) removeSlot(p *part) error {
	r, g, old := p.r, p.g, p.before
	if old.set || g.slot.set {
		rec.changes = append(rec.changes, AlarmChange{ID: r.id, Slot: g.slot.slot, Set: g.slot.set})
	}
	if !old.set {
		return nil
	}
	if !g.slot.set {
		if err := rec.delete(slotKey(r.id)); err != nil {
			return err
		}
	}
	if old.lost {
		return nil // its index entries cannot be found; a delivery compares them with the slot
	}
	if err := rec.delete(old.slot.indexKey(r.id)); err != nil {
		return err
	}
	if old.slot.inStartIndex() {
		return rec.delete(startKey(r.id))
	}
	return nil
}

// readSlot reads the slot that the engine has, if the part changes it. The engine holds
// all that is below the record: one record is in flight at a time. A slot that cannot
// be decoded, or lies in a damaged block, is replaced; another error is returned.
func (p *part) readSlot() error {
	if !p.g.slot.changed {
		return nil
	}
	r := p.r
	r.mu.Lock()
	if g := r.lastDurable; g != nil && g.slot.changed {
		p.before = oldSlot{slot: g.slot.slot, set: g.slot.set}
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	v, ok, err := r.store.appendGet(nil, r.store.db, slotKey(r.id))
	if ok && err == nil {
		p.before.slot, err = decodeSlot(v)
	}
	p.before.set = ok
	if errors.Is(err, ErrFormat) || errors.Is(err, ErrDamaged) {
		p.before.set, p.before.lost = true, true
		r.store.opts.Logger.Error("alarm slot cannot be read, replacing it", "object", r.id.String(), "err", err)
		return nil
	}
	return err
}

// setSlot writes the new slot and its index entries.
func (rec *record) setSlot(r *Range, g *layer) error {
	if !g.slot.set {
		return nil
	}
	s := g.slot.slot
	entry := indexEntry{dueMS: dueMS(s.Due), generation: s.Generation}.encode()
	if err := pebbleBatch(rec).Set(slotKey(r.id), encodeSlot(s), nil); err != nil {
		return err
	}
	if err := pebbleBatch(rec).Set(s.indexKey(r.id), entry, nil); err != nil {
		return err
	}
	if s.inStartIndex() {
		return pebbleBatch(rec).Set(startKey(r.id), entry, nil)
	}
	return nil
}
