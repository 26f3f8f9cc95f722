package pool

import (
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The table in the package comment has the same edges as taskEdges.
func TestTaskEdgesMatchTable(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(file.Doc.Text(), "\tfrom ")
	table, _, _ = strings.Cut(table, "\n\n")
	header, lines, _ := strings.Cut("\tfrom "+table, "\n")
	by, to := strings.Index(header, "by "), strings.Index(header, "to ")
	groups := map[string][]Status{"both": {StatusAcknowledged, StatusRunning}, "all three": {StatusPending, StatusAcknowledged, StatusRunning}}
	found, rows := map[Status][]Status{StatusDone: {}}, 0
	for line := range strings.Lines(lines) {
		from, next := strings.TrimSpace(line[:by]), Status(strings.Fields(line[to:])[0])
		of, ok := groups[from]
		if !ok {
			of = []Status{Status(from)}
		}
		for _, s := range of {
			if s != next && !slices.Contains(found[s], next) {
				found[s] = append(found[s], next)
			}
		}
		rows++
	}
	equal := func(a, b []Status) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	if !maps.EqualFunc(found, taskEdges, equal) {
		t.Errorf("the %d rows of the table have the edges\n%v, want\n%v", rows, found, taskEdges)
	}
}

// In builds that check invariants, each transition that is not in the table panics.
func TestTransitionThatIsImpossiblePanics(t *testing.T) {
	all := slices.Collect(maps.Keys(taskEdges))
	for _, from := range all {
		for _, to := range all {
			panics := func() (panics bool) {
				defer func() { panics = recover() != nil }()
				row := taskRow{Status: from}
				row.enter(to, row.Since)
				return false
			}()
			if want := strict && !slices.Contains(taskEdges[from], to); panics != want {
				t.Errorf("from %s to %s: panics is %v, want %v", from, to, panics, want)
			}
		}
	}
}
