package cluster

import (
	"cmp"
	"fmt"
	"slices"
)

// Member is a node that has joined and has not expired.
type Member struct {
	ID string `json:"id"` // unique; a process that starts again has another one
	// Address is the URL of the node for other nodes, such as http://10.0.0.7:8787.
	Address string `json:"address"`
}

// Plan is the plan of a cluster: see the comment of the package.
type Plan struct {
	Cells      []Cell   `json:"cells"`
	Draining   []string `json:"draining,omitempty"`   // nodes that drain or close, sorted
	BackingOff []string `json:"backingOff,omitempty"` // nodes that could not acquire logs, and should have no cells for a while, sorted
}

// NewPlan returns the plan of a new cluster. Its cells have no owners. The number of cells is 1 to MaxCells; another one is an error.
func NewPlan(cells int) (Plan, error) {
	if cells < 1 || cells > MaxCells {
		return Plan{}, fmt.Errorf("cluster: %d cells: want 1 to %d", cells, MaxCells)
	}
	return Plan{Cells: make([]Cell, cells)}, nil
}

func (p Plan) clone() Plan {
	return Plan{slices.Clone(p.Cells), slices.Clone(p.Draining), slices.Clone(p.BackingOff)}
}

// Equal reports whether the plans are the same.
func (p Plan) Equal(other Plan) bool {
	return slices.Equal(p.Cells, other.Cells) && slices.Equal(p.Draining, other.Draining) &&
		slices.Equal(p.BackingOff, other.BackingOff)
}

// Next returns the plan after p with these members. It equals p if no change is needed.
//
//   - Nodes that are not members are removed from the plan. A cell without an owner gets the member with the fewest cells, and its Avoid
//     only if no other member is left.
//   - If each cell is served by its owner, one cell moves: from a node that drains or backs off, or else from one with the most cells to
//     one with the fewest, if they differ by more than one.
//
// A node that drains or backs off gets no cell. If all nodes do, they keep their cells, and get those without an owner.
func Next(p Plan, members []Member) Plan {
	q := p.clone()
	known := func(id string) bool {
		return slices.ContainsFunc(members, func(m Member) bool { return m.ID == id })
	}
	for _, list := range []*[]string{&q.Draining, &q.BackingOff} {
		if *list = slices.DeleteFunc(*list, func(id string) bool { return !known(id) }); len(*list) == 0 {
			*list = nil
		}
	}
	for i, c := range q.Cells {
		if c.Owner != "" && !known(c.Owner) {
			q.Cells[i].Owner = ""
		}
		if c.Holder != "" && !known(c.Holder) {
			q.Cells[i].Holder = ""
		}
	}
	l := loadsOf(&q, members)
	allLeave := len(l.stay) == 0
	if allLeave {
		l.stay, l.leave = l.leave, nil
	}
	if len(l.stay) == 0 {
		return q
	}
	for i, c := range q.Cells {
		if c.Owner != "" {
			continue
		}
		to := l.fewest(c.Avoid)
		if n, stays := l.cells[c.Holder]; stays && l.isStaying(c.Holder) && n <= l.cells[to] {
			to = c.Holder // the move from it has lost its target
		}
		q.Cells[i].Owner = to
		l.cells[to]++
	}
	if !allLeave {
		l.move(&q)
	}
	return q
}

// loads are the numbers of cells that nodes own.
type loads struct {
	cells map[string]int // of all members
	stay  []string       // the members that neither drain nor back off, sorted
	leave []string       // the others, sorted
}

func loadsOf(p *Plan, members []Member) *loads {
	l := &loads{cells: make(map[string]int, len(members))}
	for _, m := range members {
		l.cells[m.ID] = 0
		if slices.Contains(p.Draining, m.ID) || slices.Contains(p.BackingOff, m.ID) {
			l.leave = append(l.leave, m.ID)
		} else {
			l.stay = append(l.stay, m.ID)
		}
	}
	slices.Sort(l.stay)
	slices.Sort(l.leave)
	for _, c := range p.Cells {
		if c.Owner != "" {
			l.cells[c.Owner]++
		}
	}
	return l
}

func (l *loads) byCells(a, b string) int { return cmp.Compare(l.cells[a], l.cells[b]) }

// fewest returns the member that has the fewest cells of those that stay, and is not avoid unless it is the only one.
func (l *loads) fewest(avoid string) string {
	list := slices.DeleteFunc(slices.Clone(l.stay), func(id string) bool { return id == avoid })
	if len(list) == 0 {
		return avoid
	}
	return slices.MinFunc(list, l.byCells)
}

func (l *loads) isStaying(id string) bool { return slices.Contains(l.stay, id) }

// move plans one move, if no cell is without the node that should serve it.
func (l *loads) move(p *Plan) {
	for _, c := range p.Cells {
		if !c.isServed() {
			return
		}
	}
	from, to := slices.MaxFunc(l.stay, l.byCells), l.fewest("")
	if len(l.leave) > 0 {
		if most := slices.MaxFunc(l.leave, l.byCells); l.cells[most] > 0 {
			from = most
		}
	}
	if l.isStaying(from) && l.cells[from]-l.cells[to] <= 1 {
		return
	}
	i := slices.IndexFunc(p.Cells, func(c Cell) bool { return c.Owner == from })
	p.Cells[i].Owner = to
}

// localState is the state of a cell on a node.
type localState uint8

const (
	absent localState = iota
	held              // its host is open, or is being closed
	stuck             // its log could not be acquired for long
	closed            // the node is closing, and its host is closed
)

// keep makes the cells of a closing node cells that it does not give back.
func keep(cells []localState) {
	for i, c := range cells {
		if c == closed {
			cells[i] = absent
		}
	}
}

// report returns the plan after a node has reported the state of its cells, whether it drains, and whether it backs off.
func (p Plan) report(id string, cells []localState, drains, backsOff bool) Plan {
	q := p.clone()
	for i, c := range q.Cells {
		switch {
		case cells[i] == held && c.Owner == id:
			q.Cells[i].Holder, q.Cells[i].Avoid = id, ""
		case cells[i] != held && c.Holder == id:
			q.Cells[i].Holder = ""
		case (cells[i] == stuck || cells[i] == closed) && c.Owner == id && c.Holder == "":
			q.Cells[i].Owner, q.Cells[i].Avoid = "", id
		}
	}
	q.Draining, q.BackingOff = listed(q.Draining, id, drains), listed(q.BackingOff, id, backsOff)
	return q
}

// listed changes a sorted list so that it has the id, or does not.
func listed(list []string, id string, should bool) []string {
	switch at, has := slices.BinarySearch(list, id); {
	case should && !has:
		return slices.Insert(list, at, id)
	case !should && has:
		return slices.Delete(list, at, at+1)
	}
	return list
}
