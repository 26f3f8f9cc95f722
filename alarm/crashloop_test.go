package alarm

import (
	"maps"
	"testing"
	"time"

	"github.com/dohost/dohost/internal/lifecycletest"
	"github.com/dohost/dohost/objectstore"
)

func TestCharge(t *testing.T) {
	type charge = objectstore.Charge
	for name, c := range map[string]struct {
		slot   charge
		clean  bool
		begun  bool
		want   charge
		result ChargeResult  // other than MayRunWhenDurable
		delay  time.Duration // of a postponed slot
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
		"a second death":                         {slot: charge{Host: 8, Lost: 1}, want: charge{Lost: 2}, result: Postponed, delay: 2 * time.Second},
		"a fifth":                                {slot: charge{Host: 8, Lost: 2, Deaths: 2}, want: charge{Lost: 3, Deaths: 2}, result: Postponed, delay: 16 * time.Second},
		"a thousandth":                           {slot: charge{Host: 8, Lost: 999}, want: charge{Lost: 1000}, result: Postponed, delay: 1024 * time.Second},
		"more than can be counted":               {slot: charge{Host: 8, Lost: 65535}, want: charge{Lost: 65535}, result: Postponed, delay: 1024 * time.Second},
		"postponed, and due":                     {slot: charge{Lost: 3}, want: charge{Host: 9, Lost: 3}},
		"the last death in the handler":          {slot: charge{Host: 8, Begun: true, Lost: 9, Deaths: 5}, want: charge{Lost: 9, Deaths: 6}, result: Parked},
		"a death before the handler parks never": {slot: charge{Host: 8, Deaths: 5}, want: charge{Lost: 1, Deaths: 5}, result: Postponed, delay: 32 * time.Second},
	} {
		drawn := uint64(1)
		loop := CrashLoop{Host: 9, Unclean: !c.clean}
		run := Run{HandlerBegins: c.begun, Now: slotNow, NewGeneration: func() uint64 { drawn++; return drawn }}
		next, result := loop.Charge(charged(c.slot), run)
		want := charged(c.want)
		switch c.result {
		case Postponed:
			want.Due, want.Generation = slotNow.Add(c.delay), 2
		case Parked:
			want.Parked, want.Generation = objectstore.ParkedDeaths, 2
		default:
			c.result = MayRunWhenDurable
		}
		if want.Generation != 1 {
			want.First = objectstore.Setting{DueMS: slotDue.UnixMilli(), Generation: 1}
		}
		if next != want || result != c.result {
			t.Errorf("%s: %+v, result %d; want %+v, %d", name, next, result, want, c.result)
		}
		run.Durable = true
		if next == charged(c.slot) {
			c.result = MayRun
		}
		if _, result := loop.Charge(charged(c.slot), run); result != c.result {
			t.Errorf("%s, the slot is durable: result %d, want %d", name, result, c.result)
		}
	}
}

// crashState returns the name of the slot's state in the diagram of CrashLoop.
func crashState(s objectstore.Slot) string {
	c := s.Charge
	counted := c.Deaths > 0 || c.Lost > 0
	switch {
	case s.Parked != objectstore.NotParked:
		return "parked"
	case c == objectstore.Charge{}:
		return "clear"
	case c.Host == 0:
		return "delayed"
	case !counted:
		return "charged"
	case c.Begun:
		return "begun"
	}
	return "suspect"
}

// TestCrashLoopMakesTheDrawnTransitions lets hosts charge the alarm, die, close and revive it, in each order, and compares
// the transitions with the diagram of CrashLoop. It follows lost runs up to one more than MaxDeaths.
func TestCrashLoopMakesTheDrawnTransitions(t *testing.T) {
	const host = 9 // of the last charge; the next one is made by it or by host+1
	generation := func() uint64 { return 1 }
	made := map[lifecycletest.Transition]bool{}
	seen := map[objectstore.Charge]bool{}
	var visit func(s objectstore.Slot)
	next := func(from, to objectstore.Slot) {
		if to.Charge.Host != 0 {
			to.Charge.Host = host
		}
		if a, b := crashState(from), crashState(to); a != b {
			made[lifecycletest.Transition{From: a, To: b}] = true
		}
		visit(to)
	}
	visit = func(s objectstore.Slot) {
		if s.Parked != objectstore.NotParked {
			if s.Charge.Deaths != MaxDeaths {
				t.Errorf("parked with %+v", s.Charge)
			}
			next(s, Revive(s, slotNow, 1))
			return
		}
		if seen[s.Charge] || s.Charge.Lost > MaxDeaths+1 {
			return
		}
		seen[s.Charge] = true
		for _, l := range []CrashLoop{{Host: host, Unclean: true}, {Host: host + 1, Unclean: true}, {Host: host + 1}} {
			for _, handler := range []bool{false, true} {
				to, result := l.Charge(s, Run{HandlerBegins: handler, Now: slotNow, NewGeneration: generation})
				if runs := to.Charge.Host == l.Host; runs != result.Runs() {
					t.Errorf("%+v became %+v with the result %d", s.Charge, to.Charge, result)
				}
				next(s, to)
			}
		}
		if s.Charge.Host != 0 { // a run has begun
			next(s, Failed(s, Failure{Now: slotNow}))
		}
	}
	visit(charged(objectstore.Charge{}))
	if drawn := lifecycletest.Drawn(t, "crashloop.go"); !maps.Equal(made, drawn) {
		t.Errorf("made %v\ndrawn %v", made, drawn)
	}
}

// TestAlarmsDueAtTheStart decides about alarms that were due when the host started, just then, and later.
func TestAlarmsDueAtTheStart(t *testing.T) {
	for _, unclean := range []bool{false, true} {
		l := CrashLoop{Host: 9, Unclean: unclean}
		for after, due := range map[time.Duration]bool{-time.Second: true, 0: true, 1: false} {
			if got := l.chargesDelivery(slotNow.Add(after), slotNow); got != (unclean && due) {
				t.Errorf("unclean %t, due %v after the start: charged %t", unclean, after, got)
			}
			for tries, waits := range map[int]bool{0: due, maxAwaitedTries - 1: due, maxAwaitedTries: false} {
				if got := l.suspectsWait(slotNow.Add(after), slotNow, tries); got != waits {
					t.Errorf("due %v after the start, tried %d times: suspects wait %t", after, tries, got)
				}
			}
		}
	}
}

func TestAlarmSetByHandlerInheritsCharge(t *testing.T) {
	run := objectstore.Charge{Host: 9, Begun: true, Lost: 1}
	if got := SetByHandler(charged(objectstore.Charge{}), run); got != charged(run) {
		t.Errorf("%+v", got)
	}
}

func TestAlarmSetByConstructorInheritsCounts(t *testing.T) {
	set := objectstore.Slot{Due: slotNow, Generation: 2, AtStart: true}
	for name, delivered := range map[string]objectstore.Slot{
		"no counts": {Due: slotDue, Generation: 1},
		"failures":  {Due: slotDue, Generation: 1, Attempt: 2, Error: "no"},
		"a charge":  charged(objectstore.Charge{Host: 9}),
		"deaths":    charged(objectstore.Charge{Deaths: 1}),
	} {
		want := set
		want.Attempt, want.Charge, want.Error = delivered.Attempt, delivered.Charge, delivered.Error
		want.First = objectstore.Setting{DueMS: slotDue.UnixMilli(), Generation: 1}
		if got := SetByConstructor(set, delivered); got != want {
			t.Errorf("%s: %+v; want %+v", name, got, want)
		}
	}
}

func TestClearCounts(t *testing.T) {
	generation := func() uint64 { return 5 }
	plain := objectstore.Slot{Due: slotDue, Generation: 1, AtStart: true}
	if got := ClearCounts(plain, generation); got != plain {
		t.Errorf("nothing to take off: %+v", got)
	}
	want := plain
	want.Generation = 5
	for _, change := range []func(*objectstore.Slot){
		func(s *objectstore.Slot) { s.Attempt = 1 }, func(s *objectstore.Slot) { s.Error = "no" },
		func(s *objectstore.Slot) { s.Charge.Host = 1 }, func(s *objectstore.Slot) { s.First.Generation = 1 },
	} {
		s := plain
		if change(&s); ClearCounts(s, generation) != want {
			t.Errorf("%+v became %+v", s, ClearCounts(s, generation))
		}
	}
}
