package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dohost/dohost"
)

// account contains the counts of a demo, summed over its processes. It lacks the work of each process between
// its last report and its SIGKILL.
type account struct {
	Steps     int             `json:"steps"`
	Bytes     int64           `json:"bytes"`
	Wakes     int             `json:"wakes"`
	Causes    map[string]int  `json:"causes"`
	Places    map[string]int  `json:"places"`
	Alarms    int             `json:"alarms"`
	Failed    int             `json:"failed"`
	Duplicate int             `json:"duplicate"`
	Refused   int             `json:"refused"`
	Recovery  []time.Duration `json:"recovery"`

	Fibers     int   `json:"fibers"`     // that have ended
	Recoveries int   `json:"recoveries"` // of interrupted ones
	Reads      int   `json:"reads"`      // of pieces, including those of steps that were cut off
	ReadBytes  int64 `json:"read_bytes"`
}

// add adds the counts of another process.
func (a *account) add(b *account) {
	a.Steps += b.Steps
	a.Bytes += b.Bytes
	a.Wakes += b.Wakes
	a.Alarms += b.Alarms
	a.Failed += b.Failed
	a.Fibers += b.Fibers
	a.Recoveries += b.Recoveries
	a.Reads += b.Reads
	a.ReadBytes += b.ReadBytes
	a.Duplicate += b.Duplicate
	a.Refused += b.Refused
	a.Causes = addCounts(a.Causes, b.Causes)
	a.Places = addCounts(a.Places, b.Places)
}

func addCounts(a, b map[string]int) map[string]int {
	if a == nil {
		a = map[string]int{}
	}
	for k, n := range b {
		a[k] += n
	}
	return a
}

func (a *account) print(w io.Writer, p *demoPlan) {
	fmt.Fprintf(w, "\n%d files, %s, %d steps; seed %d\n\n", p.Files, bytesText(p.Bytes), a.Steps, p.Seed)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("evictions by cause", "%s", countsText(a.Causes, slices.Sorted(maps.Keys(a.Causes))))
	var places []string
	for _, place := range dohost.Places() {
		if a.Places[place.String()] > 0 {
			places = append(places, place.String())
		}
	}
	row("evictions by place", "%s", countsText(a.Places, places))
	var times []string
	for _, d := range a.Recovery {
		times = append(times, d.Round(time.Millisecond).String())
	}
	if len(times) > 0 {
		row("kills (SIGKILL)", "%d; from each to the next step: %s", p.Killed, strings.Join(times, ", "))
	} else {
		row("kills (SIGKILL)", "%d", p.Killed)
	}
	row("fibers", "%d ended; resumed from the last checkpoint %d times", a.Fibers, a.Recoveries)
	row("recovery cost", "%d steps repeated, %s read again, %d duplicate results",
		max(0, a.Reads-a.Steps), bytesText(max(0, a.ReadBytes-a.Bytes)), a.Duplicate)
	row("wakes", "%d", a.Wakes)
	row("alarms", "%d runs, %d of them failed or interrupted", a.Alarms, a.Failed)
	row("refused writes", "%d, of incarnations that had ended", a.Refused)
}

func countsText(counts map[string]int, names []string) string {
	if len(names) == 0 {
		return "none"
	}
	var parts []string
	for _, n := range names {
		parts = append(parts, fmt.Sprintf("%s %d", n, counts[n]))
	}
	return strings.Join(parts, ", ")
}

func bytesText(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
