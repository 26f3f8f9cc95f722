package archtest

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strings"
)

// maxOwners bounds the values that one expression of the packages in shortChains reaches through. The fields and methods of a value
// that is further away get a method of a value that is nearer.
const maxOwners = 3

var shortChains = []string{"agent", "chat", "runtime"}

func selectorChains(t *tree) (found []string) {
	for _, f := range t.files {
		if f.test || !slices.Contains(shortChains, f.dir) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			root, owners := rootOf(sel)
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

// isImport reports whether e is the name of an imported package.
func isImport(f *ast.File, e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Obj == nil && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
		return path.Base(strings.Trim(i.Path.Value, `"`)) == id.Name
	})
}
