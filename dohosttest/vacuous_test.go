package dohosttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// testObject is an object that runs a function of the test.
type testObject struct {
	st  *dohost.State
	run func(ctx context.Context, t *testObject) error
}

const testObjects dohost.Namespace[testObject] = "thing"

func (t *testObject) do(ctx context.Context, _ int) (int, error) { return 0, t.run(ctx, t) }

func (t *testObject) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error { return t.run(ctx, t) }

// doing is a scenario of one call.
func doing(run func(ctx context.Context, t *testObject) error) *Scenario {
	return &Scenario{
		Classes: []dohost.Class{dohost.Bind(testObjects, func(_ context.Context, st *dohost.State) (*testObject, error) {
			return &testObject{st, run}, nil
		}, &dohost.Handlers[testObject]{OnAlarm: (*testObject).onAlarm})},
		Run: func(ctx context.Context, h *Host) error {
			_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
			return err
		},
		Check: func(context.Context, *Host) error { return nil },
	}
}

func put(ctx context.Context, t *testObject) error { return dohost.Put(ctx, t.st.Storage(), "k", 1) }

// outside is a host that a bubble must not use.
func outside(t *testing.T) *dohost.Host {
	h, err := dohost.Open(t.TempDir(), nil, doing(put).Classes...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestEveryPointRejectsVacuousScenarios has everything that must not count as a pass.
func TestEveryPointRejectsVacuousScenarios(t *testing.T) {
	const stuck, endless = "as a real socket", "the run does not end: 4097 steps, the last of them at storage of thing/a"
	patience, limit := stuckAfter, maxSteps
	defer func() { stuckAfter, maxSteps = patience, limit }()
	var runs atomic.Int64
	host := outside(t)
	for name, c := range map[string]struct {
		change func(*Scenario)
		want   string
	}{
		"no Run":             {func(s *Scenario) { s.Run = nil }, "no Run"},
		"no Check":           {func(s *Scenario) { s.Check = nil }, "no Check"},
		"no Classes":         {func(s *Scenario) { s.Classes = nil }, "no Classes"},
		"place":              {func(s *Scenario) { s.Places = []dohost.Place{99} }, `place "place 99": want some of [construct start`},
		"no such place here": {func(s *Scenario) { s.Places = []dohost.Place{eviction.PlaceChunk} }, "no run was interrupted: none of 11 points is at one of the places [chunk]"},
		"no Endings":         {func(s *Scenario) { s.Endings = []dohost.EndMode{} }, "no Endings"},
		"ending":             {func(s *Scenario) { s.Endings = []dohost.EndMode{dohost.EndRestart} }, "the scenario's Endings contain restart"},
		"no such ending here": {func(s *Scenario) {
			s.Places, s.Endings = []dohost.Place{eviction.PlaceCommit}, []dohost.EndMode{dohost.EndKill}
		}, "places [commit] and allows one of the Endings [kill]"},
		"a client that fails": {func(s *Scenario) {
			run := s.Run
			s.Run = func(ctx context.Context, h *Host) error {
				h.Client(func(context.Context) error { panic("out of ribbon") })
				return run(ctx, h)
			}
		}, "out of ribbon"},
		"an object that panics in its second incarnation": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error {
				if _, ok, err := dohost.Get[int](ctx, t.st.Storage(), "k"); ok || err != nil {
					panic("out of luck")
				}
				return put(ctx, t)
			})
			run := s.Run
			s.Run = func(ctx context.Context, h *Host) error {
				return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error { return run(ctx, h) })
			}
		}, "out of luck"},
		"an alarm that panics after the end": {func(s *Scenario) {
			n := 0
			*s = *doing(func(ctx context.Context, t *testObject) error {
				switch n++; n {
				case 1:
					return put(ctx, t)
				case 2:
					return t.st.SetAlarm(ctx, time.Now().Add(time.Second))
				case 3:
					panic("out of sight")
				}
				return nil
			})
			run := s.Run
			s.Run = func(ctx context.Context, h *Host) error {
				return dohost.Retry(ctx, &dohost.RetryPolicy{ShouldRetry: dohost.RetryIdempotent}, func(ctx context.Context) error { return run(ctx, h) })
			}
			s.Reset = func() { n = 0 }
		}, "an object's code panicked, but does not in an undisturbed run"},
		"no points": {func(s *Scenario) { s.Run = func(context.Context, *Host) error { return nil } }, "no points"},
		"untouched run": {func(s *Scenario) {
			*s = *doing(func(context.Context, *testObject) error { return errors.New("out of milk") })
		}, "the undisturbed run fails: run: dohost: do thing/a: out of milk"},
		"untouched check": {func(s *Scenario) {
			s.Check = func(context.Context, *Host) error { return errors.New("wrong from the start") }
		}, "the undisturbed run fails: check: wrong from the start"},
		"left of the last run": {func(s *Scenario) {
			n := 0
			s.Check = func(context.Context, *Host) error {
				if n++; n > 2 {
					return errors.New("ran twice")
				}
				return nil
			}
		}, "a second undisturbed run fails, because the first left state"},
		"points differ": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error {
				if runs.Add(1)%2 == 0 {
					return put(ctx, t)
				}
				return dohost.Sleep(ctx, time.Second)
			})
		}, "not deterministic: of two undisturbed runs, the first has thing/a point 5 (incarnation 1, event 1 do, commit 1) where the second has thing/a point 5 (incarnation 1, event 1 do, storage 1)"},
		"unreached": {func(s *Scenario) {
			n, run := 0, s.Run
			s.Run = func(ctx context.Context, h *Host) error {
				if n++; n > 2 {
					return nil
				}
				return run(ctx, h)
			}
		}, "not deterministic: thing/a point 1 (incarnation 1, event 0 constructor, construct 1) was not reached; the object has 0 points in this run"},
		"no rest": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error { return t.st.SetAlarm(ctx, time.Now().Add(time.Hour)) })
		}, "the host is not idle after 24h0m0s: 1 alarms are set, the next for"},
		"an event without end": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error {
				return t.st.Go(ctx, "wait", func(ctx context.Context) error { return dohost.Sleep(ctx, 100*24*time.Hour) })
			})
		}, "the host is not idle after 24h0m0s: 1 events have not ended; thing/a: task wait"},
		"a loop without end": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error {
				for {
					if err := put(ctx, t); err != nil {
						return err
					}
				}
			})
		}, endless},
		"a leaked goroutine": {func(s *Scenario) {
			*s = *doing(func(context.Context, *testObject) error {
				go func() { select {} }()
				return nil
			})
		}, "a goroutine has leaked"},
		"a handler without end": {func(s *Scenario) {
			*s = *doing(func(context.Context, *testObject) error { select {} })
			s.Timeout = time.Minute
			s.Run = func(ctx context.Context, h *Host) error {
				h.Client(func(ctx context.Context) error {
					_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
					return err
				})
				return nil
			}
		}, "run: the Run function did not return within 1m0s"},
		"a Run without end": {func(s *Scenario) {
			s.Run = func(ctx context.Context, h *Host) error {
				_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
				<-ctx.Done()
				return err
			}
		}, "run: the Run function did not return within 24h0m0s"},
		"a panic": {func(s *Scenario) {
			s.Run = func(context.Context, *Host) error { panic("out of paper") }
		}, "panic: out of paper"},
		"Goexit": {func(s *Scenario) {
			s.Run = func(context.Context, *Host) error { (&testing.T{}).FailNow(); return nil }
		}, "a client ended its goroutine instead of returning an error"},
		"no class": {func(s *Scenario) {
			s.Run = func(ctx context.Context, h *Host) error {
				_, err := dohost.Call(ctx, dohost.Namespace[testObject]("thong").Get(h, "a"), (*testObject).do, 0)
				return err
			}
		}, `no such class: "thong"`},
		"a real socket": {func(s *Scenario) {
			*s = *doing(func(ctx context.Context, t *testObject) error {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				_, err = l.Accept()
				return err
			})
		}, stuck},
		"a Host of another run": {func(s *Scenario) {
			var first *Host
			s.Run = func(ctx context.Context, h *Host) error {
				if first == nil {
					first = h
				}
				_, err := dohost.Call(ctx, testObjects.Get(first, "a"), (*testObject).do, 0)
				return err
			}
		}, "the run of this Host is over; use the Host that the function gets"},
		"a host that was opened outside": {func(s *Scenario) {
			s.Run = func(ctx context.Context, _ *Host) error {
				_, err := dohost.Call(ctx, testObjects.Get(host, "a"), (*testObject).do, 0)
				return err
			}
		}, "the host was opened outside of this synctest bubble"},
	} {
		t.Run(name, func(t *testing.T) {
			s := doing(put)
			c.change(s)
			if stuckAfter = patience; c.want == stuck {
				stuckAfter = 2 * time.Second
			}
			if maxSteps = limit; c.want == endless {
				maxSteps = 1 << 12
			}
			r := explore(t, s)
			if len(r.Failures) == 0 {
				t.Fatalf("passed: %s", r.summary())
			}
			if text := r.Failures[0].Error(); !strings.Contains(text, c.want) {
				t.Errorf("want %q in:\n%s", c.want, text)
			}
		})
	}
}

// TestEveryPointStopsAfterManyFailures fails every check except those of the untouched runs.
func TestEveryPointStopsAfterManyFailures(t *testing.T) {
	s := doing(put)
	run, checks := s.Run, 0
	s.Run = func(ctx context.Context, h *Host) error {
		var err error
		for range 30 {
			err = errors.Join(err, run(ctx, h))
		}
		return err
	}
	s.Check = func(context.Context, *Host) error {
		if checks++; checks > 4 { // each run is checked twice
			return errors.New("no")
		}
		return nil
	}
	r := explore(t, s)
	reported := r.reported("TestX")
	last := reported[len(reported)-1].Error()
	// The endings at one point are tried together.
	n := len(r.Failures)
	said := strings.HasPrefix(last, fmt.Sprintf("%d more failures: ", n-maxReported)) &&
		strings.HasSuffix(last, "; the points after them were not tried")
	if n < maxFailures || n > maxFailures+3 || !said {
		t.Errorf("%d failures of %d points: %s", n, r.Points, last)
	}
	if s := r.summary(); strings.Contains(s, "100% of them") {
		t.Errorf("summary: %s", s)
	}
}

// TestEveryPointWithEndings has no other endings than those of the scenario, in its single endings and in its pairs.
func TestEveryPointWithEndings(t *testing.T) {
	s := putOnce()
	s.Endings, s.Pairs = []dohost.EndMode{dohost.EndPowerCut}, 5
	r := explore(t, s)
	if len(r.Failures) > 0 {
		t.Error(r.Failures[0].err)
	}
	if len(r.Runs) != 1 || r.Runs[dohost.EndPowerCut] == 0 || r.Pairs != 5 {
		t.Errorf("runs: %v, %d pairs", r.Runs, r.Pairs)
	}
}
