package dohosttest

import (
	"fmt"
	"strconv"
	"strings"
)

// Ending is a way to end an incarnation and, in two cases, its process.
type Ending int

// The endings.
const (
	EndingNone Ending = iota
	// EndingFence ends the incarnation; its committed writes stay.
	EndingFence
	// EndingCrash ends it, and the committed writes that are not on their way to the disk are
	// lost, as by a power cut for this object alone.
	EndingCrash
	// EndingPowerCut ends the process, with all objects: unsynced writes are lost, and the next
	// process finds the rest.
	EndingPowerCut
	// EndingKill ends the process as SIGKILL does: the next one finds all writes, synced or not.
	EndingKill
)

var endingNames = [...]string{"none", "fence", "crash", "power cut", "kill"}

// String returns the name of the ending. Of an undefined ending it returns the number, as in "ending 9".
func (e Ending) String() string {
	if e < 0 || int(e) >= len(endingNames) {
		return "ending " + strconv.Itoa(int(e))
	}
	return endingNames[e]
}

// canEnd reports whether something at p can end with it: between two incarnations, only
// the process can.
func (e Ending) canEnd(p Point) bool {
	return p.Incarnation != 0 || e == EndingPowerCut || e == EndingKill
}

// flag returns the name for a replay line.
func (e Ending) flag() string { return strings.ReplaceAll(e.String(), " ", "-") }

func parseEnding(s string) (Ending, error) {
	var names []string
	for e := EndingFence; e <= EndingKill; e++ {
		if names = append(names, e.flag()); s == e.flag() {
			return e, nil
		}
	}
	return EndingNone, fmt.Errorf("ending %q: want one of %s", s, strings.Join(names, ", "))
}
