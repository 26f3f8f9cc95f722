package objectstore

// emission is an output and the writes that it waits for.
type emission struct {
	out  Output
	sync bool  // waits for NoWait writes too
	size int64 // bytes that it holds in the store's budget until it is released
}

// slotChange is a layer's change of the alarm slot.
type slotChange struct {
	changed bool
	set     bool // false: cleared
	slot    Slot // zero unless set
}

// markChange is a layer's change of the importing mark.
type markChange byte

const (
	markKept markChange = iota
	markSet
	markCleared
)

// layer is writes that become durable together, and the outputs that leave
// after them. It begins as the content of a batch, owned by the batch's user.
// As a range's filling layer it is guarded by Range.mu. In flight, its
// writes no longer change and need no lock; its outputs stay under Range.mu.
type layer struct {
	set      writeSet
	cleared  bool // it begins with a DeleteAll: reads skip the layers below it
	clearing clearing
	gated    bool // holds a write that outputs wait for
	slot     slotChange
	mark     markChange
	batches  int
	outs     []emission
}

func (g *layer) dirty() bool {
	return len(g.set.rows) > 0 || g.cleared || g.slot.changed || g.mark != markKept
}

// bytes returns the size of the layer against the limits on undurable data.
func (g *layer) bytes() int64 {
	n := int64(g.set.bytes + len(g.clearing.keys))
	if g.cleared || g.slot.changed {
		n += rowOverhead
	}
	return n
}

// size returns the approximate size of the layer in a record, in bytes, with a key prefix of this length.
func (g *layer) size(prefix int) int {
	n := g.set.bytes + len(g.set.rows)*prefix
	if g.cleared {
		n += g.clearing.size(prefix)
	}
	return n
}

// merge applies the writes of the younger layer s to g. The caller moves the outputs.
func (g *layer) merge(s *layer) {
	if s.cleared {
		g.set.reset()
		g.cleared, g.clearing = true, s.clearing
	}
	for i := range s.set.rows {
		r := &s.set.rows[i]
		g.set.set(r.key, r.value, r.deleted, 0)
	}
	if s.slot.changed {
		g.slot = s.slot
	}
	if s.mark != markKept {
		g.mark = s.mark
	}
	g.gated = g.gated || s.gated
	g.batches++
}

// lookup finds a key. below reports whether older layers may have it.
func (g *layer) lookup(key []byte) (r *row, below bool) {
	if at := g.set.find(key); at >= 0 {
		return &g.set.rows[at], false
	}
	return nil, !g.cleared
}

// reset empties g for its next use.
func (g *layer) reset() {
	g.set.reset()
	outs := g.outs
	clear(outs)
	if cap(outs) > maxSpareOuts {
		outs = nil
	}
	*g = layer{set: g.set, outs: outs[:0]}
}
