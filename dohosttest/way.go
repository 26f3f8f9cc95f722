package dohosttest

import (
	"fmt"
	"strings"
)

// Way is how an incarnation ends.
type Way int

// The ways.
const (
	None Way = iota
	// Fence ends the incarnation; its committed writes stay.
	Fence
	// Crash ends it, and the committed writes that are not on their way to the disk are
	// lost, as by a power cut for this object alone.
	Crash
	// PowerCut ends the process, with all objects: unsynced writes are lost, and the next
	// process finds the rest.
	PowerCut
	// Kill ends the process as SIGKILL does: the next one finds all writes, synced or not.
	Kill
)

var ways = []string{"none", "fence", "crash", "power cut", "kill"}

// String returns the name of the way.
func (w Way) String() string { return ways[w] }

// canEnd reports whether something at p can end in this way: between two incarnations, only
// the process can.
func (w Way) canEnd(p Point) bool { return p.Incarnation != 0 || w == PowerCut || w == Kill }

// flag returns the name for a replay line.
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
