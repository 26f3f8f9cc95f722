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

// CellStatus is a cell as a node knows it.
type CellStatus struct {
	Cell
	// Address is the address of the Holder; empty without a Holder.
	Address string `json:"address,omitempty"`
	// Here reports whether this node serves the cell.
	Here bool `json:"here"`
}

// Status is the state of the cluster as a node knows it.
type Status struct {
	Node    Member       `json:"node"` // that answers
	Members []Member     `json:"members"`
	Cells   []CellStatus `json:"cells"`
}

// Status returns the newest state that the node has read from the table, and its own cells.
func (n *Node) Status() Status {
	s := Status{Node: n.self, Members: []Member{}, Cells: make([]CellStatus, len(n.cells))}
	v := n.known.Load()
	if v != nil {
		s.Members = append(s.Members, v.Members...)
	}
	for i, c := range n.cells {
		_, address := v.holder(i)
		s.Cells[i] = CellStatus{Address: address, Here: c.host() != nil}
		if v != nil {
			s.Cells[i].Cell = v.Plan.Cells[i]
		}
	}
	return s
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

// Host returns the host of a cell that this node serves, or nil.
func (n *Node) Host(cell int) Host {
	if cell < 0 || cell >= len(n.cells) {
		return nil
	}
	return n.cells[cell].host()
}
