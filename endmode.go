package dohost

import (
	"fmt"

	"github.com/dohost/dohost/eviction"
)

// EndMode is a way to end an incarnation.
type EndMode = eviction.EndMode

// The modes of an eviction: EndFence and EndRestart keep the object's committed writes. EndCrash loses the commits that
// are not in the record in flight, as a power cut does for all objects. EndPowerCut and EndKill end the process, which
// only package dohosttest does: after EndKill, as after SIGKILL, the next process finds all writes, synced or not;
// after EndPowerCut it finds only the synced writes. After EndTakeOver another process owns the shared log (see
// Options.Lease), and the former owner's code keeps running without effect.
const (
	EndFence    = eviction.EndFence
	EndRestart  = eviction.EndRestart
	EndCrash    = eviction.EndCrash
	EndPowerCut = eviction.EndPowerCut
	EndKill     = eviction.EndKill
	EndTakeOver = eviction.EndTakeOver
)

// ParseEndMode returns the mode with a name: fence, restart or crash. Any other name is an error.
func ParseEndMode(name string) (EndMode, error) {
	mode, err := eviction.ParseEndMode(name)
	if err != nil {
		return mode, fmt.Errorf("dohost: %w", err)
	}
	return mode, nil
}
