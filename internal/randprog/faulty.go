package randprog

import (
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Expecting is Programs with a model that expects other results.
func Expecting(expect func(incarnation int, in Instr, want string) string) randtest.Programs[Workload] {
	p := Programs
	p.Scenario = func(work Workload) (dohosttest.Scenario, *randtest.Report) {
		w := NewObserver()
		w.expect = expect
		return w.scenario(work), &w.Report
	}
	return p
}
