package objectstore

// Savepoint is a place in a batch to roll back to. It is open until it is ended or
// rolled back, or a savepoint around it is, or the batch is committed or discarded.
type Savepoint struct {
	serial uint64
	depth  int // savepoints that were open
	undo   int
	outs   int
}

type undoKind byte

const (
	undoRow undoKind = iota
	undoClear
	undoSlot
)

// undoOverhead is the size of an undo, in addition to the value that it keeps.
const undoOverhead = 128

// undo is a change of a batch that a rollback reverts.
type undo struct {
	kind   undoKind
	gated  bool        // the batch's flag before
	saved  uint32      // undoSlot: slotSaved before
	at     int         // undoRow: its place
	old    *row        // undoRow: its old state; nil if the batch had no such row, as for most undos
	slot   *slotChange // undoSlot
	before *layer      // undoClear
}

// bytes returns the size of the undo against the limits on undurable data.
func (u *undo) bytes() int {
	n := undoOverhead
	if u.old != nil {
		n += len(u.old.value)
	}
	if u.before != nil {
		n += u.before.set.bytes
	}
	return n
}

// savepoints is the state for rolling back a batch. An open savepoint keeps one undo for each row that was written
// since it was opened, for any number of writes: a row that was saved since then carries the number of that savepoint
// or of a later one.
type savepoints struct {
	undo      []undo   // in the order of the changes; empty unless a savepoint is open
	bytes     int      // size of undo
	open      []uint32 // numbers of the open savepoints, outermost first; they increase
	last      uint32   // the number of the savepoint that was opened last
	slotSaved uint32   // for the slot, as row.saved
}

// since is the number of the innermost open savepoint, or zero.
func (p *savepoints) since() uint32 {
	if len(p.open) == 0 {
		return 0
	}
	return p.open[len(p.open)-1]
}

func (p *savepoints) push(u undo) {
	p.undo = append(p.undo, u)
	p.bytes += u.bytes()
}

// cut drops the undos from place at.
func (p *savepoints) cut(at int) {
	for i := at; i < len(p.undo); i++ {
		p.bytes -= p.undo[i].bytes()
	}
	clear(p.undo[at:])
	if p.undo = p.undo[:at]; at == 0 && cap(p.undo) > linearRows {
		p.undo = nil
	}
}

// merge drops those undos from place at that the savepoint since does not need, because it has an older state of the
// same row.
func (p *savepoints) merge(at int, since uint32) {
	kept := p.undo[:at]
	for _, u := range p.undo[at:] {
		if u.old != nil && u.old.saved >= since || u.kind == undoSlot && u.saved >= since {
			p.bytes -= u.bytes()
			continue
		}
		kept = append(kept, u)
	}
	clear(p.undo[len(kept):])
	p.undo = kept
}

// Begin opens a savepoint. Savepoints nest: the caller ends or rolls back each of them.
func (s *Batch) Begin() Savepoint {
	p := Savepoint{serial: s.serial, depth: len(s.saves.open), undo: len(s.saves.undo), outs: len(s.g.outs)}
	s.saves.last++
	s.saves.open = append(s.saves.open, s.saves.last)
	return p
}

// isOpen reports whether p, and everything before it, is still there.
func (s *Batch) isOpen(p Savepoint) bool {
	return p.serial == s.serial && p.depth < len(s.saves.open) && p.undo <= len(s.saves.undo) && p.outs <= len(s.g.outs)
}

// End closes a savepoint, and those inside it, and keeps the changes. It drops the undos that no savepoint around it
// needs. A savepoint that is not open ends nothing.
func (s *Batch) End(p Savepoint) {
	if !s.isOpen(p) {
		return
	}
	s.saves.open = s.saves.open[:p.depth]
	if since := s.saves.since(); since > 0 {
		s.saves.merge(p.undo, since)
	} else {
		s.saves.cut(0)
	}
}

// Rollback undoes all since Begin: writes, slot changes and outputs. It closes the
// savepoint and those inside it, and returns the outputs, unreleased. A savepoint that is
// not open undoes nothing.
func (s *Batch) Rollback(p Savepoint) []Output {
	if !s.isOpen(p) {
		return nil
	}
	for i := len(s.saves.undo) - 1; i >= p.undo; i-- {
		s.revert(&s.saves.undo[i])
	}
	if len(s.saves.undo) > p.undo {
		s.feeds = nil
	}
	s.saves.cut(p.undo)
	s.saves.open = s.saves.open[:p.depth]
	for i := range s.g.outs[p.outs:] {
		s.payload -= s.g.outs[p.outs+i].size
	}
	dropped := outputs(s.g.outs[p.outs:])
	clear(s.g.outs[p.outs:])
	s.g.outs = s.g.outs[:p.outs]
	return dropped
}

func (s *Batch) revert(u *undo) {
	switch u.kind {
	case undoRow:
		s.g.set.restore(u.at, u.old)
		s.g.gated = u.gated
	case undoClear:
		s.g.set, s.g.cleared, s.g.clearing = u.before.set, u.before.cleared, u.before.clearing
		s.g.gated, s.g.slot = u.before.gated, u.before.slot
	case undoSlot:
		s.g.slot, s.g.gated, s.saves.slotSaved = *u.slot, u.gated, u.saved
	}
}
