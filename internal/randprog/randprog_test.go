package randprog_test

import (
	"testing"

	"github.com/dohost/dohost/internal/randprog"
	"github.com/dohost/dohost/internal/randtest"
)

var tests = randtest.NewTests(randprog.Programs, 30, 1)

func TestProgramsSimulated(t *testing.T) { tests.Simulate(t, 20) }

func TestProgramsAreRepeatable(t *testing.T) { tests.Repeat(t) }

func TestProgramsAtEveryPoint(t *testing.T) { tests.EveryPoint(t) }
