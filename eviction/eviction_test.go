package eviction

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func point(n uint64) Point {
	return Point{Class: "counter", Name: "a", Incarnation: 1, Event: 1, Place: PlaceStorage, N: n}
}

func TestChaosSeedGivesFixedDecisions(t *testing.T) {
	c := Chaos{Seed: 42, Rate: 0.1}
	var hits []uint64
	for n := uint64(1); n <= 60; n++ {
		if Decide(&c, point(n)) != EndNone {
			hits = append(hits, n)
		}
	}
	want := []uint64{9, 12, 14, 25, 29, 41, 42, 43, 44, 46, 47, 49, 51}
	if len(hits) != len(want) {
		t.Fatalf("visits that end: %v, want %v", hits, want)
	}
	for i := range want {
		if hits[i] != want[i] {
			t.Fatalf("visits that end: %v, want %v", hits, want)
		}
	}
}

// A draw that ignores the incarnation would end the same call in every incarnation, and the object would never
// complete it.
func TestChaosDependsOnEveryPointField(t *testing.T) {
	c := Chaos{Seed: 1, Rate: 0.5}
	vary := map[string]func(*Point, uint64){
		"name":        func(p *Point, i uint64) { p.Name = strings.Repeat("a", int(i%200)) },
		"incarnation": func(p *Point, i uint64) { p.Incarnation = i },
		"event":       func(p *Point, i uint64) { p.Event = i },
		"place":       func(p *Point, i uint64) { p.Place = Places()[i%uint64(len(Places()))] },
		"n":           func(p *Point, i uint64) { p.N = i },
	}
	for what, set := range vary {
		ended := map[EndMode]int{}
		for i := range uint64(100) {
			p := point(1)
			set(&p, i)
			ended[Decide(&c, p)]++
		}
		if ended[EndNone] == 0 || ended[EndFence] == 0 {
			t.Errorf("varying the %s never changes the answer: %v", what, ended)
		}
	}
}

func TestChaosRateIsShareOfEndedVisits(t *testing.T) {
	const visits = 100_000
	for _, rate := range []float64{0.01, 0.2, 1} {
		c := Chaos{Seed: 7, Rate: rate}
		ended := 0
		for n := range uint64(visits) {
			if Decide(&c, point(n)) != EndNone {
				ended++
			}
		}
		// Five standard deviations.
		slack := 5 * math.Sqrt(visits*rate*(1-rate))
		if math.Abs(float64(ended)-visits*rate) > slack {
			t.Errorf("rate %v: %d of %d visits end", rate, ended, visits)
		}
	}
}

func TestChaosMeanIsMeanAge(t *testing.T) {
	c := Chaos{Seed: 7, Mean: time.Second}
	var sum time.Duration
	const incarnations = 2000
	for i := range uint64(incarnations) {
		p := point(1)
		p.Incarnation = i
		for Decide(&c, p) == EndNone {
			p.Age += 20 * time.Millisecond
		}
		sum += p.Age
	}
	if mean := sum / incarnations; mean < 900*time.Millisecond || mean > 1100*time.Millisecond {
		t.Errorf("mean age %v, want about 1s", mean)
	}
}

func TestChaosEndsOnlyAtNamedPlaces(t *testing.T) {
	c := Chaos{Rate: 1, Places: []Place{PlaceAwait}, Mode: EndCrash}
	for _, place := range Places() {
		p := point(1)
		p.Place = place
		if got := Decide(&c, p); (got == EndCrash) != (place == PlaceAwait) {
			t.Errorf("%s: %v", place, got)
		}
	}
	if Decide(&Chaos{}, point(1)) != EndNone {
		t.Error("the zero Chaos ends an incarnation")
	}
}

func TestIdleStaysWithinItsBounds(t *testing.T) {
	var low, high time.Duration = time.Hour, 0
	for i := range uint64(10_000) {
		d := Idle{}.After(i/10, i%10)
		low, high = min(low, d), max(high, d)
	}
	if low < 70*time.Second || low > 71*time.Second || high >= 140*time.Second || high < 139*time.Second {
		t.Errorf("draws from %v to %v, want 70s to 140s", low, high)
	}
	if d := (Idle{Min: -1}).After(1, 1); d >= 0 {
		t.Errorf("for ever is %v", d)
	}
	if d := (Idle{Min: time.Second, Max: time.Second}).After(1, 1); d < time.Second || d >= 2*time.Second {
		t.Errorf("one second is %v", d)
	}
}

func TestPressureShedsOncePerCycleAndATenthAtMost(t *testing.T) {
	p := Pressure{Budget: 100}
	for _, c := range []struct {
		live              int
		heap, cycle, last uint64
		want              int
	}{
		{1000, 100, 2, 1, 0},
		{1000, 101, 2, 1, 10},
		{1000, 1000, 2, 1, 100},
		{1000, 1000, 2, 2, 0},
		{1, 1000, 2, 1, 1},
		{0, 1000, 2, 1, 0},
	} {
		if got := p.Shed(c.live, c.heap, c.cycle, c.last); got != c.want {
			t.Errorf("%+v: shed %d", c, got)
		}
	}
}

func TestParseChaos(t *testing.T) {
	c, err := ParseChaos("200ms", "await, start", "crash", 3)
	if err != nil || c.Mean != 200*time.Millisecond || len(c.Places) != 2 || c.Mode != EndCrash || c.Seed != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseChaos("0.02", "", "", 0); err != nil || c.Rate != 0.02 || c.Places != nil || c.Mode != EndFence {
		t.Errorf("%+v, %v", c, err)
	}
	for _, off := range []string{"", "0", "0.0", "0s"} {
		if c, err := ParseChaos(off, "", "", 0); err != nil || c.Active() {
			t.Errorf("%q: %+v, %v", off, c, err)
		}
	}
	if c, err := ParseChaos("", "await", "", 0); err != nil || c.Active() {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range [][3]string{{"often"}, {"1.5"}, {"-1s"}, {"0.1", "lunch"}, {"0.1", ","}, {"0.1", "", "none"}, {"0.1", "", "soft"}} {
		_, err := ParseChaos(bad[0], bad[1], bad[2], 0)
		if err == nil {
			t.Errorf("%q is accepted", bad)
			continue
		}
		named := false
		for _, v := range bad {
			named = named || (v != "" && strings.Contains(err.Error(), strconvQuote(v)))
		}
		if !named {
			t.Errorf("%q: the error does not name the value: %v", bad, err)
		}
	}
}

func TestChaosValidate(t *testing.T) {
	for _, c := range []struct {
		chaos  Chaos
		begins string // the beginning of the error; empty for none
	}{
		{Chaos{}, ""},
		{Chaos{Rate: 1, Mean: time.Second, Places: Places(), Mode: EndCrash}, ""},
		{Chaos{Rate: -0.1}, "dohost: chaos rate -0.1: "},
		{Chaos{Rate: 1.1}, "dohost: chaos rate 1.1: "},
		{Chaos{Rate: math.NaN()}, "dohost: chaos rate NaN: "},
		{Chaos{Rate: math.Inf(1)}, "dohost: chaos rate +Inf: "},
		{Chaos{Mean: -time.Second}, "dohost: chaos mean -1s: "},
		{Chaos{Rate: 1, Places: []Place{PlaceStart, 99}}, `dohost: chaos place "place 99": `},
		{Chaos{Places: []Place{PlaceSend}}, `dohost: chaos place "send": `},
		{Chaos{Mode: EndPowerCut}, "dohost: chaos power cut: want one of none, fence, restart, crash"},
		{Chaos{Mode: 9}, "dohost: chaos mode 9: "},
	} {
		err := c.chaos.Validate()
		if (err != nil) != (c.begins != "") || err != nil && !strings.HasPrefix(err.Error(), c.begins) {
			t.Errorf("%+v: %v", c.chaos, err)
		}
	}
}

func TestEndModeNames(t *testing.T) {
	for mode := EndFence; mode <= EndCrash; mode++ {
		if got, err := ParseEndMode(mode.String()); err != nil || got != mode {
			t.Errorf("%v: %v, %v", mode, got, err)
		}
	}
	for _, name := range []string{"", "none", "Fence", "hard"} {
		if got, err := ParseEndMode(name); err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) || got != EndNone {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
	if got := EndMode(9).String(); got != "mode 9" {
		t.Errorf("EndMode(9) is %q", got)
	}
}

func strconvQuote(s string) string { return `"` + s + `"` }

func TestPlacesAndModesAreNamesInJSON(t *testing.T) {
	got, err := json.Marshal(Chaos{Places: []Place{PlaceAwait, PlaceEnd}, Mode: EndCrash})
	if want := `"Places":["await","end"],"Mode":"crash"`; err != nil || !strings.Contains(string(got), want) {
		t.Errorf("%s, %v: want %s", got, err, want)
	}
}
