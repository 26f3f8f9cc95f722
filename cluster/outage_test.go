package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func ownersOf(p Plan) (list []string) {
	for _, c := range p.Cells {
		list = append(list, c.Owner)
	}
	return list
}

// TestOutageOfTheTableMovesNoCell keeps all nodes from the table and the logs until their records have expired. They come back one after
// the other, and acquire the cells that they had.
func TestOutageOfTheTableMovesNoCell(t *testing.T) {
	const runs = 20
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, seed)
			w.nodeLeases, w.hostTime = true, 100*time.Millisecond
			for range 4 {
				w.join()
			}
			w.await(time.Minute, "balance", func() bool {
				s := w.table.now()
				return w.owners() == 0 && len(s.Members) == len(w.processes) && isBalanced(s.Plan, s.Members)
			})
			before := ownersOf(w.table.now().Plan)
			for _, p := range w.processes {
				p.cut(toTable, toLogs)
			}
			time.Sleep(2**simTTL + time.Duration(w.r.Int64N(int64(*simTTL))))
			for _, i := range w.r.Perm(len(w.processes)) {
				w.processes[i].endFailures()
				time.Sleep(time.Duration(w.r.Int64N(int64(*simTTL / ticks / 4))))
			}
			for range 20 * ticks {
				time.Sleep(*simTTL / ticks)
				if after := ownersOf(w.table.now().Plan); !slices.Equal(before, after) {
					t.Fatalf("seed %d: the owners are %v after the outage, and were %v", seed, after, before)
				}
			}
			w.await(w.limit(), "owners", func() bool { return w.owners() == 0 })
			w.endAll()
		})
	}
	t.Logf("%d runs", runs)
}

// left is the time until a record expires.
func (s *simTable) left(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.records[id].until)
}

// TestOutageDelaysNoOtherPlan has a node that loses the table again and again, and can be the planner. The cells of a killed node have
// another owner in the usual time.
func TestOutageDelaysNoOtherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.hostTime = 100 * time.Millisecond
		for range 3 {
			w.join()
		}
		w.await(time.Minute, "owners", func() bool { return w.owners() == 0 })
		slices.SortFunc(w.processes, func(a, b *simProcess) int { return w.table.order(a.id(), b.id()) })
		planner := w.processes[0]
		w.end(w.processes[2], false)
		gone := func() bool {
			s := w.table.now()
			return len(s.Members) <= 2 && !slices.ContainsFunc(s.Plan.Cells, func(c Cell) bool {
				return !slices.ContainsFunc(w.processes, func(p *simProcess) bool { return p.id() == c.Owner })
			})
		}
		// The record of the planner never expires, so no other node plans.
		for begun := time.Now(); !gone(); {
			if time.Since(begun) > 10**simTTL {
				t.Fatalf("the plan is %v after %v", w.table.now().Plan, time.Since(begun))
			}
			for w.table.left(planner.id()) < *simTTL-time.Millisecond {
				time.Sleep(time.Millisecond)
			}
			synctest.Wait() // the node has read the table
			planner.cut(toTable)
			time.Sleep(*simTTL * (ticks - 1) / ticks)
			planner.endFailures()
		}
		w.endAllFailures()
		w.endAll()
	})
}
