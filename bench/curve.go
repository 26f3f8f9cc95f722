package main

import (
	"fmt"
	"strings"
)

// table is a curve for results.md.
func (c *Curve) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s: %s\n\n| %s |", c.ID, c.What, c.X)
	for _, l := range c.Lines {
		fmt.Fprintf(&b, " %s (%s) |", l.Name, c.Y)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(c.Lines)) + "\n")
	for _, i := range shown(len(c.Lines[0].Points)) {
		fmt.Fprintf(&b, "| %s |", number(c.Lines[0].Points[i][0]))
		for _, l := range c.Lines {
			fmt.Fprintf(&b, " %s |", number(l.Points[i][1]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// maxShown is the maximum of a curve's points in a table; the report's plot has all.
const maxShown = 12

// shown returns the indexes of the points in a table: all of n, or some that are evenly spread, with the first and the
// last.
func shown(n int) (at []int) {
	k := min(n, maxShown)
	for i := range k {
		at = append(at, i*(n-1)/max(k-1, 1))
	}
	return at
}
