package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// withoutGoroutines packages start no goroutine at all, listed or not.
var withoutGoroutines = []string{".", "eviction"}

// goroutines compares the places where goroutines start with the table in
// ARCHITECTURE.md, both ways: each place has a row and each row has a place.
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
				found = append(found, t.at(s.pos, "no row for `%s` in the table under Goroutines in ARCHITECTURE.md", where))
			}
		}
	}
	for _, where := range slices.Sorted(maps.Keys(rows)) {
		if !started[where] {
			found = append(found, fmt.Sprintf("ARCHITECTURE.md:%d: no goroutine starts in `%s`", rows[where], where))
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

// goroutineRows reads the second column of the table under "## Goroutines": one
// or more places, separated by commas, each "path/file.go Func" or "path/file.go
// Type.Method". It returns them with their lines.
func goroutineRows(architecture string) map[string]int {
	rows := make(map[string]int)
	inside := false
	for i, line := range strings.Split(architecture, "\n") {
		if strings.HasPrefix(line, "## ") {
			inside = strings.TrimSpace(line) == "## Goroutines"
			continue
		}
		cells := strings.Split(line, "|")
		if !inside || len(cells) < 3 {
			continue
		}
		for place := range strings.SplitSeq(strings.ReplaceAll(cells[2], "`", ""), ",") {
			place = strings.Join(strings.Fields(place), " ")
			if file, _, ok := strings.Cut(place, " "); ok && strings.HasSuffix(file, ".go") {
				rows[place] = i + 1
			}
		}
	}
	return rows
}
