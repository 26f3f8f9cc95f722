package recovery

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Table formats distributions and the bills of process ends.
func Table(ds []Distribution) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "id\trecoveries\tp50\tp90\tp99\tmost\t")
	for _, d := range ds {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t\n",
			d.ID, len(d.Took), short(d.At(50)), short(d.At(90)), short(d.At(99)), short(d.At(100)))
	}
	_ = w.Flush() // to a builder
	b.WriteByte('\n')
	for _, d := range ds {
		fmt.Fprintf(&b, "%-4s %s\n", d.ID, d.What)
		if d.Cost != nil {
			fmt.Fprintf(&b, "     %s\n", d.Cost)
		}
	}
	return b.String()
}

// String formats the bill as a line.
func (b *Cost) String() string {
	s := fmt.Sprintf("%d ends, %d steps: %d events redelivered, %d effects repeated, %d lost, %d doubled; "+
		"%d KiB of log replayed", b.Ends, b.Steps, b.Redelivered, b.Repeated, b.Lost, b.Doubled, b.Replayed/1024)
	if b.Policy != 0 {
		s += fmt.Sprintf("; %d outcomes reported as unknown, %d of them without an effect", b.Unknown, b.FalseUnknown)
	}
	return s
}

// short formats a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}
