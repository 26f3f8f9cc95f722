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

func TestSlotFailed(t *testing.T) {
	s := charged(objectstore.Charge{Host: 9, Begun: true, Lost: 1, Deaths: 2})
	s.AtStart = true
	first := s.Setting()
	for attempt := 1; attempt < MaxRuns; attempt++ {
		s = Failed(s, Failure{Now: slotNow, Generation: uint64(attempt), Error: "no"})
		want := objectstore.Slot{
			Due: slotNow.Add(2 * time.Second << (attempt - 1)), Generation: uint64(attempt), Attempt: attempt, AtStart: true, Error: "no",
			First: first,
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
		if got := Revive(last, slotNow, 8); got != (objectstore.Slot{Due: slotNow, Generation: 8, AtStart: true, First: first}) {
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
