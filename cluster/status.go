package cluster

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
