package dohosttest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// allEndings are the modes that end incarnations and processes in a test. A restart differs from a fence only in the
// reported reason.
var allEndings = append(slices.Clone(localEndings), eviction.EndTakeOver)

// interruptions are the modes of all interruptions.
var interruptions = append(slices.Clone(allEndings), fullDisk)

// localEndings are the endings of processes without a shared log.
var localEndings = []dohost.EndMode{eviction.EndFence, eviction.EndCrash, eviction.EndPowerCut, eviction.EndKill}

// fullDisk is the mode of an interruption that ends nothing: the disk is full until the next step.
const fullDisk dohost.EndMode = 0x80

// modeName returns the name of the mode of an interruption.
func modeName(m dohost.EndMode) string {
	if m == fullDisk {
		return "full disk"
	}
	return m.String()
}

// endings returns the modes that a test selects, or all possible modes.
func endings(selected []dohost.EndMode, sharedLog bool) []dohost.EndMode {
	switch {
	case selected != nil:
		return selected
	case sharedLog:
		return allEndings
	}
	return localEndings
}

// canEnd reports whether something at p can end in this mode: between two incarnations, only the process can. The disk is
// full during an operation on storage.
func canEnd(e dohost.EndMode, p Point) bool {
	if e == fullDisk {
		return p.Place == eviction.PlaceStorage
	}
	return p.Incarnation != 0 || !e.EndsIncarnation()
}

// endingFlag returns the name for a replay line.
func endingFlag(e dohost.EndMode) string { return strings.ReplaceAll(modeName(e), " ", "-") }

func parseEnding(s string) (dohost.EndMode, error) {
	var names []string
	for _, e := range interruptions {
		if names = append(names, endingFlag(e)); s == endingFlag(e) {
			return e, nil
		}
	}
	return eviction.EndNone, fmt.Errorf("ending %q: want one of %s", s, strings.Join(names, ", "))
}

// checkEndings returns an error for a mode that ends nothing in a test.
func checkEndings(test string, es []dohost.EndMode, sharedLog bool) error {
	possible := endings(nil, sharedLog)
	for _, e := range es {
		if !slices.Contains(possible, e) {
			return fmt.Errorf("the %s's Endings contain %v, want some of %v", test, e, possible)
		}
	}
	return nil
}
