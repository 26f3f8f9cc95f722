package eviction

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Place is a point in the code where an incarnation can end.
type Place string

// The places, in the order of an incarnation's life.
const (
	Construct   Place = "construct"   // the constructor begins
	Start       Place = "start"       // an event begins
	Alarm       Place = "alarm"       // an alarm handler begins
	Storage     Place = "storage"     // a storage operation
	Transaction Place = "transaction" // the end of a transaction's function
	HandOver    Place = "handover"    // a batch is about to become history
	Handed      Place = "handed"      // it is history, and in memory only
	Sync        Place = "sync"        // it is on its way to the disk
	Durable     Place = "durable"     // it is on the disk, and nothing has left
	Release     Place = "release"     // a result, or a piece of a response, is about to leave
	Await       Place = "await"       // inside an Await, the turn given up, before its function
	Effect      Place = "effect"      // inside an Await, something outside has happened
	Awaited     Place = "awaited"     // inside an Await, after its function
	Resume      Place = "resume"      // the turn is held again
	Chunk       Place = "chunk"       // a piece of a streamed response was handed over
	Settle      Place = "settle"      // an alarm handler has returned, its outcome is not written
	End         Place = "end"         // an event has ended
)

// Places lists all places.
func Places() []Place {
	return []Place{
		Construct, Start, Alarm, Storage, Transaction, HandOver, Handed, Sync, Durable, Release,
		Await, Effect, Awaited, Resume, Chunk, Settle, End,
	}
}

// Style is a way to end an incarnation.
type Style uint8

// The styles. None ends nothing.
const (
	None    Style = iota
	Fence         // committed writes stay
	Restart       // the same, as a restart of the platform
	Crash         // commits that are not in the record in flight are lost too
)

var styles = []string{"none", "fence", "restart", "crash"}

// String returns the style's name, as in the flags.
func (s Style) String() string {
	if int(s) >= len(styles) {
		return "style " + strconv.Itoa(int(s))
	}
	return styles[s]
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
	// Style is how; None means Fence.
	Style Style
}

// Point is one visit to a place.
type Point struct {
	Class, Name string
	Life        uint64 // without it the same call would end in every incarnation, for ever
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
		return fmt.Errorf("chaos mean %v: want a mean age from 0", c.Mean)
	}
	for _, p := range c.Places {
		if !slices.Contains(Places(), p) {
			return fmt.Errorf("chaos place %q: want some of %v", p, Places())
		}
	}
	if c.Style > Crash {
		return fmt.Errorf("chaos %v: want one of %s", c.Style, strings.Join(styles, ", "))
	}
	return nil
}

// Active reports whether any point may end an incarnation.
func (c *Chaos) Active() bool { return c.Rate > 0 || c.Mean > 0 }

// At returns the Style that ends the incarnation at p, or None.
func (c *Chaos) At(p Point) Style {
	if !c.Active() || (c.Places != nil && !slices.Contains(c.Places, p.Place)) {
		return None
	}
	life := mix(mix(c.Seed^hashStrings(p.Class, p.Name)) ^ p.Life)
	ends := c.Mean > 0 && p.Age >= lifetime(life, c.Mean)
	if !ends && c.Rate > 0 {
		draw := mix(mix(mix(life^hashStrings(string(p.Place)))^p.Event) ^ p.N)
		ends = unit(draw) < c.Rate
	}
	switch {
	case !ends:
		return None
	case c.Style == None:
		return Fence
	}
	return c.Style
}

// lifetime draws from an exponential distribution.
func lifetime(h uint64, mean time.Duration) time.Duration {
	return time.Duration(-math.Log1p(-unit(h)) * float64(mean))
}

// ParseChaos reads the values of the chaos flags: evict is a mean interval
// ("200ms"), a chance per place ("0.02"), or empty or zero for none; at is a list of places
// or empty for all; style is fence, restart or crash, or empty for fence.
func ParseChaos(evict, at, style string, seed uint64) (Chaos, error) {
	c := Chaos{Seed: seed, Style: Fence}
	if style != "" {
		i := slices.Index(styles, style)
		if i < int(Fence) {
			return c, fmt.Errorf("chaos style %q: want one of %s", style, strings.Join(styles[Fence:], ", "))
		}
		c.Style = Style(i)
	}
	for _, name := range strings.FieldsFunc(at, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(Places(), Place(name)) {
			return c, fmt.Errorf("chaos place %q: want some of %v", name, Places())
		}
		c.Places = append(c.Places, Place(name))
	}
	if at != "" && c.Places == nil {
		return c, fmt.Errorf("chaos place %q: want some of %v", at, Places())
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
	return c, fmt.Errorf("chaos eviction %q: want a mean interval such as 200ms, or a chance per place from 0 to 1", evict)
}
