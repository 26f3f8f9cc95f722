package archtest

import (
	"bytes"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// sleepsInTests requires waiting to be virtual. The source does not show whether a sleep
// runs inside a bubble (it may be in a function that the bubble calls), so a file with a
// sleep must import a package with bubbles.
func sleepsInTests(t *tree) (found []string) {
	for _, f := range t.files {
		if !f.test || f.localName("testing/synctest") != "" || f.localName(modulePath+"/dohosttest") != "" {
			continue
		}
		f.uses("time", []string{"Sleep"}, func(n ast.Node, name string) {
			found = append(found, t.at(n.Pos(), "time.%s in a test outside a synctest bubble", name))
		})
	}
	return found
}

// freshContexts requires every context to derive from an incarnation, a caller, or a test.
// Exceptions are programs, which have no caller (cli/main.go is the main function of
// several), and the runtime, which makes the context of each incarnation.
func freshContexts(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || f.dir == "runtime" || f.path == "cli/main.go" || f.syntax.Name.Name == "main" {
			continue
		}
		f.uses("context", []string{"Background", "TO" + "DO"}, func(n ast.Node, name string) {
			found = append(found, t.at(n.Pos(), "context.%s belongs to main, tests and runtime", name))
		})
	}
	return found
}

// withoutClock are the files and folders of values that events are applied to. Their callers pass the time.
var withoutClock = []string{"chat/replystate.go", "chat/uimessage", "internal/summary", "internal/work"}

// clocks requires that the code of withoutClock does not read the clock.
func clocks(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || !slices.Contains(withoutClock, f.path) && !slices.Contains(withoutClock, f.dir) {
			continue
		}
		f.uses("time", []string{"Now", "Since", "Until"}, func(n ast.Node, name string) {
			found = append(found, t.at(n.Pos(), "time.%s: the caller passes the time", name))
		})
	}
	return found
}

// The words are put together here so that this file does not contain them.
var todoComment = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func todoComments(t *tree) (found []string) {
	for _, f := range t.files {
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			if word := todoComment.Find(line); word != nil {
				pos := t.fset.File(f.syntax.Pos()).LineStart(i + 1)
				found = append(found, t.at(pos, "%s: do it, or write down why not", word))
			}
		}
	}
	return found
}

var skips = []string{"Skip", "Skipf", "SkipNow"}

// skippedTests searches for Skip on the parameter of a test. A *rapid.T has a Skip of its
// own, which discards a drawn example and is fine.
func skippedTests(t *tree) (found []string) {
	for _, f := range t.files {
		local := f.localName("testing")
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(skips, sel.Sel.Name) {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && isTestHandle(x, local) {
				found = append(found, t.at(n.Pos(), "%s.%s: a test runs or does not exist", x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	return found
}

// isTestHandle reports whether x is a parameter of type *testing.T, B, F or testing.TB,
// with testing imported under the name local.
func isTestHandle(x *ast.Ident, local string) bool {
	if x.Obj == nil {
		return false
	}
	param, ok := x.Obj.Decl.(*ast.Field)
	if !ok {
		return false
	}
	typ := param.Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok || !strings.Contains(" T B F TB ", " "+sel.Sel.Name+" ") {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == local
}

// sealedFunctions requires a seal.Key of each function of runtime that a user's program could call with the context of
// an event to get the engine: see docs/decisions/0013.
func sealedFunctions(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || f.dir != "runtime" {
			continue
		}
		for _, decl := range f.syntax.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || d.Recv != nil || !d.Name.IsExported() || d.Type.Results == nil {
				continue
			}
			params, results := typesIn(d.Type.Params), typesIn(d.Type.Results)
			leads := slices.ContainsFunc(results, func(r string) bool {
				return slices.Contains([]string{"*State", "*Host", "*objectstore.Store"}, r)
			})
			if leads && slices.Contains(params, "context.Context") && !slices.Contains(params, "seal.Key") {
				found = append(found, t.at(d.Pos(), "%s gives the engine to each caller with a context: want a parameter of type seal.Key", d.Name.Name))
			}
		}
	}
	return found
}

// typesIn returns the types of a list of parameters or results, as in the source.
func typesIn(list *ast.FieldList) (names []string) {
	for _, field := range list.List {
		names = append(names, types.ExprString(field.Type))
	}
	return names
}

// alarmSetters are the methods that set the alarm of an agent, with the files that may use each in addition to its definition in alarmWriter,
// and planFields the parts of its time that are not in rows.
var (
	alarmWriter  = "agent/rowwriter.go"
	alarmSetters = map[string][]string{
		"SetAlarm":      {"agent/alarmlifecycle.go"}, // of objects that are no agents
		"SetStartAlarm": nil,
		"DeleteAlarm":   nil,
		"arm":           nil,
		"armBy":         {"agent/rowwork.go"},
		"refresh":       {"agent/recovery.go", "agent/rowsdrain.go"},
	}
	planFields = []string{"destroying", "keepAlives", "continueAt"}
)

// alarmWriters requires that a change of the time of an agent's alarm cannot omit the alarm: rows.change alone changes planFields, and
// only the listed files set the alarm without a change of rows.
func alarmWriters(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || f.dir != "agent" || f.path == alarmWriter {
			continue
		}
		inChange := map[ast.Node]bool{}
		assigned := func(x ast.Expr) {
			if sel, ok := x.(*ast.SelectorExpr); ok && slices.Contains(planFields, sel.Sel.Name) && !inChange[x] {
				found = append(found, t.at(x.Pos(), "%s changes outside of rows.change, which sets the alarm", sel.Sel.Name))
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "change" {
					ast.Inspect(n, func(inner ast.Node) bool { inChange[inner] = true; return true })
				}
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					assigned(x)
				}
			case *ast.IncDecStmt:
				assigned(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					assigned(n.X)
				}
			case *ast.SelectorExpr:
				if files, ok := alarmSetters[n.Sel.Name]; ok && !slices.Contains(files, f.path) {
					found = append(found, t.at(n.Pos(), "%s: only %s sets the alarm of agents", n.Sel.Name, alarmWriter))
				}
			}
			return true
		})
	}
	return found
}
