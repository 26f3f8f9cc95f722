package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// withoutGoroutines packages start no goroutine at all, listed or not.
var withoutGoroutines = []string{".", "eviction"}

// The tables under "## Goroutines" in ARCHITECTURE.md have these headings.
const (
	productGoroutines = "Of a host and its programs"
	testGoroutines    = "Of tests, the simulation and the benchmark"
)

// testGoroutineDirs are the folders whose goroutines run in tests and in the benchmark only. Their rows are in the
// second table.
var testGoroutineDirs = []string{
	"bench/...", "internal/celltest", "dohosttest/...",
	"internal/crowd", "internal/lifecycletest", "internal/providertest", "internal/randagent", "internal/randchat",
	"internal/randprog", "internal/recovery", "tools/mutate",
}

// goroutines compares the places where goroutines start with the tables in
// ARCHITECTURE.md, both ways: each place has a row and each row has a place. A row is in the table of its folder.
func goroutines(t *tree) (found []string) {
	rows := goroutineRows(t.documents["ARCHITECTURE.md"])
	started := make(map[string]bool)
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, s := range starts(f) {
			where := f.path + " " + s.function
			started[where] = true
			if slices.Contains(withoutGoroutines, f.dir) {
				found = append(found, t.at(s.pos, "%s starts no goroutines", f.dir))
			} else if _, ok := rows[where]; !ok {
				found = append(found, t.at(s.pos, "no row for `%s` in a table under Goroutines in ARCHITECTURE.md", where))
			}
		}
	}
	for _, where := range slices.Sorted(maps.Keys(rows)) {
		row, heading := rows[where], productGoroutines
		if file, _, _ := strings.Cut(where, " "); matchesAny(testGoroutineDirs, path.Dir(file)) {
			heading = testGoroutines
		}
		switch {
		case !started[where]:
			found = append(found, fmt.Sprintf("ARCHITECTURE.md:%d: no goroutine starts in `%s`", row.line, where))
		case row.heading != heading:
			found = append(found, fmt.Sprintf("ARCHITECTURE.md:%d: the row of `%s` belongs under the heading %q", row.line, where, heading))
		}
	}
	return found
}

type start struct {
	function string
	pos      token.Pos
}

// starts returns the go statements of f, and its calls of a method Go with one argument:
// without types, a call of a sync.WaitGroup or an errgroup looks like that.
func starts(f *file) (list []start) {
	for _, decl := range f.syntax.Decls {
		name := declName(decl)
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				list = append(list, start{name, n.Pos()})
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if ok && sel.Sel.Name == "Go" && len(n.Args) == 1 {
					list = append(list, start{name, n.Pos()})
				}
			}
			return true
		})
	}
	return list
}

func declName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return funcName(d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return ""
}

// A goroutineRow is the place of a row in ARCHITECTURE.md.
type goroutineRow struct {
	line    int
	heading string // the heading of level 3 above the row
}

// goroutineRows reads the second column of the tables under "## Goroutines": one
// or more places, separated by commas, each "path/file.go Func" or "path/file.go
// Type.Method".
func goroutineRows(architecture string) map[string]goroutineRow {
	rows := make(map[string]goroutineRow)
	inside, heading := false, ""
	for i, line := range strings.Split(architecture, "\n") {
		if strings.HasPrefix(line, "## ") {
			inside, heading = strings.TrimSpace(line) == "## Goroutines", ""
			continue
		}
		if text, ok := strings.CutPrefix(line, "### "); ok {
			heading = strings.TrimSpace(text)
		}
		cells := strings.Split(line, "|")
		if !inside || len(cells) < 3 {
			continue
		}
		for place := range strings.SplitSeq(strings.ReplaceAll(cells[2], "`", ""), ",") {
			place = strings.Join(strings.Fields(place), " ")
			if file, _, ok := strings.Cut(place, " "); ok && strings.HasSuffix(file, ".go") {
				rows[place] = goroutineRow{i + 1, heading}
			}
		}
	}
	return rows
}
