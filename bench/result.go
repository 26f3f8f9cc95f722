package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Results are the measurements of a run: the content of results.json.
type Results struct {
	Machine Machine
	Command string
	Seed    uint64
	Rounds  int           // of each side, without its warm-up round
	For     time.Duration // of a round
	Peer    string        `json:",omitempty"` // its name, and the tool that counted its syncs
	Rows    []Row
	Curves  []Curve
	// Breakdowns divide the time of an operation.
	Breakdowns []Breakdown
}

// Row is one measurement.
type Row struct {
	ID     string // as in the list of targets
	What   string
	Unit   string
	Sides  []Figure // dohost first, then its comparisons
	Target Target
	Notes  []string
}

// Figure is the result of one side.
type Figure struct {
	Side   string
	Value  float64   // the median of Rounds, in the row's unit
	Rounds []float64 // the value of each round
	P50    time.Duration
	P99    time.Duration
	Syncs  float64 // of the log, for each operation
	Allocs float64 // for each operation; of the whole process
	// Checked is the number of operations that were verified to have run exactly once.
	Checked int64
}

// Target is the goal of a row.
type Target struct {
	Text string
	// MinRatio is the minimum ratio of Value to the side that Reference names, MaxRatio the maximum. Zero means no such bound.
	Reference          string
	MinRatio, MaxRatio float64
	// Times is the minimum ratio of Value to the peer in addition to that, if there is a peer.
	Times float64 `json:",omitempty"`
	// MaxValue and MinValue bound the value itself, P50 and P99 the time of an operation.
	MaxValue, MinValue float64
	P50, P99           time.Duration
}

// Curve is a cost as a function of a size.
type Curve struct {
	ID, What string
	X, Y     string
	LinearX  bool `json:",omitempty"`
	LogY     bool `json:",omitempty"`
	Lines    []Line
}

// Line is one curve among several.
type Line struct {
	Name   string
	Points [][2]float64
}

// ratio is the ratio of dohost to another side, or zero.
func (r *Row) ratio(side string) float64 {
	for _, f := range r.Sides[1:] {
		if f.Side == side && f.Value != 0 {
			return r.Sides[0].Value / f.Value
		}
	}
	return 0
}

// targetResult formats whether the target is met.
func (r *Row) targetResult() string {
	t, ours := r.Target, r.Sides[0]
	ratio, peer := r.ratio(t.Reference), r.ratio(workerd)
	higher := t.MinRatio > 0 // is better
	switch {
	case t.Text == "":
		return ""
	case t.Reference == limit && (higher && ratio > 1.05 || t.MaxRatio > 0 && ratio > 0 && ratio < 0.95):
		return "broken limit"
	case (t.MinRatio > 0 || t.MaxRatio > 0) && ratio == 0:
		return "no " + t.Reference
	case t.MinRatio > 0 && ratio < t.MinRatio, t.MaxRatio > 0 && ratio > t.MaxRatio,
		t.MaxValue > 0 && ours.Value > t.MaxValue, t.MinValue > 0 && ours.Value < t.MinValue,
		t.Times > 0 && peer > 0 && peer < t.Times,
		t.P50 > 0 && ours.P50 > t.P50, t.P99 > 0 && ours.P99 > t.P99:
		return "not met"
	}
	return "met"
}

// load reads the file of save.
func load(path string) (*Results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

func (r *Results) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
