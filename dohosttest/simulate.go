package dohosttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/eviction"
)

// Simulation is a random workload, under random endings, jumps of the clock and failing
// syncs, in a random order of steps. All of it is a function of a seed, so a run that fails
// can be repeated, and made shorter.
type Simulation struct {
	// Scenario has the classes, the check and the other parts of a run. Its Run is for a
	// workload that is not drawn; with Ops it may be nil, and otherwise runs before them.
	// Simulate ignores Sample, Pairs and Batched.
	Scenario
	// Ops are the operations of clients, drawn by weight. After an ending an Op may return
	// the same errors as Scenario.Run.
	Ops []Op
	// Clients is the number of concurrent clients. Zero means 3.
	Clients int
	// Steps is how many operations all clients do in a run. Zero means 30.
	Steps int
	// Runs is the number of runs, with seeds from Scenario.Seed on. Zero means 100.
	Runs int
	// Chance is the probability of an ending at a point, at most 1. Zero means 0.02; negative, none.
	Chance float64
	// Endings are the modes of the endings, as in Scenario.
	Endings []dohost.EndMode
	// Faults is the probability of a fault of the host before an operation: its process
	// ends and the next one starts a while later, or a sync fails (with SharedLog: its lease ends), or it restarts in good
	// order. At most 1; zero means 0.05; negative, none. With SharedLog a tenth of the appends to the log, and of its bases
	// and purges, fail or lose their answers.
	Faults float64
}

// Op is an operation of a client.
type Op struct {
	Name string
	// Weight is how often it is drawn, relative to the others. Zero means 1.
	Weight int
	// Do runs the operation. It must take its random numbers from r.
	Do func(ctx context.Context, h *Host, r *rand.Rand) error
}

// Simulate runs a simulation with one seed after the other. If a run fails, Simulate
// repeats it with ever smaller scripts that still fail, up to 400 times and for 20 s of real time. t gets the
// smallest script, the log, and a line that replays it, and Simulate stops. Simulate also fails t if no run ended
// anything, or no operation of any run succeeded.
//
// Run one Simulate in a test: the line names the test.
func Simulate(t *testing.T, s Simulation) {
	t.Helper()
	first, runs := s.Seed, cmp.Or(s.Runs, 100)
	if text := cmp.Or(*replayFlag, s.Replay); text != "" {
		seed, err := parseSeed(text)
		if err != nil {
			t.Fatalf("-dohosttest.replay: %v", err)
		}
		first, runs = seed, 1
	}
	summary, err := s.all(t, first, runs)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(summary)
}

// all runs the seeds.
func (s *Simulation) all(t *testing.T, first uint64, runs int) (summary string, err error) {
	begun, sum := time.Now(), RunStats{}
	for seed := first; seed < first+uint64(runs); seed++ {
		done, err := s.Try(t, seed)
		if err != nil {
			return "", fmt.Errorf("%w\nreplay: go test -run '%s' . -dohosttest.replay='seed:%d'", err, pattern(t.Name()), seed)
		}
		sum.Endings += done.Endings
		sum.Points += done.Points
		sum.Ops += done.Ops
	}
	switch {
	case sum.Points == 0:
		return "", fmt.Errorf("no points in %d runs: no object was reached", runs)
	case sum.Endings == 0 && (s.Chance >= 0 || s.Faults >= 0) && runs > 1:
		return "", fmt.Errorf("none of %d runs was interrupted: they would pass for any behaviour", runs)
	case sum.Ops == 0 && len(s.Ops) > 0 && runs > 1:
		return "", fmt.Errorf("no operation succeeded in %d runs: they would pass for any behaviour; use a lower Chance", runs)
	}
	return fmt.Sprintf("%d runs from seed %d, %d operations, %d interruptions; %v",
		runs, first, sum.Ops, sum.Endings, time.Since(begun).Round(time.Millisecond)), nil
}

func parseSeed(text string) (uint64, error) {
	number, ok := strings.CutPrefix(text, "seed:")
	if !ok {
		return 0, fmt.Errorf("%q: want seed:N", text)
	}
	return strconv.ParseUint(number, 10, 64)
}

// RunStats has the counts of a run.
type RunStats struct {
	Steps   int           // of the host's goroutines, one after the other
	Points  int           // the steps where an incarnation could end
	Ops     int           // of clients, without an error
	Endings int           // of incarnations and processes
	Time    time.Duration // in virtual time, until the run was at rest
}

// Try runs the simulation once. If the run fails, Try makes it shorter, and the error has
// the script and the log; without Ops it is a [*Failure]. For programs that choose the seeds themselves.
func (s *Simulation) Try(t *testing.T, seed uint64) (RunStats, error) {
	if err := s.check(); err != nil {
		return RunStats{}, err
	}
	sc := s.draw(seed)
	got := s.play(t, sc, true)
	if got.err == nil {
		return RunStats{got.run.steps, len(got.points), int(got.ops.Load()), got.run.countEndings(), got.took}, nil
	}
	sc, got, note := s.shrink(t, sc, got)
	if len(s.Ops) == 0 {
		return RunStats{}, &Failure{
			plan: got.run.endings, endings: got.run.endings, order: drawnOrder(seed), err: got.err, cause: got.err,
			log: got.run.log.about(len(got.run.endings) > 0), test: t.Name(),
		}
	}
	return RunStats{}, fmt.Errorf("dohosttest: seed %d: %w\n%s:\n%vlog:\n%s", seed, got.err, note, sc, got.run.log.about(len(got.run.endings) > 0))
}

func (s *Simulation) check() error {
	sc := s.Scenario
	if len(s.Ops) > 0 && sc.Run == nil {
		sc.Run = func(context.Context, *Host) error { return nil }
	}
	switch {
	case s.Endings != nil && len(s.Endings) == 0:
		return errors.New("the simulation has no Endings: nil means all")
	case s.Clients < 0 || s.Steps < 0 || s.Runs < 0:
		return errors.New("the simulation has negative Clients, Steps or Runs")
	case !(s.Chance <= 1) || !(s.Faults <= 1):
		return fmt.Errorf("the simulation's Chance is %v, and Faults %v: want at most 1", s.Chance, s.Faults)
	}
	if err := checkEndings("simulation", s.Endings, s.SharedLog); err != nil {
		return err
	}
	for _, op := range s.Ops {
		if op.Do == nil || op.Weight < 0 {
			return fmt.Errorf("operation %q has no Do, or a weight below zero", op.Name)
		}
	}
	return sc.check()
}

// play runs a script. If draw is set it draws the endings and adds them to the script,
// otherwise it takes them from the script.
func (s *Simulation) play(t *testing.T, sc *script, draw bool) *trial {
	if s.Reset != nil {
		s.Reset()
	}
	w := &scenarioRun{
		classes: s.Classes, options: s.Options, services: s.Services, order: drawnOrder(sc.seed),
		moved: new(atomic.Int64),
	}
	w.share(s.SharedLog)
	w.drawEnding = func(p Point) dohost.EndMode {
		if !draw {
			return sc.endings[spot{p.Object, p.Index}]
		}
		ending := s.drawEnding(rand.New(rand.NewPCG(hashOf(sc.seed, p), 0)), p.Place)
		if !canEnd(ending, p) {
			return eviction.EndNone
		}
		if ending != eviction.EndNone {
			sc.endings[spot{p.Object, p.Index}] = ending
		}
		return ending
	}
	tr := &trial{run: w}
	tr.err = w.runInBubble(t, func(ctx context.Context, h *Host) error {
		err := s.act(ctx, h, sc, tr)
		if err == nil {
			err = s.waitIdle(h)
			w.atStandstill(func() { w.drawEnding = nil }) // the check must not be disturbed
			w.checking.Store(true)
		}
		tr.took = time.Since(w.began)
		w.atStandstill(func() { tr.points = w.points() })
		if err == nil {
			err = s.checkTwice(ctx, h)
		}
		return err
	})
	if errors.Is(tr.err, errStuck) {
		tr.run = &scenarioRun{}
	}
	return tr
}

// drawEnding draws the ending at a point, or none.
func (s *Simulation) drawEnding(r *rand.Rand, place dohost.Place) dohost.EndMode {
	if r.Float64() >= cmp.Or(s.Chance, 0.02) || s.Places != nil && !slices.Contains(s.Places, place) {
		return eviction.EndNone
	}
	es := endings(s.Endings, s.SharedLog)
	return es[r.IntN(len(es))]
}

// act runs the actions of a script.
func (s *Simulation) act(ctx context.Context, h *Host, sc *script, tr *trial) error {
	if s.Run != nil {
		if err := s.run(h); err != nil {
			return err
		}
	}
	if len(s.Ops) == 0 { // no client may draw from the order of steps
		return nil
	}
	begun := time.Now()
	var clients []*Client
	for n := range cmp.Or(s.Clients, 3) + 1 {
		clients = append(clients, h.Client(func(ctx context.Context) error {
			for _, a := range sc.actions {
				if a.client != n {
					continue
				}
				time.Sleep(time.Until(begun.Add(a.at)))
				h.run.pause(ctx)
				err := s.do(ctx, h, a)
				if err != nil && !h.run.excuses(err) {
					return fmt.Errorf("%v: %w", a, err)
				}
				if err == nil && a.fault == faultNone {
					tr.ops.Add(1)
				}
			}
			return nil
		}))
	}
	var errs []error
	for _, c := range clients {
		errs = append(errs, c.Wait())
	}
	return errors.Join(errs...)
}

var errDisk = errors.New("a sync of the disk failed")

// do does one action.
func (s *Simulation) do(ctx context.Context, h *Host, a action) error {
	switch a.fault {
	case faultDowntime:
		h.run.atStandstill(func() {
			h.run.disturbed = true
			h.run.log.addText(dohost.ID{}, "%v, then down for %v", a.ending, a.downtime)
			h.run.endFor(a.ending == eviction.EndKill, a.downtime)
		})
		return nil
	case faultSync:
		if s.SharedLog {
			h.ExpireLease()
			h.Advance(a.downtime)
			return h.Restart()
		}
		h.FailSync(errDisk)
		h.Advance(a.downtime)
		if err := h.Restart(); err != nil && !strings.Contains(err.Error(), errDisk.Error()) {
			return err
		}
		return nil
	case faultRestart:
		return h.Restart()
	}
	return s.Ops[a.op].Do(ctx, h, rand.New(rand.NewPCG(a.seed, 0)))
}

// waitIdle waits until a run is at rest.
func (s *Scenario) waitIdle(h *Host) error {
	if s.SettleTime > 0 {
		h.Advance(s.SettleTime)
		return nil
	}
	return h.WaitIdle(s.Timeout)
}

// checkTwice calls the check for the state in memory, and for the state on the disk.
func (s *Scenario) checkTwice(ctx context.Context, h *Host) error {
	if err := s.Check(ctx, h); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	h.EvictAll()
	if err := s.Check(ctx, h); err != nil {
		return fmt.Errorf("check, with new incarnations: %w", err)
	}
	return nil
}
