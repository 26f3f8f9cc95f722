package main

import (
	"testing"
	"time"
)

// TestDelayBeginsAtTheSync has a note whose sync has ended a minute ago. A note without a sync is a fault of the watch.
func TestDelayBeginsAtTheSync(t *testing.T) {
	took, err := delayOf(fixedLog(time.Now().Add(-time.Minute)))
	if err != nil || took < time.Minute || took > 2*time.Minute {
		t.Errorf("the delay is %v, %v; want a minute", took, err)
	}
	_, err = delayOf(fixedLog{})
	check(t, err, "before a sync of the log")
}

// TestDelaysAreOfEachWatch inserts five notes into a collection with three watches.
func TestDelaysAreOfEachWatch(t *testing.T) {
	s, err := small(t).openDelays(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	w := (&meter{}).worker()
	for range 5 {
		began := time.Now()
		if err := s.one(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		for _, took := range w.took[len(w.took)-3:] {
			if most := time.Since(began); took < 0 || took > most {
				t.Errorf("a delay is %v, and the insert began %v ago", took, most)
			}
		}
	}
	if len(w.took) != 15 {
		t.Errorf("%d delays, want 15", len(w.took))
	}
	check(t, s.verify(t.Context(), 5), "")
	check(t, s.close(), "")
}

// TestWatchWithANoteTwice ends a watch that has a note that the side does not expect.
func TestWatchWithANoteTwice(t *testing.T) {
	s := &watchSide{delays: make(chan time.Duration, 1)}
	s.log.ended()
	check(t, s.delayed(), "")
	check(t, s.delayed(), "twice")
}
