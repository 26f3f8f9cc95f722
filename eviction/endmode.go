package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// EndMode is a way to end an incarnation: it selects how much of its work is lost.
type EndMode uint8

// The modes.
const (
	EndNone    EndMode = iota // does not end the incarnation
	EndFence                  // committed writes stay, and the outputs leave when they are durable
	EndRestart                // as EndFence, but reported as a restart of the platform
	EndCrash                  // loses also the committed writes that are in no record yet

	// These end the process, with all its incarnations. Only package dohosttest can, in a simulation.
	EndPowerCut // unsynced writes are lost, and the next process finds the rest
	EndKill     // as SIGKILL: the next process finds all writes, synced or not
	// EndTakeOver: another process acquires the shared log, and continues the objects. The former owner's code runs on.
	EndTakeOver
)

var modes = []string{"none", "fence", "restart", "crash", "power cut", "kill", "take-over"}

// String returns the mode's name, as in the flags.
func (m EndMode) String() string {
	if int(m) >= len(modes) {
		return "mode " + strconv.Itoa(int(m))
	}
	return modes[m]
}

// MarshalText encodes the mode's name.
func (m EndMode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// EndsIncarnation reports whether the mode ends one incarnation and leaves the process.
func (m EndMode) EndsIncarnation() bool { return m >= EndFence && m <= EndCrash }

// ParseEndMode returns the mode with a name: fence, restart or crash. Any other name is an error, also the empty one and
// none.
func ParseEndMode(name string) (EndMode, error) {
	i := slices.Index(modes, name)
	if !EndMode(i).EndsIncarnation() {
		return EndNone, fmt.Errorf("mode %q: want one of %s", name, strings.Join(modes[EndFence:EndPowerCut], ", "))
	}
	return EndMode(i), nil
}
