package objectstore

// Savepoint is a place in a segment to roll back to. It is valid until the
// segment is handed over, discarded or rolled back beyond it.
type Savepoint struct {
	serial uint64
	undo   int
	outs   int
}

type undoKind byte

const (
	undoRow undoKind = iota
	undoClear
	undoSlot
)

// undo is one change of a segment, to be taken back.
type undo struct {
	kind   undoKind
	gated  bool        // the segment's flag before
	had    bool        // undoRow: there was a row
	at     int         // undoRow: its place
	old    row         // undoRow: what it was
	slot   slotChange  // undoSlot
	before *generation // undoClear
}

// Begin marks a place to roll back to. Savepoints nest; one that is not rolled
// back needs nothing.
func (s *Segment) Begin() Savepoint {
	s.saved = true
	return Savepoint{serial: s.serial, undo: len(s.undo), outs: len(s.g.outs)}
}

// Rollback undoes all since Begin: writes, slot changes and outputs. It returns
// the outputs, unreleased. A savepoint that is no longer valid undoes nothing.
func (s *Segment) Rollback(p Savepoint) []Output {
	if p.serial != s.serial || p.undo > len(s.undo) || p.outs > len(s.g.outs) {
		return nil
	}
	for i := len(s.undo) - 1; i >= p.undo; i-- {
		s.takeBack(&s.undo[i])
	}
	if len(s.undo) > p.undo {
		s.feeds = nil
	}
	clear(s.undo[p.undo:])
	s.undo = s.undo[:p.undo]
	dropped := outputs(s.g.outs[p.outs:])
	clear(s.g.outs[p.outs:])
	s.g.outs = s.g.outs[:p.outs]
	return dropped
}

func (s *Segment) takeBack(u *undo) {
	switch u.kind {
	case undoRow:
		s.g.set.restore(u.at, u.old, u.had)
		s.g.gated = u.gated
	case undoClear:
		s.g.set, s.g.cleared, s.g.gated, s.g.slot = u.before.set, u.before.cleared, u.before.gated, u.before.slot
	case undoSlot:
		s.g.slot, s.g.gated = u.slot, u.gated
	}
}
