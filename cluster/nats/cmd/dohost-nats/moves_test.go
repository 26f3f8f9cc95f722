//go:build unix

package main

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dohost/dohost/cluster"
)

// moves counts the moves of cells in a series of plans. A cell moves from the plan that names an owner other than its node, until that owner serves it.
type moves struct {
	moving map[int]bool
	all    int // moves
	most   int // cells that moved at the same time
}

// add adds the next plan. The cells of a node that has ended do not count: they have no holder when they get other owners.
func (m *moves) add(p *cluster.Plan) {
	for i, c := range p.Cells {
		switch {
		case c.Owner == c.Holder:
			delete(m.moving, i)
		case c.Owner != "" && c.Holder != "" && !m.moving[i]:
			m.moving[i] = true
			m.all++
		}
	}
	m.most = max(m.most, len(m.moving))
}

// watchMoves reads all plans until stop. The servers may skip a plan that the next one has replaced.
func (c *nodes) watchMoves() (stop func() *moves) {
	c.t.Helper()
	const key = "main.plan"
	bucket, err := c.js.KeyValue(c.t.Context(), "dohost")
	if err != nil {
		c.t.Fatal(err)
	}
	plans, err := bucket.Watch(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	m, done := &moves{moving: map[int]bool{}}, make(chan struct{})
	var seen atomic.Uint64 // the revision of the last plan
	go func() {
		defer close(done)
		for e := range plans.Updates() {
			if e == nil { // the next plans are written later
				continue
			}
			p := cluster.Plan{}
			if err := json.Unmarshal(e.Value(), &p); err != nil {
				c.t.Error(err)
			}
			m.add(&p)
			seen.Store(e.Revision())
		}
	}()
	return func() *moves {
		c.t.Helper()
		newest, err := bucket.Get(c.t.Context(), key)
		if err != nil {
			c.t.Fatal(err)
		}
		for limit := time.Now().Add(clusterTime); seen.Load() < newest.Revision(); {
			pause(c.t, limit, "the newest plan")
		}
		if err := plans.Stop(); err != nil {
			c.t.Fatal(err)
		}
		<-done
		return m
	}
}

// TestMovesThatOverlapAreCounted has a series of plans with a move, a take-over, and then two moves that overlap.
func TestMovesThatOverlapAreCounted(t *testing.T) {
	plan := func(a, b cluster.Cell) *cluster.Plan { return &cluster.Plan{Cells: []cluster.Cell{a, b}} }
	cell := func(owner, holder string) cluster.Cell { return cluster.Cell{Owner: owner, Holder: holder} }
	steps := []struct {
		p         *cluster.Plan
		all, most int
	}{
		{plan(cell("1", "1"), cell("1", "1")), 0, 0},
		{plan(cell("2", "1"), cell("1", "1")), 1, 1},
		{plan(cell("2", ""), cell("1", "1")), 1, 1},
		{plan(cell("2", "2"), cell("1", "1")), 1, 1},
		{plan(cell("3", ""), cell("3", "")), 1, 1},
		{plan(cell("3", "3"), cell("3", "3")), 1, 1},
		{plan(cell("3", "3"), cell("4", "3")), 2, 1},
		{plan(cell("4", "3"), cell("4", "")), 3, 2},
		{plan(cell("4", ""), cell("4", "4")), 3, 2},
	}
	m := &moves{moving: map[int]bool{}}
	for i, s := range steps {
		if m.add(s.p); m.all != s.all || m.most != s.most {
			t.Errorf("step %d: %d moves, %d at the same time, want %d and %d", i, m.all, m.most, s.all, s.most)
		}
	}
}
