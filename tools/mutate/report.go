package main

import (
	"fmt"
	"io"
	"path"
	"text/tabwriter"
)

// score is the count of mutations of a package.
type score struct{ all, scenario, test int }

// share returns a part in per cent; 100 of nothing.
func share(part, all int) float64 {
	if all == 0 {
		return 100
	}
	return 100 * float64(part) / float64(all)
}

// report prints a table and the survivors, and returns the total. It leaves out empty results.
func report(out io.Writer, pkgs []string, sites []*site, results []result) (total score) {
	scores := map[string]*score{}
	for _, pkg := range pkgs {
		scores[pkg] = new(score)
	}
	for i, r := range results {
		if r.Verdict == "" {
			continue
		}
		for _, s := range []*score{scores[sites[i].pkg], &total} {
			s.all++
			switch r.Verdict {
			case byScenario:
				s.scenario++
				s.test++
			case byTest:
				s.test++
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "package\tmutations\tfound by scenarios\t%\tfound by all tests\t%\t")
	row := func(name string, s *score) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f\t%d\t%.1f\t\n",
			name, s.all, s.scenario, share(s.scenario, s.all), s.test, share(s.test, s.all))
	}
	for _, pkg := range pkgs {
		row(pkg, scores[pkg])
	}
	row("total", &total)
	w.Flush()
	for i, r := range results {
		if s := sites[i]; r.Verdict == survived || r.Verdict == unreached {
			fmt.Fprintf(out, "\n%s: %s\n\t%s:%d: %s\n", r.Verdict, s.name, path.Join(s.pkg, path.Base(s.file)), s.line, s.text)
		}
	}
	return total
}
