package randwatch_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randtest"
	"github.com/dohost/dohost/internal/randwatch"
)

var tests = randtest.NewTests(randwatch.Programs, 5, 1)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 3) }

func TestProgramsAtEveryPoint(t *testing.T) { tests.EveryPoint(t) }

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }
