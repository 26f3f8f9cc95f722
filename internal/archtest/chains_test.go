package archtest

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strings"
)

// maxOwners bounds the values that one expression of package chat reaches through. The fields and methods of a value that is
// further away get a method of a value that is nearer.
const maxOwners = 3

func selectorChains(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || f.dir != "chat" {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			root, owners := ownersOf(sel)
			if isImport(f.syntax, root) {
				owners--
			}
			if owners > maxOwners {
				found = append(found, t.at(n.Pos(), "%s reaches through %d values, the limit is %d: add a method", types.ExprString(sel), owners, maxOwners))
			}
			return owners <= maxOwners // its parts would be further findings
		})
	}
	return found
}

// ownersOf returns the first value of a chain of selectors, and the number of values that the chain reaches through.
func ownersOf(e ast.Expr) (root ast.Expr, owners int) {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			owners, e = owners+1, x.X
		case *ast.CallExpr:
			e = x.Fun
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return e, owners
		}
	}
}

// isImport reports whether e is the name of an imported package.
func isImport(f *ast.File, e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Obj == nil && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return path.Base(strings.Trim(i.Path.Value, `"`)) == id.Name
	})
}
