package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
)

// wakeFiles are the files of package agent for wakes of other systems.
var wakeFiles = []string{"lifecycle.go", "session.go", "alarmlifecycle.go"}

// wakeUsers are the packages that connect wakes of other systems with objects.
var wakeUsers = []string{"streams/consumer"}

// wakeNames requires that agents do not know of the wakes of other systems: apart from wakeFiles, the code of the library uses none of their
// names. Only the code that connects a system with an object does.
func wakeNames(t *tree) (found []string) {
	names := map[string]bool{}
	for _, f := range t.files {
		if f.dir != "agent" || !slices.Contains(wakeFiles, path.Base(f.path)) {
			continue
		}
		for name := range f.syntax.Scope.Objects {
			names[name] = true
		}
	}
	for _, f := range t.files {
		first, _, _ := strings.Cut(f.dir, "/")
		switch {
		case f.test || slices.Contains(wakeUsers, f.dir) || slices.Contains([]string{"examples", "bench", "cmd", "e2e"}, first):
		case f.dir == "agent" && !slices.Contains(wakeFiles, path.Base(f.path)):
			for _, id := range f.syntax.Unresolved { // names of other files
				if names[id.Name] {
					found = append(found, t.at(id.Pos(), "%s is for wakes of other systems, which agents do not know", id.Name))
				}
			}
		default:
			local := f.localName(modulePath + "/agent")
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && names[s.Sel.Name] && local != "" {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
						found = append(found, t.at(n.Pos(), "agent.%s is for wakes of other systems: only %s uses it", s.Sel.Name, strings.Join(wakeUsers, ", ")))
					}
				}
				return true
			})
		}
	}
	return found
}
