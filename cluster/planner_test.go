package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlannerPauses has snapshots of node b, which has renewed its record for the first time, or after its expiry, before some time.
func TestPlannerPauses(t *testing.T) {
	const ttl, never = 6 * time.Second, time.Hour
	a, b, c := Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}, Cell{Owner: "c", Holder: "c"}
	for name, test := range map[string]struct {
		plan             Plan
		members          []Member
		joined, rejoined time.Duration // ago
		plans            bool
	}{
		"new cluster":                                  {planOf(Cell{}, Cell{}), members("a", "b"), 0, never, true},
		"its record is not read":                       {planOf(Cell{}, Cell{}), members("a"), 0, never, false},
		"no node has cells":                            {planOf(a, c), members("b"), 0, never, false},
		"no node has cells, at the end of the pause":   {planOf(a, c), members("b"), ttl / 2, never, true},
		"no node has cells, and others have started":   {planOf(c, c), members("a", "b"), ttl / 2, never, true},
		"the former nodes have drained":                {Plan{Cells: []Cell{{Owner: "a"}, c}, Draining: []string{"a", "c"}}, members("b"), 0, never, true},
		"one of the former nodes has drained":          {Plan{Cells: []Cell{{Owner: "a"}, c}, Draining: []string{"a"}}, members("b"), 0, never, false},
		"only a holder is absent":                      {planOf(Cell{Holder: "a"}), members("b"), 0, never, false},
		"another node has cells":                       {planOf(a, c), members("b", "c"), ttl, never, false},
		"a node with a lower id has started":           {planOf(b, c), members("a", "b"), ttl, never, true},
		"a node with a lower id has cells":             {planOf(a, b, c), members("a", "b"), ttl, never, false},
		"it has cells, and has just started":           {planOf(b, c), members("b"), 0, never, true},
		"it has cells, and its record had expired":     {planOf(b, c), members("b"), never, 0, false},
		"it closes its cell, and its record expired":   {planOf(Cell{Owner: "c", Holder: "b"}), members("b"), never, 0, false},
		"its record had expired, and the pause ends":   {planOf(b, c), members("b"), never, ttl / 2, true},
		"its record had expired, and no other one":     {planOf(b, c), members("b", "c"), never, 0, true},
		"it has no cells, and its record had expired":  {planOf(a, c), members("b"), never, 0, false},
		"it has no cells, and its pause has ended":     {planOf(a, c), members("b"), never, ttl / 2, true},
		"the record of a node that drains has expired": {Plan{Cells: []Cell{b, c}, Draining: []string{"c"}}, members("b"), never, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &Node{self: Member{ID: "b"}, o: Options{TTL: ttl}, joined: time.Now().Add(-test.joined), rejoined: time.Now().Add(-test.rejoined)}
			if got := n.plans(&Snapshot{Plan: test.plan, Members: test.members}); got != test.plans {
				t.Errorf("%s: plans is %v", name, got)
			}
		})
	}
}

// joinAll starts nodes, and waits until they have equal shares of the cells.
func (w *simulation) joinAll(nodes int) {
	w.t.Helper()
	for range nodes {
		w.join()
	}
	w.awaitBalance()
}

func (w *simulation) awaitBalance() {
	w.t.Helper()
	w.await(time.Duration(*simCells)**simTTL, "balance", func() bool {
		s := w.table.now()
		return w.owners() == 0 && len(s.Members) == len(w.processes) && isBalanced(s.Plan, s.Members)
	})
}

// TestStartInAnOutageMovesNoOtherCell is TestOutageOfTheTableMovesNoCell with a node that starts before, between or after the others that
// come back. It gets its share of the cells, and no other cell moves.
func TestStartInAnOutageMovesNoOtherCell(t *testing.T) {
	const runs = 20
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, seed)
			w.nodeLeases, w.hostTime = true, 100*time.Millisecond
			w.joinAll(4)
			before, former := ownersOf(w.table.now().Plan), slices.Clone(w.processes)
			for _, p := range former {
				p.cut(toTable, toLogs)
			}
			time.Sleep(2**simTTL + time.Duration(w.r.Int64N(int64(*simTTL))))
			order := w.r.Perm(len(former))
			started := w.r.IntN(len(former)+1) * int(seed%2) // the first in every other run
			for i, p := range slices.Insert(order, started, len(former)) {
				if i > 0 {
					time.Sleep(time.Duration(w.r.Int64N(int64(*simTTL / ticks / 2))))
				}
				if p == len(former) {
					w.join()
				} else {
					former[p].endFailures()
				}
			}
			id, moved := w.processes[len(former)].node.self.ID, 0
			for range 20 * ticks {
				time.Sleep(*simTTL / ticks)
				moved = 0
				for cell, owner := range ownersOf(w.table.now().Plan) {
					if owner != before[cell] {
						moved++
						if owner != id {
							t.Fatalf("seed %d: cell %d has moved from %s to %s, and %s has started", seed, cell, before[cell], owner, id)
						}
					}
				}
				if moved > *simCells/len(w.processes) {
					t.Fatalf("seed %d: %d cells have moved", seed, moved)
				}
			}
			if w.awaitBalance(); moved == 0 {
				t.Errorf("seed %d: the node that has started has no cell", seed)
			}
			w.endAll()
		})
	}
	t.Logf("%d runs", runs)
}

// TestStartDelaysNoTakeOver kills a node. Another one, with a lower id in some runs, starts before or when the record expires: the take-over
// does not wait for it.
func TestStartDelaysNoTakeOver(t *testing.T) {
	const runs = 30
	var slowest time.Duration
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, seed)
			w.nodeLeases, w.hostTime, w.table.exact = true, 100*time.Millisecond, true
			w.joinAll(3)
			killed := w.processes[w.r.IntN(3)]
			w.end(killed, false)
			synctest.Wait() // a renewal at this moment may still succeed
			left := w.table.left(killed.id())
			expiry := time.Now().Add(left)
			time.Sleep(left - *simTTL/2 + time.Duration(w.r.Int64N(int64(*simTTL/2+*simTTL/ticks))))
			w.join()
			for slices.Contains(ownersOf(w.table.now().Plan), killed.id()) {
				time.Sleep(10 * time.Millisecond)
				if time.Since(expiry) > *simTTL {
					break
				}
			}
			late := time.Since(expiry)
			slowest = max(slowest, late)
			if late > *simTTL/ticks+10*time.Millisecond {
				t.Errorf("seed %d: the cells of the killed node have other owners %v after its record expired", seed, late)
			}
			w.awaitBalance()
			w.endAll()
		})
	}
	t.Logf("%d runs; the cells have owners %v after the expiry at most", runs, slowest)
}

// TestStartOfAllNodes ends all nodes of a cluster, and starts others one after the other. The first of them pauses if the former ones were
// killed, and not longer because more nodes start.
func TestStartOfAllNodes(t *testing.T) {
	kill := func(w *simulation) {
		for len(w.processes) > 0 {
			w.end(w.processes[0], false)
		}
	}
	for name, c := range map[string]struct {
		end         func(w *simulation)
		down, pause time.Duration
	}{
		"new cluster":                 {nil, 0, 0},
		"killed":                      {kill, time.Hour, *simTTL / 2},
		"killed, and started at once": {kill, 0, *simTTL / 2},
		"killed, and started before the records expire": {kill, *simTTL / 2, *simTTL / 2},
		"shut down": {func(w *simulation) {
			for len(w.processes) > 0 {
				w.end(w.processes[0], true)
			}
			w.ending.Wait()
		}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, 1)
			w.nodeLeases, w.hostTime, w.table.exact = true, 100*time.Millisecond, true
			if c.end != nil {
				w.joinAll(3)
				c.end(w)
			}
			time.Sleep(c.down)
			begun, due := time.Now(), c.pause
			for _, m := range w.table.now().Members {
				due = max(due, w.table.left(m.ID))
			}
			for next := begun; !w.isOwnedByMembers(); time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > 3**simTTL {
					t.Fatalf("%s: the plan is %v", name, w.table.now().Plan)
				}
				if !time.Now().Before(next) {
					w.join()
					next = next.Add(*simTTL / 4)
				}
			}
			if took := time.Since(begun); took < due || took > due+*simTTL/ticks+10*time.Millisecond {
				t.Errorf("%s: the nodes that have started own all cells after %v, want %v and at most a tick", name, took, due)
			} else {
				t.Logf("%s: %v", name, took)
			}
			w.awaitBalance()
			w.endAll()
		})
	}
}

// isOwnedByMembers reports whether each cell has an owner that has started, and has not ended.
func (w *simulation) isOwnedByMembers() bool {
	owners := ownersOf(w.table.now().Plan)
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(id string) bool {
		return !slices.ContainsFunc(w.processes, func(p *simProcess) bool { return p.node.self.ID == id })
	})
}
