package eviction

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Chaos ends incarnations at random, as a pure function of its seed and the point. The zero Chaos ends none.
type Chaos struct {
	Seed uint64
	// Rate is the chance per visit to a place, 0 to 1.
	Rate float64
	// Mean is the mean of the drawn age of an incarnation: the incarnation ends at the first place that it visits at this age or later. Zero
	// draws none.
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

// Validate returns an error for a Rate outside 0 to 1, a negative Mean, a place where no incarnation can end, or a Mode that ends the process.
func (c *Chaos) Validate() error {
	if c.Rate < 0 || c.Rate > 1 || math.IsNaN(c.Rate) {
		return fmt.Errorf("dohost: chaos rate %v: want a chance per place from 0 to 1", c.Rate)
	}
	if c.Mean < 0 {
		return fmt.Errorf("dohost: chaos mean %v: want a mean age of 0 or more", c.Mean)
	}
	for _, p := range c.Places {
		if !p.Ends() {
			return fmt.Errorf("dohost: chaos place %q: want some of %v", p, Places())
		}
	}
	if c.Mode > EndCrash {
		return fmt.Errorf("dohost: chaos %v: want one of %s", c.Mode, strings.Join(modes[:EndPowerCut], ", "))
	}
	return nil
}

// Active reports whether Rate or Mean is set: otherwise Decide returns EndNone for all points.
func (c *Chaos) Active() bool { return c.Rate > 0 || c.Mean > 0 }

// Decide returns the mode of the end that c chooses for the incarnation at p, or EndNone.
func Decide(c *Chaos, p Point) EndMode {
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
