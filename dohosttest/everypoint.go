package dohosttest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/runtime"
)

// Scenario is a workload of clients on objects, with a condition that must hold after it.
// It runs many times, so a run must leave nothing: state that Run and Check share with the
// classes is among Services, or Reset restores it.
type Scenario struct {
	// Classes are the classes of the objects. Required.
	Classes []dohost.Class
	// Run is the work of a client. ctx ends when the run is given up. After the test or Run
	// has ended something, clients may get [dohost.ErrFenced] and [dohost.ErrClosed] from
	// that ending, and Check must accept the resulting state; every other error is a
	// failure. [Host.Client] starts further clients: Run lasts until they have returned,
	// and their errors count like the errors of Run. Required.
	Run func(ctx context.Context, h *Host) error
	// Check returns an error if the state is wrong after recovery. It is called twice: for
	// the present incarnations, and for new ones that know only the store. Required.
	Check func(ctx context.Context, h *Host) error
	// Services are doubles that start empty in every run.
	Services []*FakeService
	// HadEffect, if set, reports whether an outcome that an object reported as unknown had its effect: see
	// [RecoveryCost].Unknown. id is the attribute "operation" or "call" of the report: the ID of an operation of package
	// ledger, or of a tool call. HadEffect is called before the run continues, from any goroutine, and must not call the host.
	HadEffect func(id string) bool
	// Reset, if set, is called before every run.
	Reset func()
	// Options are the host's options. The test sets Chaos and keeps the store in memory.
	Options dohost.Options
	// SettleTime, if set, is how long the run lasts after Run, for a scenario with alarms that
	// never end. Otherwise a run ends when no alarm is set and no event runs.
	SettleTime time.Duration
	// Timeout is the limit for Run, and for the time to rest after it. Zero means a day each.
	Timeout time.Duration
	// Places are the places where incarnations are ended; nil means all, as [dohost.Places]
	// lists them.
	Places []dohost.Place
	// Endings are the modes of the endings: [dohost.EndFence], [dohost.EndCrash], [dohost.EndPowerCut] and
	// [dohost.EndKill], and with SharedLog [dohost.EndTakeOver]. Nil means all of them.
	Endings []dohost.EndMode
	// FullDisk adds runs with a disk that is full during one operation on storage: a write returns an error there that errors.Is
	// matches with [dohost.ErrNoSpace]. Clients may then get such an error, too, and Check must accept the resulting state: the
	// earlier writes of the event stay, unless they were in the same [dohost.Transaction]. Work without a client must be done in the end.
	// Pairs are of endings only.
	FullDisk bool
	// SharedLog keeps the history of the store in a shared log in memory, which each process acquires. With
	// [dohost.EndTakeOver] another process acquires it, with an older directory or an empty one, while the code of the
	// former owner keeps running for some seconds, with no effect except on the Services. Bases cut the log after a few records
	// (Options.BaseAfter), also while another process takes over.
	SharedLog bool
	// Sample, if not zero, is how many runs with one ending EveryPoint does, for a test that must be quick, and with FullDisk a third
	// as many with a full disk. If there are more, Seed draws them, and the summary reports how many of the points were tried. Let another test, or the same test
	// with a flag, do all.
	Sample int
	// Pairs is how many pairs of endings are tried: the first ending is one that was tried
	// alone, the second at a point of the recovery from it. If there are more pairs, Seed draws them.
	Pairs int
	// Seed draws the sample and the pairs.
	Seed uint64
	// Batched adds a second pass with a slow disk: all waiting writes become one record.
	Batched bool
	// Replay, if set, is the value of a replay line, or of [Failure.Replay]: the test does only this run, as it does with the
	// flag -dohosttest.replay, which has precedence.
	Replay string
}

var replayFlag = flag.String("dohosttest.replay", "", "replay one run: the value is in the replay line of a failure")

// maxReported is the number of points that are reported in full.
const maxReported = 3

// maxFailures is the number of failures after which EveryPoint stops: more would teach nothing.
const maxFailures = 50

// EveryPoint runs a scenario untouched, and counts the points where an incarnation can end.
// Then it runs the scenario again for every point, with [dohost.EndFence], [dohost.EndCrash] and [dohost.EndPowerCut]
// there, and with [dohost.EndKill] while a record is on its way to the disk; with Scenario.SharedLog also with
// [dohost.EndTakeOver] at every point. Scenario.Endings restricts these modes. Scenario.FullDisk adds a run for every operation on
// storage. Each run
// continues until recovery is at rest, and is checked. Scenario.Sample bounds the number of these runs.
//
// It fails t if a check fails; and also if there are no points or no check, if two
// untouched runs pass different points, if a run does not reach the point of its ending,
// does not come to rest, or leaks a goroutine. A failure names the point, with class, event
// and line, lists the events around it, and ends with a line that replays only that run.
// EveryPoint reports one failure of each of the first three points, and counts the others by
// their places. After fifty failures it tries no more points.
//
// Run one EveryPoint in a test: the line names the test.
func EveryPoint(t *testing.T, s Scenario) {
	t.Helper()
	failures, summary := Explore(t, s)
	for _, f := range failures {
		t.Error(f)
	}
	if summary != "" {
		t.Log(summary)
	}
}

// trial is one run of a scenario.
type trial struct {
	run    *scenarioRun
	points []Point // before the check
	since  []Point // those after the first ending, in the order of the run
	took   time.Duration
	ops    atomic.Int64 // successful operations of a simulation
	err    error
}

func (s *Scenario) check() error {
	switch {
	case s.Run == nil:
		return errors.New("the scenario has no Run")
	case s.Check == nil:
		return errors.New("the scenario has no Check: it would pass for any behaviour")
	case len(s.Classes) == 0:
		return errors.New("the scenario has no Classes")
	case s.Sample < 0 || s.Pairs < 0:
		return errors.New("the scenario has a negative Sample or Pairs")
	case s.Endings != nil && len(s.Endings) == 0:
		return errors.New("the scenario has no Endings: nil means all")
	}
	if err := checkEndings("scenario", s.Endings, s.SharedLog); err != nil {
		return err
	}
	return checkPlaces(s.Places)
}

// endings returns the modes that end runs.
func (s *Scenario) endings() []dohost.EndMode { return endings(s.Endings, s.SharedLog) }

// try runs a scenario once.
func (s *Scenario) try(t *testing.T, moved *atomic.Int64, o order, plan []interruption) *trial {
	if s.Reset != nil {
		s.Reset()
	}
	w := &scenarioRun{classes: s.Classes, options: s.Options, services: s.Services, hadEffect: s.HadEffect, order: o, moved: moved, plan: plan, targets: plan}
	w.share(s.SharedLog)
	tr := &trial{run: w}
	tr.err = w.runInBubble(t, func(ctx context.Context, h *Host) error {
		if err := s.run(h); err != nil {
			return err
		}
		var err error
		if err := s.waitIdle(h); err != nil {
			return err
		}
		w.atStandstill(func() {
			tr.took = time.Since(w.began)
			tr.points, tr.since = w.points(), w.sinceEnding()
			err = w.unreached(plan)
		})
		if err != nil {
			return err
		}
		return s.checkTwice(ctx, h)
	})
	switch {
	case errors.Is(tr.err, errStuck):
		tr.run = &scenarioRun{} // the other still belongs to its bubble
	case tr.points == nil:
		tr.points = w.points()
	}
	return tr
}

// run runs the scenario's Run, with a limit in virtual time.
func (s *Scenario) run(h *Host) error {
	limit := cmp.Or(s.Timeout, maxIdleWait)
	late := time.AfterFunc(limit, func() {
		h.run.atStandstill(func() { h.run.fail(fmt.Errorf("run: the Run function did not return within %v", limit)) })
	})
	defer late.Stop()
	err := h.Client(func(ctx context.Context) error { return s.Run(ctx, h) }).Wait()
	if err != nil && !h.run.excuses(err) {
		return fmt.Errorf("run: %w", err)
	}
	if err := h.run.clients.joinOthers(h.run.excuses); err != nil {
		return fmt.Errorf("run: a client: %w", err)
	}
	return nil
}

// excuses reports whether a client may fail with err because the test has ended something.
func (w *scenarioRun) excuses(err error) (excused bool) {
	full := false
	w.atStandstill(func() {
		excused = len(w.endings) > 0 || w.disturbed
		full = slices.ContainsFunc(w.endings, func(i interruption) bool { return i.Ending == fullDisk })
	})
	return excused && byEnding(err) || full && errors.Is(err, dohost.ErrNoSpace)
}

// byEnding reports whether a call failed because the test has ended something, and not by
// the object's own fault, such as a panic.
func byEnding(err error) bool {
	if f, ok := errors.AsType[*dohost.Fenced](err); ok {
		switch f.Reason {
		case dohost.ReasonChaos, dohost.ReasonKilled, dohost.ReasonClosing, dohost.ReasonStore, dohost.ReasonEvicted:
			return true
		}
		return false
	}
	if errors.Is(err, runtime.ErrConstructor) {
		return false
	}
	return errors.Is(err, dohost.ErrFenced) || errors.Is(err, dohost.ErrClosed)
}

// unreached returns an error if the run did not reach the point of its next ending.
func (w *scenarioRun) unreached(plan []interruption) error {
	if len(w.endings) >= len(plan) || w.failed != nil {
		return nil
	}
	s := plan[len(w.endings)]
	tr := w.traces[s.Point.Object]
	n := 0
	if tr != nil {
		n = len(tr.points)
	}
	return fmt.Errorf("%w: %v was not reached; the object has %d points in this run", errNotDeterministic, s.Point, n)
}
