package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// policyRow has the place of a policy in the table of ARCHITECTURE.md.
var policyRow = regexp.MustCompile("^\\| [^|]+ \\| `(\\S+\\.go \\S+)` \\| .* \\|$")

// workPolicies compares the functions that make a work.Policy with the table under "Life of a fiber" in ARCHITECTURE.md, both ways.
func workPolicies(t *tree) (found []string) {
	_, text, _ := strings.Cut(t.documents["ARCHITECTURE.md"], "\n## Life of a fiber\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string]bool{} // whether no function was found
	for line := range strings.Lines(text) {
		if m := policyRow.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			rows[m[1]] = true
		}
	}
	for _, f := range t.files {
		local := f.localName(modulePath + "/internal/work")
		if f.test || local == "" {
			continue
		}
		for _, decl := range f.syntax.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			where := f.path + " " + funcName(d)
			ast.Inspect(d, func(n ast.Node) bool {
				lit, ok := n.(*ast.CompositeLit)
				if !ok || !isPolicy(lit.Type, local) {
					return true
				}
				if _, listed := rows[where]; listed {
					rows[where] = false
				} else {
					found = append(found, t.at(lit.Pos(), "no row for `%s` in the table of policies in ARCHITECTURE.md", where))
				}
				return true
			})
		}
	}
	for _, where := range slices.Sorted(maps.Keys(rows)) {
		if rows[where] {
			found = append(found, fmt.Sprintf("ARCHITECTURE.md: no policy is made in `%s`", where))
		}
	}
	return found
}

// isPolicy reports whether x is the type Policy of package work, imported under the name local.
func isPolicy(x ast.Expr, local string) bool {
	sel, ok := x.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Policy" {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == local
}
