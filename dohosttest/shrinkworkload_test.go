package dohosttest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/dohost/dohost"
	"github.com/dohost/dohost/dohosttest"
)

// meter has a counter that a new incarnation begins again from zero.
type meter struct {
	st    *dohost.State
	count int
}

var meters dohost.Namespace[meter] = "meter"

func (m *meter) add(ctx context.Context, n int) (int, error) {
	m.count += n
	return m.count, dohost.Put(ctx, m.st.Storage(), "count", m.count)
}

// metering adds numbers to an object, which forgets them, and expects their sum.
func metering(numbers []int) dohosttest.Scenario {
	return dohosttest.Scenario{
		Classes: []dohost.Class{dohost.Bind(meters, func(_ context.Context, st *dohost.State) (*meter, error) { return &meter{st: st}, nil }, nil)},
		Run: func(ctx context.Context, h *dohosttest.Host) error {
			sum := 0
			for _, n := range numbers {
				got, err := dohost.Call(ctx, meters.Get(h, "a"), (*meter).add, n)
				if err != nil {
					return err
				}
				if sum += n; sum != got {
					return fmt.Errorf("the sum is %d, want %d", got, sum)
				}
			}
			return nil
		},
		Check: func(context.Context, *dohosttest.Host) error { return nil },
	}
}

// withoutOne returns the lists without one of the numbers.
func withoutOne(list []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for i := range list {
			if !yield(slices.Delete(slices.Clone(list), i, i+1)) {
				return
			}
		}
	}
}

// TestShrinkShortensAWorkload has an object that fails at the second of two calls, after an ending of the first.
func TestShrinkShortensAWorkload(t *testing.T) {
	numbers := []int{1, 0, 2, 3, 0, 4}
	s := metering(numbers)
	s.Endings = []dohost.EndMode{dohost.EndFence}
	failures, _ := dohosttest.Explore(t, s)
	if len(failures) == 0 {
		t.Fatal("no failures")
	}
	for _, f := range failures[:len(failures)-1] { // the last one has the number of the others
		short, g := dohosttest.Shrink(t, f, numbers, metering, withoutOne)
		if len(short) != 2 || short[0] == 0 || !slices.ContainsFunc(numbers, func(n int) bool { return n == short[1] }) {
			t.Errorf("%v is shortened to %v: %v", f.Replay(), short, g)
		}
		if _, place, _ := strings.Cut(f.Replay(), "@"); !strings.HasSuffix(g.Replay(), ":fence@"+place) {
			t.Errorf("%v is shortened to %v", f.Replay(), g.Replay())
		}
		s := metering(short)
		s.Replay = g.Replay()
		if again, _ := dohosttest.Explore(t, s); len(again) != 1 || again[0].Error() != g.Error() {
			t.Errorf("the replay of %s fails with %v", s.Replay, again)
		}
	}
}

// TestShrinkKeepsASimulationsOrder shortens a failed simulation without Ops. Its replay needs the order of its seed.
func TestShrinkKeepsASimulationsOrder(t *testing.T) {
	numbers := []int{1, 0, 2, 3, 0, 4}
	s := dohosttest.Simulation{Scenario: metering(numbers), Chance: 0.2}
	for seed := range uint64(100) {
		_, err := s.Try(t, seed)
		f, ok := err.(*dohosttest.Failure)
		if !ok {
			continue
		}
		short, g := dohosttest.Shrink(t, f, numbers, metering, withoutOne)
		replay := metering(short)
		replay.Replay = g.Replay()
		again, _ := dohosttest.Explore(t, replay)
		if len(short) != 2 || len(again) != 1 || again[0].Error() != g.Error() {
			t.Errorf("seed %d is shortened to %v, %s, whose replay fails with %v", seed, short, g.Replay(), again)
		}
		return
	}
	t.Error("no simulation has failed")
}

// TestShrinkKeepsTheKindOfTheFailure has a number that can be removed only after another one: before, the
// workload fails in another way.
func TestShrinkKeepsTheKindOfTheFailure(t *testing.T) {
	numbers := []int{0, 9, 1, 2}
	scenario := func(numbers []int) dohosttest.Scenario {
		s := metering(numbers)
		run := s.Run
		s.Run = func(ctx context.Context, h *dohosttest.Host) error {
			if slices.Contains(numbers, 9) && !slices.Contains(numbers, 0) {
				return errors.New("9 without 0")
			}
			return run(ctx, h)
		}
		return s
	}
	failures, _ := dohosttest.Explore(t, scenario(numbers))
	if len(failures) == 0 {
		t.Fatal("no failures")
	}
	if short, f := dohosttest.Shrink(t, failures[0], numbers, scenario, withoutOne); !slices.Equal(short, []int{1, 2}) || !strings.Contains(f.Text(), "the sum is") {
		t.Errorf("shortened to %v, %v", short, f)
	}
}

// TestShrinkKeepsAWorkload whose shorter forms do not fail.
func TestShrinkKeepsAWorkload(t *testing.T) {
	numbers := []int{1, 2}
	failures, _ := dohosttest.Explore(t, metering(numbers))
	if len(failures) == 0 {
		t.Fatal("no failures")
	}
	fixed := func(n []int) dohosttest.Scenario {
		s := metering(n)
		s.Run = func(context.Context, *dohosttest.Host) error { return nil }
		return s
	}
	if short, f := dohosttest.Shrink(t, failures[0], numbers, fixed, withoutOne); len(short) != 2 || f != failures[0] {
		t.Errorf("shortened to %v, %v", short, f)
	}
}
