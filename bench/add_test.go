package main

import (
	"strings"
	"testing"
	"time"
)

// TestAddKeepsOtherRows adds a run to an earlier one: a row that both have, and a new one.
func TestAddKeepsOtherRows(t *testing.T) {
	row := func(id string, value float64) Row {
		return Row{ID: id, Notes: []string{"a note"}, Sides: []Figure{{Side: ours, Value: value}}}
	}
	old := &Results{
		Machine: Machine{Commit: "aaa"}, Rows: []Row{row("X1", 1), row("X2", 2)}, Curves: []Curve{{ID: "X", X: "old"}, {ID: "Y"}},
		Breakdowns: []Breakdown{{ID: "B1", What: "a call"}, {ID: "B2", What: "a wake"}},
	}
	later := &Results{
		Machine: Machine{Commit: "bbb", Date: "2026-01-02", Load: 3.14}, Command: "go run ./bench -run X", Rounds: 3, For: time.Second,
		Rows: []Row{row("X2", 20), row("X3", 30)}, Curves: []Curve{{ID: "X", X: "new"}, {ID: "Z"}},
		Breakdowns: []Breakdown{{ID: "B1", What: "a call", Ops: 5}},
	}
	old.add(later)
	const run = "measured later: commit bbb, 2026-01-02, `go run ./bench -run X`, 3 rounds of 1s, load average 3.1 before it"
	const note = "a note; " + run
	for i, want := range []struct {
		id, notes string
		value     float64
	}{{"X1", "a note", 1}, {"X2", note, 20}, {"X3", note, 30}} {
		r := old.Rows[i]
		if notes := strings.Join(r.Notes, "; "); r.ID != want.id || r.Sides[0].Value != want.value || notes != want.notes {
			t.Errorf("row %d is %s, %v, %q; want %+v", i, r.ID, r.Sides[0].Value, notes, want)
		}
	}
	if len(old.Rows) != 3 || old.Machine.Commit != "aaa" || len(later.Rows[0].Notes) != 1 {
		t.Errorf("%+v, added %+v", old, later)
	}
	if c := old.Curves; len(c) != 3 || c[0].X != "new" || c[1].ID != "Y" || c[2].ID != "Z" {
		t.Errorf("the curves are %+v", c)
	}
	if d := old.Breakdowns; len(d) != 2 || d[0].Ops != 5 || d[0].What != "a call ("+run+")" || d[1].What != "a wake" {
		t.Errorf("the breakdowns are %+v", d)
	}
}

// TestAddRefusesAnotherMachine adds to the results of this machine and of others.
func TestAddRefusesAnotherMachine(t *testing.T) {
	here := Machine{Processor: "p", Cores: 2, GOMAXPROCS: 2, System: "s", FileSystem: "f", Go: "1", Commit: "aaa", Date: "d"}
	dir := t.TempDir()
	if r, err := earlier(dir, here); r != nil || err != nil {
		t.Errorf("without results: %v, %v", r, err)
	}
	for name, c := range map[string]struct {
		change func(*Machine)
		same   bool
	}{
		"another commit":      {func(m *Machine) { m.Commit, m.Date, m.Go, m.Load = "bbb", "e", "2", 7 }, true},
		"another processor":   {func(m *Machine) { m.Processor = "q" }, false},
		"more cores":          {func(m *Machine) { m.Cores = 4 }, false},
		"one of two cores":    {func(m *Machine) { m.GOMAXPROCS = 1 }, false},
		"another file system": {func(m *Machine) { m.FileSystem = "g" }, false},
	} {
		was := &Results{Machine: here, Rows: []Row{{ID: "X1", Sides: []Figure{{Side: ours}}}}}
		c.change(&was.Machine)
		if err := was.write(dir); err != nil {
			t.Fatal(err)
		}
		r, err := earlier(dir, here)
		if (err == nil) != c.same || c.same && len(r.Rows) != 1 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}
