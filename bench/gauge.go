package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// gauge is a value that is sampled repeatedly.
type gauge struct {
	name, unit string
	judged     bool // it must not grow
	read       func() (float64, error)
	points     [][2]float64 // seconds, and the value
}

// gauges returns those of this process, and of a store, without those that the system does not report.
func gauges(dir string) []*gauge {
	mib := func(name string) func() (float64, error) {
		return func() (float64, error) {
			s := []metrics.Sample{{Name: name}}
			metrics.Read(s)
			return float64(s[0].Value.Uint64()) / (1 << 20), nil
		}
	}
	gs := []*gauge{
		{name: "heap, with garbage that is not collected yet", unit: memoryUnit, read: mib("/memory/classes/heap/objects:bytes")},
		{name: "heap that the last collection left", unit: memoryUnit, judged: true, read: mib("/gc/heap/live:bytes")},
		{name: "goroutines", unit: countUnit, judged: true, read: func() (float64, error) {
			s := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}}
			metrics.Read(s)
			return float64(s[0].Value.Uint64()), nil
		}},
		{name: "store on disk", unit: diskUnit, judged: true, read: func() (float64, error) { return size(dir) }},
	}
	if _, err := resident(); err == nil {
		gs = append(gs, &gauge{name: "memory of the process", unit: memoryUnit, judged: true, read: resident})
	}
	if openFiles() > 0 {
		gs = append(gs, &gauge{name: "open files", unit: countUnit, judged: true, read: func() (float64, error) {
			return float64(openFiles()), nil
		}})
	}
	return gs
}

// Units of gauges: each has a curve of its own.
const (
	memoryUnit = "MiB of memory"
	diskUnit   = "MiB on the disk"
	countUnit  = "number"
)

// resident is the memory of the process, in MiB.
func resident() (float64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0, errors.New("no VmRSS in /proc/self/status")
	}
	kib, err := strconv.ParseFloat(words[0], 64)
	return kib / 1024, err
}

// size is the size of all files in a folder, in MiB. Files may disappear during the walk.
func size(dir string) (mib float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				mib += float64(info.Size()) / (1 << 20)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return mib, err
}

// sampleCount is the number of samples.
const sampleCount = 120

// watch samples gauges for a time.
func watch(ctx context.Context, gs []*gauge, d time.Duration) error {
	began := time.Now()
	next := time.NewTicker(max(d/sampleCount, time.Millisecond))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-next.C:
			if now.Sub(began) > d {
				return nil
			}
			for _, g := range gs {
				v, err := g.read()
				if err != nil {
					return fmt.Errorf("%s: %w", g.name, err)
				}
				g.points = append(g.points, [2]float64{now.Sub(began).Seconds(), v})
			}
		}
	}
}

// maxGrowth is the allowed ratio of the last third of a run to the middle one. The first does not count: in it caches
// fill, and the store has not compacted yet.
const maxGrowth = 1.2

// thirds are the medians of the middle third and of the last one.
func (g *gauge) thirds() (middle, last float64) {
	var values []float64
	for _, p := range g.points {
		values = append(values, p[1])
	}
	n := len(values) / 3
	return median(values[n : 2*n]), median(values[2*n:])
}

// growthRow is a row that reports whether a gauge with a target has grown, with the one that has grown most.
func growthRow(gs []*gauge) Row {
	var worst float64
	notes := []string{"the median of the last third compared with that of the middle one, or with 1 if that is more; " +
		"the first third is for filling"}
	for _, g := range gs {
		if !g.judged {
			continue
		}
		middle, last := g.thirds()
		worst = max(worst, last/max(middle, 1))
		notes = append(notes, fmt.Sprintf("%s (%s): %s, then %s", g.name, g.unit, number(middle), number(last)))
	}
	return Row{
		What: "memory, goroutines, open files and the disk: the one that grows most", Unit: "times the middle third",
		Sides:  []Figure{{Side: ours, Value: worst, Rounds: []float64{worst}}},
		Target: Target{Text: fmt.Sprintf("≤ %v", maxGrowth), MaxValue: maxGrowth}, Notes: notes,
	}
}

// curves returns a curve for each unit.
func curves(id, what string, gs []*gauge) (cs []Curve) {
	at := map[string]int{}
	for _, g := range gs {
		i, ok := at[g.unit]
		if !ok {
			i, at[g.unit] = len(cs), len(cs)
			cs = append(cs, Curve{ID: id, What: what + ", " + g.unit, X: "seconds", Y: g.unit, LinearX: true})
		}
		cs[i].Lines = append(cs[i].Lines, Line{Name: g.name, Points: g.points})
	}
	return cs
}
