package dohosttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/internal/invariants"
)

// account is an object that transfers money to others. It stores a transfer first, and
// sends it from an alarm until the other account has it.
type account struct {
	st  *dohost.State
	bug bool // accepts repeated transfers
}

const accounts dohost.Namespace[account] = "account"

const opening = 100

type transfer struct {
	To     string
	Amount int
}

var pending = dohost.Collection[transfer]{Name: "pending", Key: func(t transfer) string { return t.To }}

func accountClass(bug bool) dohost.Class {
	return dohost.Bind(accounts, func(_ context.Context, st *dohost.State) (*account, error) {
		return &account{st, bug}, nil
	}, &dohost.Handlers[account]{OnAlarm: (*account).onAlarm})
}

func (a *account) balance(ctx context.Context) (int, error) {
	n, ok, err := dohost.Get[int](ctx, a.st.Storage(), "balance")
	if !ok {
		n = opening
	}
	return n, err
}

// Send stores a transfer, unless one to the same account is pending.
func (a *account) Send(ctx context.Context, t transfer) (bool, error) {
	n, err := a.balance(ctx)
	if err != nil || n < t.Amount {
		return false, err
	}
	if _, busy, err := pending.Get(ctx, a.st.Storage(), t.To); err != nil || busy {
		return false, err
	}
	return true, errors.Join(
		pending.Insert(ctx, a.st.Storage(), t),
		dohost.Put(ctx, a.st.Storage(), "balance", n-t.Amount),
		a.st.SetAlarm(ctx, time.Now()),
	)
}

// onAlarm sends the pending transfers. A transfer's number makes a repetition harmless.
func (a *account) onAlarm(ctx context.Context, _ dohost.AlarmInfo) error {
	rows, err := pending.List(ctx, a.st.Storage(), nil)
	if err != nil {
		return err
	}
	for _, row := range rows {
		sent, _, err := dohost.Get[int](ctx, a.st.Storage(), "sent/"+row.Value.To)
		if err != nil {
			return err
		}
		m := money{a.st.ID().Name, sent + 1, row.Value.Amount}
		if _, err := dohost.Call(ctx, accounts.Get(a.st, row.Value.To), (*account).Take, m); err != nil {
			return err
		}
		_, err = pending.Delete(ctx, a.st.Storage(), row.Value.To)
		err = errors.Join(err, dohost.Put(ctx, a.st.Storage(), "sent/"+row.Value.To, sent+1))
		if err != nil {
			return err
		}
	}
	return nil
}

type money struct {
	From   string
	Number int
	Amount int
}

// Take accepts a transfer, once.
func (a *account) Take(ctx context.Context, m money) (bool, error) {
	had, _, err := dohost.Get[int](ctx, a.st.Storage(), "had/"+m.From)
	if err != nil || had >= m.Number && !a.bug {
		return false, err
	}
	n, err := a.balance(ctx)
	return true, errors.Join(err,
		dohost.Put(ctx, a.st.Storage(), "balance", n+m.Amount), dohost.Put(ctx, a.st.Storage(), "had/"+m.From, m.Number))
}

var names = []string{"a", "b", "c"}

// bank is a simulation of accounts. The sum of their balances must be right.
func bank(bug bool) Simulation {
	return Simulation{
		Scenario: Scenario{
			Classes: []dohost.Class{accountClass(bug)},
			Check: func(ctx context.Context, h *Host) error {
				sum := 0
				for _, name := range names {
					err := accounts.Get(h, name).Do(ctx, func(ctx context.Context, a *account) error {
						n, err := a.balance(ctx)
						sum += n
						return err
					})
					if err != nil {
						return err
					}
				}
				if sum != opening*len(names) {
					return fmt.Errorf("the accounts hold %d, want %d", sum, opening*len(names))
				}
				return nil
			},
		},
		Ops: []Op{{Name: "send", Do: func(ctx context.Context, h *Host, r *rand.Rand) error {
			from, to := r.IntN(len(names)), r.IntN(len(names)-1)
			if to >= from {
				to++
			}
			_, err := dohost.Call(ctx, accounts.Get(h, names[from]), (*account).Send, transfer{names[to], 1 + r.IntN(30)})
			return err
		}}},
	}
}

// .ci/run sets the flag.
var full = flag.Bool("full", false, "do all runs of a random test, instead of a quarter of them")

// rounds returns the number of runs of a random test, which has n at most.
func rounds(n int) int {
	switch {
	case *full:
		return n
	case invariants.Enabled:
		return max(n/8, 4)
	}
	return n / 4
}

func TestSimulate(t *testing.T) {
	s := bank(false)
	s.Runs = rounds(60)
	Simulate(t, s)
}

// TestSimulateFindsAndShrinksABug has an object that accepts money twice when its
// answer is lost.
func TestSimulateFindsAndShrinksABug(t *testing.T) {
	old := shrinkFor
	shrinkFor = 10 * time.Minute // a slow machine must not stop the two searches at different scripts
	defer func() { shrinkFor = old }()
	s := bank(true)
	shortest, left := math.MaxInt, 3 // of three seeds: a search can end at a longer script
	for seed := range uint64(rounds(60)) {
		drawn := s.draw(seed)
		_, err := s.Try(t, seed)
		if err == nil {
			continue
		}
		text := err.Error()
		if !strings.Contains(text, "check: the accounts hold ") || !strings.Contains(text, "Take") || len(drawn.actions) < 30 {
			t.Fatalf("another failure of %d actions: %v", len(drawn.actions), err)
		}
		script, _, _ := strings.Cut(text[strings.Index(text, "in this way:\n"):], "log:")
		shortest = min(shortest, strings.Count(script, "\n")-1)
		if _, again := s.Try(t, seed); again == nil || again.Error() != text {
			t.Errorf("again, it is\n%v\nand was\n%s", again, text)
		}
		if left--; left == 0 {
			break
		}
	}
	if shortest > 6 {
		t.Errorf("the shortest script has %d lines, and %d seeds more had to fail", shortest, left)
	}
}

// TestSimulateRejectsVacuousSimulations has simulations that must not count as a pass.
func TestSimulateRejectsVacuousSimulations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Simulation)
		want   string
	}{
		"no check":      {func(s *Simulation) { s.Check = nil }, "no Check"},
		"nothing to do": {func(s *Simulation) { s.Ops = nil }, "no Run"},
		"no Do":         {func(s *Simulation) { s.Ops[0].Do = nil }, `operation "send" has no Do`},
		"an operation fails": {func(s *Simulation) {
			s.Ops[0].Do = func(context.Context, *Host, *rand.Rand) error { return errors.New("out of ink") }
		}, "out of ink"},
		"nothing ended": {func(s *Simulation) { s.Chance, s.Faults, s.Runs = 1e-9, 1e-9, 2 }, "none of 2 runs was interrupted"},
		"all ended":     {func(s *Simulation) { s.Chance, s.Faults, s.Places = 1, -1, []dohost.Place{dohost.PlaceStart} }, "no operation succeeded in 2 runs"},
		"chance":        {func(s *Simulation) { s.Chance = 1.5 }, "Chance is 1.5, and Faults 0: want at most 1"},
		"steps":         {func(s *Simulation) { s.Steps = -1 }, "negative Clients, Steps or Runs"},
		"a restart":     {func(s *Simulation) { s.Endings = []dohost.EndMode{dohost.EndFence, dohost.EndRestart} }, "Endings contain restart, want some of [fence crash power cut kill]"},
		"no endings":    {func(s *Simulation) { s.Endings = []dohost.EndMode{} }, "no Endings"},
	} {
		t.Run(name, func(t *testing.T) {
			s := bank(false)
			c.change(&s)
			if _, err := s.all(t, 1, 2); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestSimulateShrinkKeepsTheFailure has a simulation that fails in one way with an operation and an
// ending, and in another with the operation alone.
func TestSimulateShrinkKeepsTheFailure(t *testing.T) {
	s := bank(false)
	s.Check = func(_ context.Context, h *Host) error {
		var n int
		h.run.atStandstill(func() { n = len(h.run.endings) })
		if n == 0 {
			return errors.New("another failure")
		}
		return fmt.Errorf("%d endings", n)
	}
	s.Steps, s.Faults, s.Chance = 5, -1, 0.3
	_, err := s.Try(t, 1)
	if want := "check: 1 endings\nthe shortest script that fails in this way:\n"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q in %v", want, err)
	}
	runs := 0
	s.Check = func(context.Context, *Host) error {
		if runs++; runs == 1 {
			return errors.New("once")
		}
		return nil
	}
	if _, err := s.Try(t, 1); err == nil || !strings.Contains(err.Error(), "check: once\nnot shortened, because the failure did not recur") {
		t.Errorf("%v", err)
	}
}

// TestSimulateSameSeedSameRun compares two runs of a seed in every detail, also on one core.
func TestSimulateSameSeedSameRun(t *testing.T) {
	s := bank(false)
	different := map[string]bool{}
	runs := rounds(30)
	for seed := range uint64(runs) {
		var text [2]string
		for i := range text {
			cores := goruntime.GOMAXPROCS(0)
			if i == 1 && seed%2 == 0 {
				cores = 1
			}
			old := goruntime.GOMAXPROCS(cores)
			tr := s.play(t, s.draw(seed), true)
			goruntime.GOMAXPROCS(old)
			if tr.err != nil {
				t.Fatalf("seed %d: %v", seed, tr.err)
			}
			text[i] = transcript(tr)
		}
		if text[0] != text[1] {
			a, b := strings.Split(text[0], "\n"), strings.Split(text[1], "\n")
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			t.Fatalf("seed %d differs at line %d:\n%s\n\n%s", seed, at, strings.Join(a[max(0, at-5):min(at+3, len(a))], "\n"), strings.Join(b[max(0, at-5):min(at+3, len(b))], "\n"))
		}
		different[text[0]] = true
	}
	if len(different) < runs-1 {
		t.Errorf("%d seeds, only %d different runs", runs, len(different))
	}
	t.Logf("%d seeds, each twice", runs)
}

// transcript lists the points of each object, with their times, object by object.
func transcript(tr *trial) string {
	of := map[dohost.ID][]line{}
	for _, l := range tr.run.log.lines {
		of[l.id] = append(of[l.id], l)
	}
	var b strings.Builder
	for _, id := range slices.SortedFunc(maps.Keys(of), compareIDs) {
		b.WriteString(textOf(of[id]))
	}
	return b.String()
}

// TestFeedLogIDsAreDrawnFromTheSeed makes a log before the process ends, and another after
// it, with different ids.
func TestFeedLogIDsAreDrawnFromTheSeed(t *testing.T) {
	log := dohost.Feed{Name: "log"}
	words := dohost.Collection[string]{Name: "words", Key: func(s string) string { return s }, Feed: &log}
	var ids []string
	s := doing(func(ctx context.Context, t *testObject) error {
		err := words.Insert(ctx, t.st.Storage(), "word")
		at, err2 := log.End(ctx, t.st.Storage())
		ids = append(ids, fmt.Sprint(at.Log))
		return errors.Join(err, err2)
	})
	s.Reset = func() { ids = nil }
	s.Run = func(ctx context.Context, h *Host) error {
		_, err := dohost.Call(ctx, testObjects.Get(h, "a"), (*testObject).do, 0)
		h.Crash()
		_, err2 := dohost.Call(ctx, testObjects.Get(h, "b"), (*testObject).do, 0)
		return errors.Join(err, err2)
	}
	var first []string
	for range 2 {
		if tr := s.try(t, new(atomic.Int64), diskFirst, nil); tr.err != nil {
			t.Fatal(tr.err)
		}
		if len(ids) != 2 || ids[0] == ids[1] || first != nil && !slices.Equal(ids, first) {
			t.Errorf("%v, and before that %v", ids, first)
		}
		first = ids
	}
}
