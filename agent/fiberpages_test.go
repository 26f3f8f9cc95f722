package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/dohost/dohost/agent"
	"github.com/dohost/dohost/dohosttest"
)

// TestFiberRecoveryOfManyPages interrupts one fiber more than two pages of rows have. The next incarnation resumes each of them once,
// before its alarm is due.
func TestFiberRecoveryOfManyPages(t *testing.T) {
	const fibers = 2*64 + 1
	runs, incarnations := map[int]int{}, map[*fiberAgent]bool{}
	w := &fiberTest{}
	w.run = func(wr *fiberAgent, ctx context.Context, f *agent.Fiber[int]) error {
		runs[f.Checkpoint()]++
		incarnations[wr] = true
		return sleep(ctx, time.Hour)
	}
	runFiberTest(t, w, nil, func(t *testing.T, ctx context.Context, h *dohosttest.Host) {
		for i := range fibers {
			start(t, h, i, nil)
		}
		h.Advance(time.Second)
		evict(h)
		clear(runs)
		clear(incarnations)
		do(t, h, nothing)
		h.Advance(time.Second)
		once := 0
		for i := range fibers {
			if runs[i] == 1 {
				once++
			}
		}
		if once != fibers || len(runs) != fibers {
			t.Errorf("of %d fibers %d are resumed, %d of them once", fibers, len(runs), once)
		}
		wantEqual(t, "incarnations", len(incarnations), 1)
	})
}
