package randagent_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randagent"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(randagent.Programs, 13, 1)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 5) }

func TestProgramsAtEveryPoint(t *testing.T) { tests.EveryPoint(t) }

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }
