package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// historyText has the measured gains of earlier decisions: each commit compared with the one before it, in turn on one
// machine, by this program.
//
//go:embed history.json
var historyText []byte

// decision is a commit that changed the cost of an operation.
type decision struct {
	Commit string
	What   string
	Gains  map[string]float64 // by row: operations a second, as a ratio to the commit before
}

// profiles are shares of CPU profiles, before and after.
type profiles struct {
	How   string
	Parts []string
	Of    []struct {
		Row, Commit string
		Shares      []float64 // of the parts, in percent
	}
}

// table has a line for each profile.
func (p *profiles) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n| row | commit | %s |\n|---|---|%s\n",
		p.How, strings.Join(p.Parts, " | "), strings.Repeat("---|", len(p.Parts)))
	for _, of := range p.Of {
		fmt.Fprintf(&b, "| %s | %s |", of.Row, of.Commit)
		for _, share := range of.Shares {
			fmt.Fprintf(&b, " %.0f |", share)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// history is results.md's tables of decisions, for the rows that were measured, and of
// profiles.
func history() (string, error) {
	var h struct {
		How       string
		Rows      []string
		Decisions []decision
		Profiles  profiles
	}
	if err := json.Unmarshal(historyText, &h); err != nil {
		return "", fmt.Errorf("history.json: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## Gains of decisions\n\n%s\n\n| commit | decision | %s |\n|---|---|%s\n",
		h.How, strings.Join(h.Rows, " | "), strings.Repeat("---|", len(h.Rows)))
	for _, d := range h.Decisions {
		fmt.Fprintf(&b, "| %s | %s |", d.Commit, d.What)
		for _, id := range h.Rows {
			if gain, ok := d.Gains[id]; ok {
				fmt.Fprintf(&b, " %.2f |", gain)
			} else {
				b.WriteString(" - |")
			}
		}
		b.WriteString("\n")
	}
	return b.String() + h.Profiles.table(), nil
}
