package randinbox_test

import (
	"flag"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randinbox"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	tests  = randtest.NewTests(randinbox.Programs, 3, 1)
	sample = flag.Int("sample", 5, "runs of a program that ends at every point: 0: at all of them")
)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 3) }

func TestProgramsAtEveryPoint(t *testing.T) {
	few := tests
	few.Scenario = func(work randinbox.Workload) (dohosttest.Scenario, *randtest.Report) {
		s, report := randinbox.Scenario(work)
		s.Sample = *sample
		return s, report
	}
	few.EveryPoint(t)
}

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }

// TestWatchWhileACyclePanics has a watch of the messages while a cycle panics after writes. The panic wakes the watch, and then ends the
// incarnation: two runs without endings are the same.
func TestWatchWhileACyclePanics(t *testing.T) {
	s, _ := randinbox.Scenario(randinbox.Workload{Callers: [][]randinbox.Act{
		{{Kind: randinbox.ActCall, Program: randinbox.Program{ID: 11, Code: []randinbox.Instr{
			{Op: randinbox.Send, K: 5, N: 64},
			{Op: randinbox.Sleep, N: 1180},
			{Op: randinbox.Send, K: 2, N: 18, Body: []randinbox.Instr{
				{Op: randinbox.Transaction, K: 2, N: 95, Body: []randinbox.Instr{{Op: randinbox.Send, K: 2, N: 55}, {Op: randinbox.Panic, N: 5}}},
			}},
		}}}},
		{{Kind: randinbox.ActWatch, Seed: 220, For: 5}},
	}})
	s.Sample = 1
	for range 3 {
		dohosttest.EveryPoint(t, s)
	}
}
