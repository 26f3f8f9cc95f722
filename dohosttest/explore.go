package dohosttest

import (
	"cmp"
	"testing"
)

// Service is an outside system of a test, which counts its effects. A [*FakeService] is one. The methods may be called from
// any goroutine.
type Service interface {
	// Keys returns the keys of all requests since the last Reset.
	Keys() []string
	// Effects returns how often the effect of a key has happened since the last Reset.
	Effects(key string) int
	// Reset makes the service empty.
	Reset()
}

var _ Service = (*FakeService)(nil)

// Reset makes the service empty, as it is at the beginning of a run.
func (s *FakeService) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// Explore is [EveryPoint] for packages that check a scenario of their own: t does not fail. It returns the failures,
// without any if the scenario has passed, and the summary that EveryPoint logs. With -dohosttest.replay or Scenario.Replay it
// runs only that replay, and the summary is empty. A replay line names t, so run one Explore in a test.
func Explore(t *testing.T, s Scenario) (failures []*Failure, summary string) {
	if text := cmp.Or(*replayFlag, s.Replay); text != "" {
		return replay(t, &s, text), ""
	}
	r := explore(t, &s)
	return r.reported(t.Name()), r.summary()
}
