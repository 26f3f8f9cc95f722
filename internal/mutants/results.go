package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// logResult prints a result immediately, as a sign of progress.
func logResult(v *trialResult) {
	took := v.took.Round(10 * time.Millisecond)
	if v.err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v (%v)\n", v.m.name, v.err, took)
		return
	}
	fmt.Fprintf(os.Stderr, "%s: found (%v): %s: %s\n", v.m.name, took, v.first.where, strings.ReplaceAll(v.first.err, "\n", "; "))
}

// printTable prints the results.
func printTable(out io.Writer, vs []trialResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutation\tscenario\tfailed runs\treplay of the first, there")
	for _, v := range vs {
		failed, replay := fmt.Sprint(v.found), v.first.replay
		if v.err != nil {
			failed = "-"
			replay, _, _ = strings.Cut(v.err.Error(), "\n")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.m.name, v.s.short(), failed, replay)
	}
	return w.Flush()
}

// short returns the scenario without the package and the signs of a pattern.
func (s scenario) short() string {
	parts := strings.Split(s.run, "/")
	return strings.Trim(parts[len(parts)-1], "^$")
}

// summary returns an error unless all mutations were found.
func summary(vs []trialResult) error {
	bad := 0
	for _, v := range vs {
		if v.err != nil {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d were not found as they should be", bad, len(vs))
	}
	return nil
}
