package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dohost/dohost"
)

// TestCellOfIsFixed has values that stored data depends on.
func TestCellOfIsFixed(t *testing.T) {
	for id, want := range map[dohost.ID][2]int{
		{Class: "counter", Name: "a"}:       {4, 660},
		{Class: "counter", Name: "b"}:       {5, 989},
		{Class: "room", Name: "a"}:          {1, 401},
		{Class: "room", Name: "lobby/ä"}:    {6, 686},
		{Class: "counte", Name: "ra"}:       {6, 598},
		{Class: "assistant", Name: "sub/x"}: {2, 138},
	} {
		if got := [2]int{CellOf(id, 8), CellOf(id, 1000)}; got != want {
			t.Errorf("%v: cells %v, want %v", id, got, want)
		}
	}
}

func TestCellsHaveEqualShares(t *testing.T) {
	const objects, cells = 80_000, 8
	var count [cells]int
	for i := range objects {
		count[CellOf(dohost.ID{Class: "counter", Name: fmt.Sprint("user-", i)}, cells)]++
	}
	for cell, n := range count {
		if mean := objects / cells; n < mean*95/100 || n > mean*105/100 {
			t.Errorf("cell %d has %d objects of %d", cell, n, objects)
		}
	}
}

func TestNewPlanRefusesNumbers(t *testing.T) {
	for _, n := range []int{-1, 0, MaxCells + 1} {
		if _, err := NewPlan(n); err == nil {
			t.Errorf("%d cells are accepted", n)
		}
	}
}

func members(ids ...string) (list []Member) {
	for _, id := range ids {
		list = append(list, Member{ID: id})
	}
	return list
}

// serveAll makes all owners holders, as nodes do that open their cells.
func serveAll(p Plan) Plan {
	q := p.clone()
	for i, c := range q.Cells {
		q.Cells[i].Holder = c.Owner
	}
	return q
}

func planOf(cells ...Cell) Plan { return Plan{Cells: cells} }

func TestPlanNext(t *testing.T) {
	for name, c := range map[string]struct {
		plan    Plan
		members []Member
		want    Plan
	}{
		"first node": {planOf(Cell{}, Cell{}), members("a"), planOf(Cell{Owner: "a"}, Cell{Owner: "a"})},
		"no node":    {planOf(Cell{Owner: "a", Holder: "a"}), nil, planOf(Cell{})},
		"ended node": {
			planOf(Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}), members("b", "c"),
			planOf(Cell{Owner: "c"}, Cell{Owner: "b"}, Cell{Owner: "b", Holder: "b"}),
		},
		"all cells of ended nodes at one time": {
			planOf(Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}, Cell{Owner: "c", Holder: "c"}), members("d"),
			planOf(Cell{Owner: "d"}, Cell{Owner: "d"}, Cell{Owner: "d"}),
		},
		"one move": {
			planOf(Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}), members("a", "b"),
			planOf(Cell{Owner: "b", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}),
		},
		"no second move": {
			planOf(Cell{Owner: "b", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}), members("a", "b"),
			planOf(Cell{Owner: "b", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}),
		},
		"no move during a take-over": {
			planOf(Cell{Owner: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}), members("a", "b"),
			planOf(Cell{Owner: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}),
		},
		"no move for a difference of one": {
			planOf(Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}), members("a", "b"),
			planOf(Cell{Owner: "a", Holder: "a"}, Cell{Owner: "a", Holder: "a"}, Cell{Owner: "b", Holder: "b"}),
		},
		"the move has lost its target": {
			planOf(Cell{Owner: "b", Holder: "d"}, Cell{Owner: "d", Holder: "d"}, Cell{Owner: "c", Holder: "c"}), members("c", "d"),
			planOf(Cell{Owner: "d", Holder: "d"}, Cell{Owner: "d", Holder: "d"}, Cell{Owner: "c", Holder: "c"}),
		},
		"draining": {
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "b", Holder: "b"}}, Draining: []string{"a", "gone"}}, members("a", "b"),
			Plan{Cells: []Cell{{Owner: "b", Holder: "a"}, {Owner: "b", Holder: "b"}}, Draining: []string{"a"}},
		},
		"a draining node gets no cell": {
			Plan{Cells: []Cell{{}, {Owner: "b", Holder: "b"}}, Draining: []string{"a"}}, members("a", "b"),
			Plan{Cells: []Cell{{Owner: "b"}, {Owner: "b", Holder: "b"}}, Draining: []string{"a"}},
		},
		"all nodes drain": {
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {}}, Draining: []string{"a"}}, members("a"),
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "a"}}, Draining: []string{"a"}},
		},
		"a node that backs off gets no cell": {
			Plan{Cells: []Cell{{}, {Owner: "b", Holder: "b"}}, BackingOff: []string{"a", "gone"}}, members("a", "b"),
			Plan{Cells: []Cell{{Owner: "b"}, {Owner: "b", Holder: "b"}}, BackingOff: []string{"a"}},
		},
		"one node drains, and the other one backs off": {
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "a", Holder: "a"}}, Draining: []string{"a"}, BackingOff: []string{"b"}}, members("a", "b"),
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "a", Holder: "a"}}, Draining: []string{"a"}, BackingOff: []string{"b"}},
		},
		"a node that could not acquire the log": {
			planOf(Cell{Avoid: "a"}, Cell{Owner: "b", Holder: "b"}), members("a", "b"),
			planOf(Cell{Owner: "b", Avoid: "a"}, Cell{Owner: "b", Holder: "b"}),
		},
		"the only node could not acquire the log": {
			planOf(Cell{Avoid: "a"}), members("a"), planOf(Cell{Owner: "a", Avoid: "a"}),
		},
		"no move if all nodes drain": {
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "a", Holder: "a"}}, Draining: []string{"a", "b"}}, members("a", "b"),
			Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "a", Holder: "a"}}, Draining: []string{"a", "b"}},
		},
	} {
		before := c.plan.clone()
		if got := Next(c.plan, c.members); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if !before.Equal(c.plan) {
			t.Errorf("%s: Next has changed its argument", name)
		}
	}
}

func TestPlanReport(t *testing.T) {
	p := Plan{Cells: []Cell{{Owner: "a", Avoid: "c"}, {Owner: "b", Holder: "a"}, {Owner: "b"}, {Owner: "b", Holder: "b"}}, Draining: []string{"c"}}
	for name, c := range map[string]struct {
		cells           []localState
		drain, backsOff bool
		want            Plan
	}{
		"its cell":     {[]localState{held, held, absent, absent}, false, false, Plan{Cells: []Cell{{Owner: "a", Holder: "a"}, {Owner: "b", Holder: "a"}, {Owner: "b"}, {Owner: "b", Holder: "b"}}, Draining: []string{"c"}}},
		"has stopped":  {[]localState{absent, absent, absent, absent}, false, false, Plan{Cells: []Cell{{Owner: "a", Avoid: "c"}, {Owner: "b"}, {Owner: "b"}, {Owner: "b", Holder: "b"}}, Draining: []string{"c"}}},
		"not its cell": {[]localState{absent, held, held, held}, false, false, p},
		"draining":     {[]localState{absent, held, absent, absent}, true, false, Plan{Cells: p.Cells, Draining: []string{"a", "c"}}},
		"backing off":  {[]localState{absent, held, absent, absent}, false, true, Plan{Cells: p.Cells, Draining: p.Draining, BackingOff: []string{"a"}}},
		"stuck":        {[]localState{stuck, stuck, stuck, stuck}, false, false, Plan{Cells: []Cell{{Avoid: "a"}, {Owner: "b"}, {Owner: "b"}, {Owner: "b", Holder: "b"}}, Draining: []string{"c"}}},
	} {
		got := p.report("a", c.cells, c.drain, c.backsOff)
		if !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if again := got.report("a", c.cells, c.drain, c.backsOff); !again.Equal(got) {
			t.Errorf("%s: a second report changes the plan to %v", name, again)
		}
		if drains := got.report("c", make([]localState, 4), false, false); len(drains.Draining) != len(got.Draining)-1 {
			t.Errorf("%s: a node that does not drain any more: %v", name, drains)
		}
	}
}

// TestPlansAreBalancedWithMinimalMoves begins with random plans and members. Nodes open the cells of each plan before the next one.
func TestPlansAreBalancedWithMinimalMoves(t *testing.T) {
	const rounds = 2000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	moved := 0
	for range rounds {
		p, _ := NewPlan(1 + r.IntN(40))
		var all []Member
		for i := range 1 + r.IntN(10) {
			all = append(all, Member{ID: fmt.Sprintf("n%02d", i)})
		}
		for i := range p.Cells {
			id := all[r.IntN(len(all))].ID
			p.Cells[i] = Cell{Owner: id, Holder: id}
		}
		drains := 0
		for _, m := range all[1:] {
			if r.IntN(5) == 0 {
				p.Draining = append(p.Draining, m.ID)
				drains++
			}
		}
		want, moves := minimalMoves(p, all), 0
		for {
			q := Next(p, all)
			if q.Equal(p) {
				break
			}
			if n := changes(p, q); n != 1 {
				t.Fatalf("%d cells of %v moved to %v", n, p, q)
			}
			moves++
			if !Next(q, all).Equal(q) {
				t.Fatalf("another move before the first one has ended: %v", q)
			}
			p = serveAll(q)
		}
		if moves != want || !isBalanced(p, all) {
			t.Fatalf("%d moves, want %d: %v of %v", moves, want, p, all)
		}
		moved += moves
	}
	if moved < rounds {
		t.Errorf("only %d moves", moved)
	}
}

// changes counts the cells with other owners.
func changes(p, q Plan) (n int) {
	for i := range p.Cells {
		if p.Cells[i].Owner != q.Cells[i].Owner {
			n++
		}
	}
	return n
}

// shares returns the numbers of cells of the nodes that stay, from the largest to the smallest, and the sum of the others.
func shares(p Plan, all []Member) (stay []int, leave int) {
	l := loadsOf(&p, all)
	for _, id := range l.stay {
		stay = append(stay, l.cells[id])
	}
	for _, id := range l.leave {
		leave += l.cells[id]
	}
	slices.Sort(stay)
	slices.Reverse(stay)
	return stay, leave
}

// minimalMoves is the sum of the cells of draining nodes, and of those that nodes have beyond their share. Nodes with the most cells
// have the larger shares.
func minimalMoves(p Plan, all []Member) int {
	stay, moves := shares(p, all)
	small, larger := len(p.Cells)/len(stay), len(p.Cells)%len(stay)
	for i, n := range stay {
		share := small
		if i < larger {
			share++
		}
		moves += max(0, n-share)
	}
	return moves
}

func isBalanced(p Plan, all []Member) bool {
	stay, leave := shares(p, all)
	return leave == 0 && len(stay) > 0 && stay[0]-stay[len(stay)-1] <= 1
}

func TestPlanIsSmall(t *testing.T) {
	p, _ := NewPlan(MaxCells)
	for i := range p.Cells {
		p.Cells[i] = Cell{Owner: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Holder: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", Avoid: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
	}
	data, err := json.Marshal(p)
	if err != nil || len(data) > 200<<10 {
		t.Errorf("the plan has %d bytes, %v", len(data), err)
	}
}
