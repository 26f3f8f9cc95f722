package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// markdown returns results.md.
func (r *Results) markdown() (string, error) {
	var b strings.Builder
	b.WriteString("# Results\n\nMade by the program from results.json; a test compares the two. " +
		"How to read them is in [README.md](README.md).\n\n")
	for _, line := range r.facts() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n| id | measurement | side | value | spread | p50 | p99 | syncs/op | allocs/op | ratio | target | |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		for i, f := range row.Sides {
			id, what, ratio, target, met := row.ID, row.What, "", row.Target.Text, row.targetResult()
			if i > 0 {
				id, what, ratio, target, met = "", "", fmt.Sprintf("%.2f", row.ratio(f.Side)), "", ""
			}
			spread := "-"
			if len(f.Rounds) > 1 {
				spread = f.details()[0]
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
				id, what, f.Side, number(f.Value), row.Unit, spread, duration(f.P50), duration(f.P99),
				perOp(f.Syncs, "%.3f"), perOp(f.Allocs, "%.1f"), ratio, target, met)
		}
	}
	b.WriteString("\n## Notes\n\n")
	for _, row := range r.Rows {
		var checked []string
		for _, f := range row.Sides {
			if f.Checked > 0 {
				checked = append(checked, fmt.Sprintf("%s %s", number(float64(f.Checked)), f.Side))
			}
		}
		notes := slices.Clone(row.Notes)
		if len(checked) > 0 {
			notes = append(notes, "operations that were checked: "+strings.Join(checked, ", "))
		}
		if len(notes) > 0 {
			fmt.Fprintf(&b, "- %s: %s.\n", row.ID, strings.Join(notes, "; "))
		}
	}
	for _, d := range r.Breakdowns {
		fmt.Fprintf(&b, "\n## %s", d.text())
	}
	for _, c := range r.Curves {
		b.WriteString(c.table())
	}
	past, err := history()
	return b.String() + past, err
}

// facts are the environment of all figures.
func (r *Results) facts() []string {
	m := r.Machine
	cgo := "without cgo"
	if m.Cgo {
		cgo = "with cgo"
	}
	facts := []string{
		fmt.Sprintf("machine: %s, %d cores, GOMAXPROCS %d, %s, file system %s",
			m.Processor, m.Cores, m.GOMAXPROCS, m.System, m.FileSystem),
		fmt.Sprintf("build: %s, %s, commit %s, %s", m.Go, cgo, m.Commit, m.Date),
		fmt.Sprintf("command: `%s`, seed %d, %d rounds of %v for each side, and one that warms up%s",
			strings.TrimSpace(r.Command), r.Seed, r.Rounds, r.For.Round(time.Millisecond), m.loadText()),
	}
	if r.Peer != "" {
		facts = append(facts, "peer: "+r.Peer)
	}
	return facts
}
