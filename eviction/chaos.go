package eviction

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is a kind of point in the code of the runtime. A policy decides there whether an incarnation ends.
type Place uint8

// The places where an incarnation can end, in the order of its events.
const (
	PlaceConstruct   Place = iota // the constructor begins
	PlaceStart                    // an event begins
	PlaceAlarm                    // an alarm handler begins
	PlaceStorage                  // a storage operation
	PlaceTransaction              // the end of a transaction's function
	PlaceCommit                   // a batch is about to be committed
	PlaceCommitted                // it is committed, and in memory only
	PlaceSync                     // it is on its way to the disk
	PlaceDurable                  // it is on the disk, and nothing has left
	PlaceRelease                  // a result, or a piece of a response, is about to leave
	PlaceAwait                    // inside an Await, the turn given up, before its function
	PlaceEffect                   // inside an Await, something outside has happened
	PlaceAwaited                  // inside an Await, after its function
	PlaceResume                   // the turn is held again
	PlaceChunk                    // a piece of a streamed response was committed
	PlaceOutcome                  // an alarm handler has returned, its outcome is not written
	PlaceEnd                      // an event has ended
)

// The places where no incarnation can end. Something is about to begin there, or a caller has its answer. The host
// ignores the decision of a policy there.
const (
	PlaceSend     = PlaceEnd + 1 + iota // a call is about to enter a queue
	PlaceAnswer                         // a caller has its answer
	PlaceWake                           // an incarnation is about to begin
	PlaceHoldTurn                       // a HoldTurn is about to queue for the turn
	PlaceRecord                         // a record is about to be made
	PlaceDue                            // alarms are about to be checked
	PlaceSweep                          // idle objects and time limits are about to be checked
	PlaceClose                          // a closing host is about to end the other incarnations
	PlaceFail                           // a host whose store has failed is about to end all incarnations
	PlaceSlept                          // a Sleep is over

	// NumPlaces is the number of all places.
	NumPlaces = int(PlaceSlept) + 1
)

var placeNames = [NumPlaces]string{
	"construct", "start", "alarm", "storage", "transaction", "commit", "committed", "sync", "durable", "release",
	"await", "effect", "awaited", "resume", "chunk", "outcome", "end",
	"send", "answer", "wake", "hold-turn", "record", "due", "sweep", "close", "fail", "slept",
}

// String returns the place's name, as in the flags.
func (p Place) String() string {
	if int(p) >= NumPlaces {
		return "place " + strconv.Itoa(int(p))
	}
	return placeNames[p]
}

// MarshalText encodes the place's name: JSON has names, and not a list of places as bytes.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Ends reports whether an incarnation can end at the place.
func (p Place) Ends() bool { return p <= PlaceEnd }

// Places returns the places where an incarnation can end.
func Places() []Place {
	var all []Place
	for p := PlaceConstruct; p.Ends(); p++ {
		all = append(all, p)
	}
	return all
}

// ParsePlace returns the place with a name, if an incarnation can end there.
func ParsePlace(name string) (Place, error) {
	i := slices.Index(placeNames[:], name)
	if i < 0 || !Place(i).Ends() {
		return 0, fmt.Errorf("dohost: chaos place %q: want some of %v", name, Places())
	}
	return Place(i), nil
}

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

// Chaos ends incarnations at random, as a pure function of its seed and the point. The zero Chaos ends none.
type Chaos struct {
	Seed uint64
	// Rate is the chance per visit to a place, 0 to 1.
	Rate float64
	// Mean is the mean age of an incarnation when it ends, at its next place after that.
	Mean time.Duration
	// Places limits the places that can end an incarnation; nil means all.
	Places []Place
	// Mode is the mode of the ends; EndNone means EndFence.
	Mode EndMode
}

// Point is one visit to a place.
type Point struct {
	Class, Name string
	Incarnation uint64 // without it the same call would end in every incarnation, for ever
	Event       uint64
	Place       Place
	N           uint64 // of the event's visits to the place
	Age         time.Duration
}

// Validate returns an error for values that make no sense. A Chaos that was not parsed may have any values.
func (c *Chaos) Validate() error {
	if c.Rate < 0 || c.Rate > 1 || math.IsNaN(c.Rate) {
		return fmt.Errorf("chaos rate %v: want a chance per place from 0 to 1", c.Rate)
	}
	if c.Mean < 0 {
		return fmt.Errorf("chaos mean %v: want a mean age of 0 or more", c.Mean)
	}
	for _, p := range c.Places {
		if !p.Ends() {
			return fmt.Errorf("chaos place %q: want some of %v", p, Places())
		}
	}
	if c.Mode > EndCrash {
		return fmt.Errorf("chaos %v: want one of %s", c.Mode, strings.Join(modes[:EndPowerCut], ", "))
	}
	return nil
}

// Active reports whether any point may end an incarnation.
func (c *Chaos) Active() bool { return c.Rate > 0 || c.Mean > 0 }

// At returns the mode that ends the incarnation at p, or EndNone.
func (c *Chaos) At(p Point) EndMode {
	if !c.Active() || (c.Places != nil && !slices.Contains(c.Places, p.Place)) {
		return EndNone
	}
	incarnation := mix(mix(c.Seed^hashStrings(p.Class, p.Name)) ^ p.Incarnation)
	ends := c.Mean > 0 && p.Age >= lifetime(incarnation, c.Mean)
	if !ends && c.Rate > 0 {
		draw := mix(mix(mix(incarnation^hashStrings(p.Place.String()))^p.Event) ^ p.N)
		ends = unit(draw) < c.Rate
	}
	switch {
	case !ends:
		return EndNone
	case c.Mode == EndNone:
		return EndFence
	}
	return c.Mode
}

// lifetime draws from an exponential distribution.
func lifetime(h uint64, mean time.Duration) time.Duration {
	return time.Duration(-math.Log1p(-unit(h)) * float64(mean))
}

// ParseChaos reads the values of the chaos flags: evict is a mean interval
// ("200ms"), a chance per place ("0.02"), or empty or zero for none; at is a list of places
// or empty for all; mode is fence, restart or crash, or empty for fence.
func ParseChaos(evict, at, mode string, seed uint64) (Chaos, error) {
	c := Chaos{Seed: seed, Mode: EndFence}
	if mode != "" {
		m, err := ParseEndMode(mode)
		if err != nil {
			return c, fmt.Errorf("dohost: chaos %w", err)
		}
		c.Mode = m
	}
	for _, name := range strings.FieldsFunc(at, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := ParsePlace(name)
		if err != nil {
			return c, err
		}
		c.Places = append(c.Places, p)
	}
	if at != "" && c.Places == nil {
		return c, fmt.Errorf("dohost: chaos place %q: want some of %v", at, Places())
	}
	if evict == "" {
		return c, nil
	}
	if d, err := time.ParseDuration(evict); err == nil && d >= 0 {
		c.Mean = d
		return c, nil
	}
	if p, err := strconv.ParseFloat(evict, 64); err == nil && p >= 0 && p <= 1 {
		c.Rate = p
		return c, nil
	}
	return c, fmt.Errorf("dohost: chaos eviction %q: want a mean interval such as 200ms, or a chance per place from 0 to 1", evict)
}
