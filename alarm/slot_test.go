package alarm

import (
	"testing"
	"time"

	"github.com/dohost/dohost/objectstore"
)

var (
	slotNow = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	slotDue = slotNow.Add(-time.Minute)
)

// charged returns a due slot of generation 1 with a charge.
func charged(c objectstore.Charge) objectstore.Slot {
	return objectstore.Slot{Due: slotDue, Generation: 1, Charge: c}
}

func TestCharge(t *testing.T) {
	type charge = objectstore.Charge
	for name, c := range map[string]struct {
		slot    charge
		clean   bool
		begun   bool
		want    charge
		verdict ChargeResult
		delay   time.Duration // of a postponed slot
	}{
		"first run":                              {want: charge{Host: 9}},
		"first run, as the handler begins":       {begun: true, want: charge{Host: 9}},
		"charged by this host":                   {slot: charge{Host: 9}, want: charge{Host: 9}},
		"a suspect of this host":                 {slot: charge{Host: 9, Lost: 1}, want: charge{Host: 9, Lost: 1}},
		"its handler begins":                     {slot: charge{Host: 9, Lost: 1}, begun: true, want: charge{Host: 9, Begun: true, Lost: 1}},
		"its handler begins again":               {slot: charge{Host: 9, Begun: true, Lost: 1}, want: charge{Host: 9, Begun: true, Lost: 1}},
		"the host before died":                   {slot: charge{Host: 8}, want: charge{Host: 9, Lost: 1}},
		"the host before closed":                 {slot: charge{Host: 8}, clean: true, want: charge{Host: 9}},
		"the host before closed in its handler":  {slot: charge{Host: 8, Begun: true, Deaths: 3}, clean: true, want: charge{Host: 9, Deaths: 3}},
		"an older host died":                     {slot: charge{Host: 7}, clean: true, want: charge{Host: 9, Lost: 1}},
		"it died in the handler":                 {slot: charge{Host: 8, Begun: true}, want: charge{Host: 9, Deaths: 1}},
		"a second death":                         {slot: charge{Host: 8, Lost: 1}, want: charge{Lost: 2}, verdict: Postponed, delay: 2 * time.Second},
		"a fifth":                                {slot: charge{Host: 8, Lost: 2, Deaths: 2}, want: charge{Lost: 3, Deaths: 2}, verdict: Postponed, delay: 16 * time.Second},
		"a thousandth":                           {slot: charge{Host: 8, Lost: 999}, want: charge{Lost: 1000}, verdict: Postponed, delay: 1024 * time.Second},
		"more than can be counted":               {slot: charge{Host: 8, Lost: 65535}, want: charge{Lost: 65535}, verdict: Postponed, delay: 1024 * time.Second},
		"postponed, and due":                     {slot: charge{Lost: 3}, want: charge{Host: 9, Lost: 3}},
		"the last death in the handler":          {slot: charge{Host: 8, Begun: true, Lost: 9, Deaths: 5}, want: charge{Lost: 9, Deaths: 6}, verdict: Parked},
		"a death before the handler parks never": {slot: charge{Host: 8, Deaths: 5}, want: charge{Lost: 1, Deaths: 5}, verdict: Postponed, delay: 32 * time.Second},
	} {
		drawn := uint64(1)
		next, verdict := Charge(charged(c.slot), Host{Generation: 9, Clean: c.clean}, c.begun, slotNow, func() uint64 { drawn++; return drawn })
		want := charged(c.want)
		switch c.verdict {
		case Postponed:
			want.Due, want.Generation = slotNow.Add(c.delay), 2
		case Parked:
			want.Parked, want.Generation = objectstore.ParkedDeaths, 2
		}
		if next != want || verdict != c.verdict {
			t.Errorf("%s: %+v, verdict %d; want %+v, %d", name, next, verdict, want, c.verdict)
		}
	}
}

func TestFailed(t *testing.T) {
	s := charged(objectstore.Charge{Host: 9, Begun: true, Lost: 1, Deaths: 2})
	s.AtStart = true
	for attempt := 1; attempt < MaxRuns; attempt++ {
		s = Failed(s, Failure{Now: slotNow, Generation: uint64(attempt), Error: "no"})
		want := objectstore.Slot{
			Due: slotNow.Add(2 * time.Second << (attempt - 1)), Generation: uint64(attempt), Attempt: attempt, AtStart: true, Error: "no",
		}
		if s != want {
			t.Errorf("attempt %d: %+v, want %+v", attempt, s, want)
		}
	}
	for constructor, why := range map[bool]objectstore.ParkReason{false: objectstore.ParkedFailed, true: objectstore.ParkedConstructor} {
		last := Failed(s, Failure{Now: slotNow, Generation: 7, Error: "no", Constructor: constructor})
		want := s
		if want.Attempt, want.Generation, want.Parked = 7, 7, why; last != want {
			t.Errorf("the last run: %+v, want %+v", last, want)
		}
		if got := Revive(last, slotNow, 8); got != (objectstore.Slot{Due: slotNow, Generation: 8, AtStart: true}) {
			t.Errorf("revived: %+v", got)
		}
	}
	for moved, due := range map[time.Duration]time.Duration{time.Second: 2 * time.Second, time.Hour: time.Hour} {
		m := objectstore.Slot{Due: slotNow.Add(moved), Generation: 1}
		if got := Failed(m, Failure{Now: slotNow, Generation: 2, Error: "no", Moved: true}); !got.Due.Equal(slotNow.Add(due)) {
			t.Errorf("moved by %v: due in %v, want %v", moved, got.Due.Sub(slotNow), due)
		}
	}
}

func TestFresh(t *testing.T) {
	generation := func() uint64 { return 5 }
	plain := objectstore.Slot{Due: slotDue, Generation: 1, AtStart: true}
	if got := ClearCounts(plain, generation); got != plain {
		t.Errorf("nothing to take off: %+v", got)
	}
	want := plain
	want.Generation = 5
	for _, change := range []func(*objectstore.Slot){
		func(s *objectstore.Slot) { s.Attempt = 1 }, func(s *objectstore.Slot) { s.Error = "no" },
		func(s *objectstore.Slot) { s.Charge.Host = 1 },
	} {
		s := plain
		if change(&s); ClearCounts(s, generation) != want {
			t.Errorf("%+v became %+v", s, ClearCounts(s, generation))
		}
	}
}
