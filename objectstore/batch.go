package objectstore

// Batch has the writes and outputs of an event since it acquired the turn. It is not for concurrent use. After Commit
// it is empty and may be used again.
//
// A batch does not know whether its incarnation still owns the range: Commit checks that.
type Batch struct {
	r       *Range
	epoch   Epoch
	g       *layer // never nil
	saves   savepoints
	serial  uint64    // counts how often the batch was emptied: invalidates old savepoints
	scratch []byte    // a key under construction
	held    int64     // bytes of the store's budget that are the batch's: at least bytes(), apart from changes of the slot
	need    int64     // the missing bytes of the write that returned ErrFull
	payload int64     // of the outputs with a size, 32 bytes for each included
	feeds   feedCache // ends of feeds, as the batch sees them
}

// NewBatch returns an empty batch of the incarnation e.
func (r *Range) NewBatch(e Epoch) *Batch {
	return &Batch{r: r, epoch: e, g: new(layer)}
}

// key builds the whole key of a row. The key without the range's prefix is the row's key in a write set. It is valid
// until the next call.
func (s *Batch) key(sp Space, key []byte) []byte {
	s.scratch = append(s.scratch[:0], s.r.prefix...)
	s.scratch = append(append(s.scratch, byte(sp)), key...)
	return s.scratch
}

// Get appends to dst, which may be nil, the value of a key as the batch sees it: its own writes, then committed
// ones, then durable ones. The slice is the caller's. Errors: ErrDamaged, ErrFenced after the end of the store.
func (s *Batch) Get(dst []byte, sp Space, key []byte) (value []byte, ok bool, err error) {
	k := s.key(sp, key)
	r, below := s.g.lookup(k[len(s.r.prefix):])
	switch {
	case r != nil:
		value, ok = r.appendTo(dst)
		return value, ok, nil
	case !below:
		return dst, false, nil
	}
	return s.r.get(dst, k)
}

// appendTo appends the row's value, if it has one.
func (r *row) appendTo(dst []byte) ([]byte, bool) {
	if r.deleted {
		return dst, false
	}
	return append(dst, r.value...), true
}

// Put writes a row. It copies key and value. With noWait no output waits for
// this write. Errors: *LimitError, ErrNoSpace, ErrReadOnlyStore, ErrFull.
func (s *Batch) Put(sp Space, key, value []byte, noWait bool) error {
	if len(value) > MaxValue {
		return &LimitError{Subject: "value", Size: len(value), Limit: MaxValue}
	}
	if err := s.r.store.space.check(); err != nil {
		return err
	}
	return s.write(sp, key, value, false, noWait)
}

// Delete removes a row, whether it exists or not. Errors: *LimitError,
// ErrReadOnlyStore, ErrFull.
func (s *Batch) Delete(sp Space, key []byte, noWait bool) error {
	return s.write(sp, key, nil, true, noWait)
}

func (s *Batch) write(sp Space, key, value []byte, deleted, noWait bool) error {
	switch {
	case len(key) == 0 || len(key) > MaxKey:
		return &LimitError{Subject: "key", Size: len(key), Limit: MaxKey}
	case s.r.store.opts.ReadOnly:
		return ErrReadOnlyStore
	}
	k := s.key(sp, key)[len(s.r.prefix):]
	// Only a batch that could reach the limit pays for the exact sum.
	if s.g.set.bytes+rowSize(k, len(value)) > MaxBatchBytes {
		if n := s.g.set.sizeWith(k, len(value)); n > MaxBatchBytes {
			return &LimitError{Subject: "batch", Size: n, Limit: MaxBatchBytes}
		}
	}
	if err := s.reserve(s.cost(k, len(value))); err != nil {
		return err
	}
	s.set(k, value, deleted, noWait)
	return nil
}

// cost bounds the growth of the batch, in bytes, by a write of a row.
func (s *Batch) cost(k []byte, valueLen int) int {
	n, since := rowSize(k, valueLen), s.saves.since()
	if since == 0 {
		return n
	}
	n += undoOverhead
	if at := s.g.set.find(k); at >= 0 && s.g.set.rows[at].saved < since {
		n += len(s.g.set.rows[at].value)
	}
	return n
}

// set writes a row; its key begins with the space. At the first write after a savepoint was opened it keeps the row's
// old state.
func (s *Batch) set(k, value []byte, deleted, noWait bool) {
	gated, since := s.g.gated, s.saves.since()
	at, old, had := s.g.set.set(k, value, deleted, since)
	s.g.gated = gated || !noWait
	if since > 0 && old.saved < since {
		u := undo{kind: undoRow, at: at, gated: gated}
		if had {
			before := old // only this copy is allocated
			u.old = &before
		}
		s.saves.push(u)
	}
}

// DeleteAll removes all rows of all spaces, and the alarm. It reads up to 1,000 keys of the object, so that the committer
// does not have to. Errors: ErrReadOnlyStore, ErrFenced, ErrFull.
func (s *Batch) DeleteAll() error {
	if s.r.store.opts.ReadOnly {
		return ErrReadOnlyStore
	}
	c := s.g.clearing
	if !s.g.cleared {
		var err error
		if c, err = s.r.clearing(); err != nil {
			return err
		}
	}
	if err := s.reserve(rowOverhead + undoOverhead + len(c.keys)); err != nil {
		return err
	}
	if s.saves.since() > 0 {
		s.saves.push(undo{kind: undoClear, before: &layer{
			set: s.g.set, cleared: s.g.cleared, clearing: s.g.clearing, gated: s.g.gated, slot: s.g.slot,
		}})
		s.g.set = writeSet{}
	} else {
		s.g.set.reset()
	}
	s.g.cleared, s.g.clearing, s.g.gated = true, c, true
	s.g.slot = slotChange{changed: true}
	s.feeds = nil
	return nil
}

// Slot returns the object's alarm as the batch sees it.
func (s *Batch) Slot() (Slot, bool, error) {
	if c := s.g.slot; c.changed {
		return c.slot, c.set, nil
	}
	return s.r.slot()
}

// SetSlot sets the object's alarm. Its entry in the index goes into the same
// record. It does not wait for memory: see Reserve. On a store opened read-only, Commit fails.
func (s *Batch) SetSlot(slot Slot) {
	s.changeSlot(slotChange{changed: true, set: true, slot: slot.rounded()})
}

// ClearSlot removes the object's alarm.
func (s *Batch) ClearSlot() { s.changeSlot(slotChange{changed: true}) }

func (s *Batch) changeSlot(c slotChange) {
	if since := s.saves.since(); s.saves.slotSaved < since {
		before := s.g.slot
		s.saves.push(undo{kind: undoSlot, slot: &before, gated: s.g.gated, saved: s.saves.slotSaved})
		s.saves.slotSaved = since
	}
	s.g.slot, s.g.gated = c, true
}

// Emit adds an output. It waits for all commits of the object up to and including this batch, except NoWait writes.
func (s *Batch) Emit(o Output) { s.g.outs = append(s.g.outs, emission{out: o}) }

// Sync is Emit, but o waits for NoWait writes too.
func (s *Batch) Sync(o Output) { s.g.outs = append(s.g.outs, emission{out: o, sync: true}) }

// EmitSized is Emit of an output that holds memory: size bytes, and 32 for the output, count against the limits until it is
// released. Errors: ErrFull; a LimitError if the outputs of the batch have more than MaxOutputBytes.
func (s *Batch) EmitSized(o Output, size int) error {
	if size > 0 {
		size += rowOverhead
		if all := s.payload + int64(size); all > MaxOutputBytes {
			return &LimitError{Subject: "batch of outputs", Size: int(all), Limit: MaxOutputBytes}
		}
		if err := s.reserve(size); err != nil {
			return err
		}
	}
	s.g.outs = append(s.g.outs, emission{out: o, size: int64(size)})
	s.payload += int64(size)
	return nil
}

// Discard empties the batch and returns its outputs, unreleased.
func (s *Batch) Discard() []Output {
	outs := outputs(s.g.outs)
	s.g.reset()
	s.returnUnused(0)
	s.emptied()
	s.feeds = nil
	return outs
}

// emptied invalidates earlier savepoints, and ends the batch's favored state.
func (s *Batch) emptied() {
	s.r.store.budget.unfavor(s)
	if s.saves.last > 0 {
		s.saves.cut(0)
		s.saves = savepoints{undo: s.saves.undo, open: s.saves.open[:0]}
	}
	s.serial++
}

// Empty reports whether the batch has neither writes nor outputs.
func (s *Batch) Empty() bool { return !s.g.dirty() && len(s.g.outs) == 0 }

// Dirty reports whether the batch has writes.
func (s *Batch) Dirty() bool { return s.g.dirty() }

// Bytes returns the size of the batch's writes: keys, values and an overhead for each.
func (s *Batch) Bytes() int { return int(s.g.bytes()) }

func outputs(es []emission) []Output {
	if len(es) == 0 {
		return nil
	}
	outs := make([]Output, len(es))
	for i, e := range es {
		outs[i] = e.out
	}
	return outs
}
