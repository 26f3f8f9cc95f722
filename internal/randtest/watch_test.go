package randtest_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randtest"
	"github.com/dohost/dohost/internal/randwatch"
)

var watchTests = randtest.NewTests(flags, randwatch.Programs, 5, 1)

func TestWatchProgramsSimulated(t *testing.T) { watchTests.Simulate(t, 3) }

func TestWatchProgramsAtEveryPoint(t *testing.T) { watchTests.EveryPoint(t) }

func TestWatchProgramsAreRepeatable(t *testing.T) { watchTests.Repeat(t) }
