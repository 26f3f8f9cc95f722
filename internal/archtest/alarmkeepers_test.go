package archtest

import (
	"go/ast"
	"slices"
)

// alarmKeepers are the functions that may write rows of an agent without the alarm, by the method that allows it: keepAlarm for rows that need
// no earlier alarm, and armLater if the batches of the caller set the alarm.
var alarmKeepers = map[string][]string{
	"keepAlarm": {
		"agent/checkpoint.go fibers.updateRunning",
		"agent/keepalive.go core.keepAlive",
		"agent/keepalive.go core.releaseKeepAlive",
		"agent/rowcall.go rowWork.takeOut",
	},
	"armLater": {
		"agent/fiberhooks.go recovery.askInterrupted",
		"agent/recovery.go recovery.askRecoveryInConstructor",
	},
}

// unarmedWrites requires that only the listed functions write rows of an agent without the alarm. Only alarmWriter makes the contexts for that.
func unarmedWrites(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || f.dir != "agent" || f.path == alarmWriter {
			continue
		}
		for _, decl := range f.syntax.Decls {
			where := f.path
			if d, ok := decl.(*ast.FuncDecl); ok {
				where += " " + funcName(d)
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				if places, ok := alarmKeepers[id.Name]; ok && !slices.Contains(places, where) {
					found = append(found, t.at(id.Pos(), "%s: `%s` is not listed, and writes rows without the alarm", id.Name, where))
				}
				if id.Name == "batchKey" || id.Name == "pause" && makesValue(decl, id) {
					found = append(found, t.at(id.Pos(), "%s: only %s makes it", id.Name, alarmWriter))
				}
				return true
			})
		}
	}
	return found
}

// makesValue reports whether id is the type of a composite literal with fields.
func makesValue(in ast.Node, id *ast.Ident) (makes bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && lit.Type == id && len(lit.Elts) > 0 {
			makes = true
		}
		return true
	})
	return makes
}
