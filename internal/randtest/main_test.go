package randtest_test

import (
	"flag"
	"runtime/debug"
	"testing"

	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

var (
	flags  = randtest.NewFlags()
	sample = flag.Int("sample", -1, "runs of a program of ask or inbox that ends at every point; 0: at all of them, -1: the generator's own number")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // simulations leave much garbage, and little else
	m.Run()
}

// sampled returns tests that end a program at a sample of its points. runs is the number of runs of a program, unless the flag is set.
func sampled[W any](tests randtest.Tests[W], runs int) randtest.Tests[W] {
	if *sample >= 0 {
		runs = *sample
	}
	scenario := tests.Scenario
	tests.Scenario = func(work W) (dohosttest.Scenario, *randtest.Report) {
		s, report := scenario(work)
		s.Sample = runs
		return s, report
	}
	return tests
}

// faulty returns programs with a model that is wrong: the function sets the fault of a new observer.
func faulty[W any, O interface {
	Scenario(W) (dohosttest.Scenario, *randtest.Report)
}](p randtest.Programs[W], observer func() O, set func(O)) randtest.Programs[W] {
	p.Scenario = func(work W) (dohosttest.Scenario, *randtest.Report) {
		w := observer()
		set(w)
		return w.Scenario(work)
	}
	return p
}
