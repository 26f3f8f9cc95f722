package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// text is a row as the program prints it after its measurement.
func (r *Row) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s: %s\n", r.ID, r.What)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, f := range r.Sides {
		ratio := ""
		if i > 0 {
			ratio = fmt.Sprintf("ratio %.2f", r.ratio(f.Side))
		}
		fmt.Fprintf(w, "    %s\t%s %s\t%s\t%s\n", f.Side, number(f.Value), r.Unit, strings.Join(f.details(), ", "), ratio)
	}
	_ = w.Flush() // to a builder
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "    (%s)\n", n)
	}
	if r.Target.Text != "" {
		fmt.Fprintf(&b, "    target: %s: %s\n", r.Target.Text, r.targetResult())
	}
	return b.String()
}

// details are a figure's numbers other than its value.
func (f *Figure) details() (ds []string) {
	if len(f.Rounds) > 1 {
		ds = append(ds, fmt.Sprintf("%s to %s", number(slices.Min(f.Rounds)), number(slices.Max(f.Rounds))))
	}
	if f.P99 > 0 {
		ds = append(ds, "p50 "+duration(f.P50), "p99 "+duration(f.P99))
	}
	if f.Syncs > 0 {
		ds = append(ds, fmt.Sprintf("%.3f syncs", f.Syncs))
	}
	if f.Allocs > 0 {
		ds = append(ds, fmt.Sprintf("%.1f allocations", f.Allocs))
	}
	return ds
}

// table has all rows, one line for each, for a terminal.
func (r *Results) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "id\tdohost\t\treference\tratio\tp50\tp99\tsyncs/op\tallocs/op\ttarget\t")
	for _, row := range r.Rows {
		f := row.Sides[0]
		reference, ratio := "-", "-"
		if len(row.Sides) > 1 {
			reference = row.Sides[1].Side + " " + number(row.Sides[1].Value)
			ratio = fmt.Sprintf("%.2f", row.ratio(row.Sides[1].Side))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.ID, number(f.Value), row.Unit, reference, ratio,
			duration(f.P50), duration(f.P99), perOp(f.Syncs, "%.3f"), perOp(f.Allocs, "%.1f"), row.Target.Text, row.targetResult())
	}
	_ = w.Flush() // to a builder
	return b.String()
}

func perOp(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

// duration formats a duration with three digits.
func duration(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// number formats a number with three digits, and commas in large ones.
func number(v float64) string {
	if math.Abs(v) < 1000 {
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
