package cluster

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrainWaits has snapshots of a node that drains, or backs off.
func TestDrainWaits(t *testing.T) {
	own, other := Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}
	for name, c := range map[string]struct {
		plan    Plan
		members []Member
		done    bool
	}{
		"it drains, and has a cell":              {Plan{Cells: []Cell{own, other}, Draining: []string{"a"}}, members("a", "b"), false},
		"it drains, and closes a cell":           {Plan{Cells: []Cell{{Owner: "b", Holder: "a"}, other}, Draining: []string{"a"}}, members("a", "b"), false},
		"it drains, and has no cell":             {Plan{Cells: []Cell{other}, Draining: []string{"a"}}, members("a", "b"), true},
		"it drains, and is alone":                {Plan{Cells: []Cell{own}, Draining: []string{"a"}}, members("a"), true},
		"all nodes drain":                        {Plan{Cells: []Cell{own, other}, Draining: []string{"a", "b"}}, members("a", "b"), true},
		"it drains, and the other one backs off": {Plan{Cells: []Cell{own}, Draining: []string{"a"}, BackingOff: []string{"b"}}, members("a", "b"), false},
		"it backs off, and has no cell":          {Plan{Cells: []Cell{other}, BackingOff: []string{"a"}}, members("a", "b"), false},
		"it backs off, and is alone":             {Plan{Cells: []Cell{own}, BackingOff: []string{"a"}}, members("a"), false},
	} {
		n := &Node{self: Member{ID: "a"}, drained: make(chan struct{})}
		n.checkDrained(&Snapshot{Plan: c.plan, Members: c.members})
		done := false
		select {
		case <-n.drained:
			done = true
		default:
		}
		if done != c.done {
			t.Errorf("%s: drained is %v", name, done)
		}
	}
}

// TestDrainAfterBackoff has a node that could not acquire logs, gets all cells later, and drains.
func TestDrainAfterBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimulation(t, 1)
		w.join()
		p := w.processes[0]
		p.cut(toLogs)
		w.await(10*time.Minute, "backing off", func() bool { return slices.Contains(w.table.now().Plan.BackingOff, p.node.self.ID) })
		w.endAllFailures()
		w.await(10*time.Minute, "opening", func() bool { return w.owners() == 0 })
		w.join()
		w.await(10*time.Minute, "joining", func() bool { return len(w.table.now().Members) == 2 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.node.Drain(ctx); err != nil {
			t.Error(err)
		}
		if cells := p.serves(); len(cells) > 0 {
			t.Errorf("after Drain the node serves the cells %v", cells)
		}
		w.endAll()
	})
}
