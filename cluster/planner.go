package cluster

import (
	"slices"
	"time"
)

// plans reports whether this node plans now: see "Planner" in the comment of the package.
func (n *Node) plans(s *Snapshot) bool {
	if !slices.Contains(s.Members, n.self) {
		return false
	}
	renewed := n.rejoined
	switch planner := s.planner(); {
	case planner == "" && n.joined.After(renewed):
		renewed = n.joined
	case planner != "" && planner != n.self.ID:
		return false
	}
	return time.Since(renewed) >= n.o.TTL/renewals+n.o.TTL/ticks || !s.hasAbsent()
}

// planner returns the lowest id of a member with cells, or nothing if no member has cells.
func (s *Snapshot) planner() (lowest string) {
	named := s.Plan.nodes()
	for _, m := range s.Members {
		if named[m.ID] && (lowest == "" || m.ID < lowest) {
			lowest = m.ID
		}
	}
	return lowest
}

// hasAbsent reports whether a node with cells is not a member, and does not drain.
func (s *Snapshot) hasAbsent() bool {
	named := s.Plan.nodes()
	for _, m := range s.Members {
		delete(named, m.ID)
	}
	for _, id := range s.Plan.Draining {
		delete(named, id)
	}
	return len(named) > 0
}

// nodes returns the nodes that own or hold cells.
func (p Plan) nodes() map[string]bool {
	named := map[string]bool{}
	for _, c := range p.Cells {
		named[c.Owner], named[c.Holder] = true, true
	}
	delete(named, "")
	return named
}
