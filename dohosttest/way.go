package dohosttest

import (
	"fmt"
	"strings"
)

// Way is a way in which an incarnation ends.
type Way int

// The ways.
const (
	None Way = iota
	// Fence ends the incarnation: what it has handed over stays.
	Fence
	// Crash ends it, and what is not on its way to the disk is lost, as if the power
	// were cut for this object alone.
	Crash
	// PowerCut ends the process, with all objects: what was not synced is lost, and the
	// next process finds the rest.
	PowerCut
	// Kill ends the process as SIGKILL does: the next finds all that was written, synced
	// or not.
	Kill
)

var ways = []string{"none", "fence", "crash", "power cut", "kill"}

// String names the way.
func (w Way) String() string { return ways[w] }

// canEnd says whether there is something at p that ends in this way: between two
// incarnations, the process is all there is.
func (w Way) canEnd(p Point) bool { return p.Life != 0 || w == PowerCut || w == Kill }

// flag is the name in a replay line.
func (w Way) flag() string { return strings.ReplaceAll(ways[w], " ", "-") }

func parseWay(s string) (Way, error) {
	var names []string
	for w := Fence; w <= Kill; w++ {
		if names = append(names, w.flag()); s == w.flag() {
			return w, nil
		}
	}
	return None, fmt.Errorf("way %q: want one of %s", s, strings.Join(names, ", "))
}
