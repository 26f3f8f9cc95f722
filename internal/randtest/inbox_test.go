package randtest_test

import (
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randinbox"
	"github.com/dohost/dohost/internal/randtest"
)

var inboxTests = randtest.NewTests(flags, randinbox.Programs, 3, 1)

func TestInboxProgramsSimulated(t *testing.T) { inboxTests.Simulate(t, 3) }

func TestInboxProgramsAtEveryPoint(t *testing.T) { sampled(inboxTests, 5).EveryPoint(t) }

func TestInboxProgramsAreRepeatable(t *testing.T) { inboxTests.Repeat(t) }

// TestInboxWatchWhileACyclePanics has a watch of the messages while a cycle panics after writes. The panic wakes the watch, and then ends the
// incarnation: two runs without endings are the same.
func TestInboxWatchWhileACyclePanics(t *testing.T) {
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
