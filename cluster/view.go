package cluster

// view is the newest snapshot that a node has read.
type view struct {
	Snapshot
	addresses map[string]string // of the members, by id
}

func newView(s *Snapshot) *view {
	v := &view{*s, make(map[string]string, len(s.Members))}
	for _, m := range s.Members {
		v.addresses[m.ID] = m.Address
	}
	return v
}

// holder returns the id and the address of the node that serves a cell, or nothing if the view has none.
func (v *view) holder(cell int) (id, address string) {
	if v == nil || cell >= len(v.Plan.Cells) {
		return "", ""
	}
	id = v.Plan.Cells[cell].Holder
	return id, v.addresses[id]
}

// anyCell returns a cell that this node serves, or else one that another node serves.
func (n *Node) anyCell() int {
	v, found := n.known.Load(), 0
	for i := len(n.cells) - 1; i >= 0; i-- {
		if n.cells[i].host() != nil {
			return i
		}
		if _, address := v.holder(i); address != "" {
			found = i
		}
	}
	return found
}
