package cluster

import "github.com/dohost/dohost"

// Cell is a cell in a plan. Its fields are ids of nodes, or empty.
type Cell struct {
	Owner  string `json:"owner,omitempty"`  // should have the cell
	Holder string `json:"holder,omitempty"` // has reported to serve it, and has not reported to have stopped
	Avoid  string `json:"avoid,omitempty"`  // could not acquire its log
}

// isServed reports whether the node that should have the cell serves it.
func (c Cell) isServed() bool { return c.Owner != "" && c.Owner == c.Holder }

// DefaultCells is the number of cells of a new cluster, unless the first node chooses another.
const DefaultCells = 8

// MaxCells is the largest number of cells.
const MaxCells = 1024

// CellOf returns the cell of an object, from 0 to cells-1. It is FNV-1a with 64 bits over the class, a zero byte, and the name;
// the upper 32 bits are then XORed into the lower ones, and the result is taken modulo cells. It panics if cells is 0. Neither a class nor a name has a zero byte.
func CellOf(id dohost.ID, cells int) int {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{id.Class, "\x00", id.Name} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h ^= h >> 32 // the low bits of FNV-1a depend on the low bits of the text only
	return int(h % uint64(cells))
}
