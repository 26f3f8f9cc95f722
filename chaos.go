package dohost

import "github.com/dohost/dohost/eviction"

// Chaos ends incarnations at random, as a pure function of its seed and the place.
type Chaos = eviction.Chaos

// ParseChaos makes a [Chaos] from the values of the command's chaos flags.
func ParseChaos(evict, at, mode string, seed uint64) (Chaos, error) {
	return eviction.ParseChaos(evict, at, mode, seed)
}
