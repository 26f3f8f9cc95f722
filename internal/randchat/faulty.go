package randchat

import (
	"github.com/dohost/dohost/dohosttest"
	"github.com/dohost/dohost/internal/randtest"
)

// Faulty is Programs with a model that is wrong about some instructions.
func Faulty(fault func(incarnation int, in Instr) bool) randtest.Programs[Workload] {
	p := Programs
	p.Scenario = func(work Workload) (dohosttest.Scenario, *randtest.Report) {
		w := NewObserver()
		w.fault = fault
		return w.scenario(work), &w.Report
	}
	return p
}
