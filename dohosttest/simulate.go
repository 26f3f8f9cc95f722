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
)

// Simulation is a workload that is drawn at random, under endings, jumps of the clock and
// failing syncs that are, and in an order of things that is. All of it is a function of a
// seed, so a run that fails can be had again, and made shorter.
type Simulation struct {
	// Scenario has the classes, the check and what else a run needs. Its Run is for a
	// workload that is not drawn; with Ops it may be nil, and else is done before them. Its
	// Pairs and Batched mean nothing here.
	Scenario
	// Ops are what clients do, drawn by weight. In a run in which something was ended an
	// Op may return what Scenario.Run may.
	Ops []Op
	// Clients is how many clients do so at once. Zero means 3.
	Clients int
	// Steps is how many operations they do in a run, together. Zero means 30.
	Steps int
	// Runs is how many runs there are, with seeds from Scenario.Seed on. Zero means 100.
	Runs int
	// Chance is that of an ending at a point, at most 1. Zero means 0.02; negative, none.
	Chance float64
	// Ways are those of the endings; nil means all.
	Ways []Way
	// Faults is the chance that beside an operation the host has a fault: its process ends
	// and is away for a while, or a sync fails, or it is restarted in good order. At most
	// 1; zero means 0.05; negative, none.
	Faults float64
}

// Op is something that a client does.
type Op struct {
	Name string
	// Weight is how often it is drawn, against the others. Zero means 1.
	Weight int
	// Do does it. What it draws, it draws from r.
	Do func(ctx context.Context, h *Host, r *rand.Rand) error
}

// Simulate runs a simulation with one seed after the other. A run that fails is repeated
// with less and less of it, as long as it still fails; t has the script that is left,
// what happened, and a line that replays it. It also fails t if no run ended anything, or
// no operation of any run succeeded.
//
// Run one Simulate in a test: the line names the test.
func Simulate(t *testing.T, s Simulation) {
	t.Helper()
	first, runs := s.Seed, cmp.Or(s.Runs, 100)
	if *replayFlag != "" {
		seed, err := parseSeed(*replayFlag)
		if err != nil {
			t.Fatalf("-dohosttest.replay: %v", err)
		}
		first, runs = seed, 1
	}
	told, err := s.all(t, first, runs)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(told)
}

// all goes through the seeds.
func (s *Simulation) all(t *testing.T, first uint64, runs int) (told string, err error) {
	begun, sum := time.Now(), Done{}
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
		return "", fmt.Errorf("nothing was ended in %d runs: they would pass whatever happens", runs)
	case sum.Ops == 0 && len(s.Ops) > 0 && runs > 1:
		return "", fmt.Errorf("no operation succeeded in %d runs: they would pass whatever happens; have a lower Chance", runs)
	}
	return fmt.Sprintf("%d runs from seed %d, %d operations, %d endings; %v",
		runs, first, sum.Ops, sum.Endings, time.Since(begun).Round(time.Millisecond)), nil
}

func parseSeed(text string) (uint64, error) {
	number, ok := strings.CutPrefix(text, "seed:")
	if !ok {
		return 0, fmt.Errorf("%q: want seed:N", text)
	}
	return strconv.ParseUint(number, 10, 64)
}

// Done is what a run has done.
type Done struct {
	Steps   int // that goroutines of the host took, one after the other
	Points  int // of those, at which an incarnation could end
	Ops     int // that clients did, without an error
	Endings int // of incarnations and processes
	Time    time.Duration
}

// Try runs the simulation once. If that fails it makes the run shorter, and the error
// has the script and what happened. For programs that go through seeds themselves.
func (s *Simulation) Try(t *testing.T, seed uint64) (Done, error) {
	if err := s.check(); err != nil {
		return Done{}, err
	}
	sc := s.draw(seed)
	got := s.play(t, sc, true)
	if got.err == nil {
		return Done{got.w.steps, len(got.points), int(got.ops.Load()), got.w.endings(), got.took}, nil
	}
	sc, got, note := s.shrink(t, sc, got)
	return Done{}, fmt.Errorf("seed %d: %w\n%s:\n%vwhat happened:\n%s", seed, got.err, note, sc, got.w.log.about(len(got.w.struck) > 0))
}

func (s *Simulation) check() error {
	sc := s.Scenario
	if len(s.Ops) > 0 && sc.Run == nil {
		sc.Run = func(context.Context, *Host) error { return nil }
	}
	switch {
	case s.Ways != nil && len(s.Ways) == 0:
		return errors.New("the simulation has no Ways: nil means all")
	case s.Clients < 0 || s.Steps < 0 || s.Runs < 0:
		return errors.New("the simulation has less than no Clients, Steps or Runs")
	case !(s.Chance <= 1) || !(s.Faults <= 1):
		return fmt.Errorf("the simulation's Chance is %v, and Faults %v: want at most 1", s.Chance, s.Faults)
	}
	for _, op := range s.Ops {
		if op.Do == nil || op.Weight < 0 {
			return fmt.Errorf("operation %q has no Do, or a weight below zero", op.Name)
		}
	}
	return sc.check()
}

// play runs a script. With draw the endings are drawn, and noted in it; else they are
// those that it has.
func (s *Simulation) play(t *testing.T, sc *script, draw bool) *trial {
	if s.Reset != nil {
		s.Reset()
	}
	w := &world{
		classes: s.Classes, options: s.Options, services: s.Services, order: diskDrawn, seed: sc.seed,
		moved: new(atomic.Int64),
	}
	w.chance = func(p Point) Way {
		if !draw {
			return sc.strikes[spot{p.Object, p.Index}]
		}
		way := s.drawWay(rand.New(rand.NewPCG(hashOf(sc.seed, p), 0)), p.Place)
		if !way.canEnd(p) {
			return None
		}
		if way != None {
			sc.strikes[spot{p.Object, p.Index}] = way
		}
		return way
	}
	tr := &trial{w: w}
	tr.err = w.in(t, func(ctx context.Context, h *Host) error {
		err := s.act(ctx, h, sc, tr)
		if err == nil {
			err = s.settle(h)
			w.atRest(func() { w.chance = nil }) // the check is of what is at rest
		}
		tr.took = time.Since(w.began)
		w.atRest(func() { tr.points = w.points() })
		if err == nil {
			err = s.checkTwice(ctx, h)
		}
		return err
	})
	if errors.Is(tr.err, errStuck) {
		tr.w = &world{}
	}
	return tr
}

// drawWay draws what happens at a point.
func (s *Simulation) drawWay(r *rand.Rand, place string) Way {
	if r.Float64() >= cmp.Or(s.Chance, 0.02) || s.Places != nil && !slices.Contains(s.Places, place) {
		return None
	}
	if s.Ways == nil {
		return Fence + Way(r.IntN(int(Kill)))
	}
	return s.Ways[r.IntN(len(s.Ways))]
}

// act does what a script says.
func (s *Simulation) act(ctx context.Context, h *Host, sc *script, tr *trial) error {
	if s.Run != nil {
		if err := s.run(h); err != nil {
			return err
		}
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
				h.w.pause(ctx)
				err := s.do(ctx, h, a)
				if err != nil && !h.w.excuses(err) {
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

var errDisk = errors.New("the disk fails a sync")

// do does one action.
func (s *Simulation) do(ctx context.Context, h *Host, a action) error {
	switch a.fault {
	case faultAway:
		h.w.atRest(func() {
			h.w.disturbed = true
			h.w.log.note(dohost.ID{}, "%v, and away for %v", a.way, a.away)
			h.w.endFor(a.way == Kill, a.away)
		})
		return nil
	case faultSync:
		h.FailSync(errDisk)
		h.Advance(a.away)
		if err := h.Restart(); err != nil && !strings.Contains(err.Error(), errDisk.Error()) {
			return err
		}
		return nil
	case faultRestart:
		return h.Restart()
	}
	return s.Ops[a.op].Do(ctx, h, rand.New(rand.NewPCG(a.seed, 0)))
}

// settle lets a run come to rest.
func (s *Scenario) settle(h *Host) error {
	if s.Settle > 0 {
		h.Advance(s.Settle)
		return nil
	}
	return h.Rest(s.Within)
}

// checkTwice asks the check, of what is in memory and of what is on the disk.
func (s *Scenario) checkTwice(ctx context.Context, h *Host) error {
	if err := s.Check(ctx, h); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	h.EvictAll()
	if err := s.Check(ctx, h); err != nil {
		return fmt.Errorf("check, of new incarnations: %w", err)
	}
	return nil
}
