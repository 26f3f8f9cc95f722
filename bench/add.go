package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// earlier loads the results of a folder. This run adds its own results to them. Results of another machine are refused,
// because the figures of one table must be comparable. Without a file the result is nil.
func earlier(dir string, here Machine) (*Results, error) {
	r, err := load(filepath.Join(dir, "results.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	was := r.Machine
	was.Go, was.Cgo, was.Commit, was.Date, was.Load = here.Go, here.Cgo, here.Commit, here.Date, here.Load
	if was != here {
		return nil, fmt.Errorf("-add: the results in %s are of another machine: %+v, this one is %+v", dir, was, here)
	}
	return r, nil
}

// add replaces the rows, breakdowns and curves of a later run, and appends new ones. The notes of rows and the titles of
// breakdowns name that run.
func (r *Results) add(later *Results) {
	run := fmt.Sprintf("measured later: commit %s, %s, `%s`, %d rounds of %v%s",
		later.Machine.Commit, later.Machine.Date, later.Command, later.Rounds, later.For, later.Machine.loadText())
	for _, row := range later.Rows {
		row.Notes = append(slices.Clone(row.Notes), run)
		r.Rows = replaced(r.Rows, row, func(o Row) bool { return o.ID == row.ID })
	}
	for _, d := range later.Breakdowns {
		d.What += " (" + run + ")"
		r.Breakdowns = replaced(r.Breakdowns, d, func(o Breakdown) bool { return o.ID == d.ID })
	}
	for _, c := range later.Curves {
		r.Curves = replaced(r.Curves, c, func(o Curve) bool { return o.ID == c.ID && o.What == c.What })
	}
}

// replaced puts v in the place of the value that is the same, or at the end.
func replaced[T any](all []T, v T, same func(T) bool) []T {
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i] = v
		return all
	}
	return append(all, v)
}
