package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// maxRecoveryFiles bounds the files that a reader of the recovery of a fiber opens.
const maxRecoveryFiles = 6

// recoveryRow has a file, and its functions that have a part in the recovery of a fiber.
var recoveryRow = regexp.MustCompile("^\\| [^|]+ \\| `(\\S+\\.go)` \\| `([^|]+)` \\|$")

// recoveryFiles requires the functions in the table of the recovery of a fiber in ARCHITECTURE.md to be in the files of their rows, and
// bounds the number of these files.
func recoveryFiles(t *tree) (found []string) {
	declared := map[string]bool{}
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && !f.test {
				declared[f.path+" "+funcName(d)] = true
			}
		}
	}
	files, listed := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(tableAfter(t.documents["ARCHITECTURE.md"], "| step | file | functions |")) {
		m := recoveryRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			found = append(found, fmt.Sprintf("ARCHITECTURE.md: the row %q has no file with functions", strings.TrimSpace(line)))
			continue
		}
		files[m[1]] = true
		for name := range strings.SplitSeq(m[2], "`, `") {
			listed[m[1]+" "+name] = true
			if where := m[1] + " " + name; !declared[where] {
				found = append(found, fmt.Sprintf("ARCHITECTURE.md: there is no function `%s`", where))
			}
		}
	}
	found = append(found, recoveryCallees(t, files, listed)...)
	if n := len(files); n < 1 || n > maxRecoveryFiles {
		found = append(found, fmt.Sprintf("ARCHITECTURE.md: the recovery of a fiber is in %d files, want 1 to %d", n, maxRecoveryFiles))
	}
	return found
}

// otherRecoveryFiles has the files of further functions on the path of a recovery.
var otherRecoveryFiles = regexp.MustCompile("(?s)The functions in the table also call functions of these files: (.+?)\\.\n")

// recoveryCallees compares the files of package agent that the listed functions call, in addition to files, with their list in ARCHITECTURE.md.
// A name that the package declares more than once does not count, since the syntax does not show the callee.
func recoveryCallees(t *tree, files, listed map[string]bool) (found []string) {
	named := map[string][]string{} // files by the names of their functions
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && !f.test && f.dir == "agent" {
				name := d.Name.Name
				if d.Recv != nil {
					name = "." + name
				}
				named[name] = append(named[name], f.path)
			}
		}
	}
	called := map[string]bool{}
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && f.dir == "agent" && listed[f.path+" "+funcName(d)] {
				ast.Inspect(d, func(n ast.Node) bool {
					for _, name := range calleesOf(n) {
						if in := named[name]; len(in) == 1 && !files[in[0]] {
							called[in[0]] = true
						}
					}
					return true
				})
			}
		}
	}
	var want string
	if m := otherRecoveryFiles.FindStringSubmatch(t.documents["ARCHITECTURE.md"]); m != nil {
		want = strings.Join(strings.Fields(m[1]), " ")
	}
	got := ""
	if len(called) > 0 {
		got = "`" + strings.Join(slices.Sorted(maps.Keys(called)), "`, `") + "`"
	}
	if got != want {
		found = append(found, fmt.Sprintf("ARCHITECTURE.md: the functions of a recovery also call functions of the files %s, and the list has %s", got, want))
	}
	return found
}

// calleesOf returns the names of the functions that n calls, and, with a dot, the unexported methods of variables that n calls or passes.
func calleesOf(n ast.Node) (names []string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil
	}
	if id, ok := call.Fun.(*ast.Ident); ok {
		names = append(names, id.Name)
	}
	for _, x := range append(slices.Clone(call.Args), call.Fun) {
		sel, ok := x.(*ast.SelectorExpr)
		if !ok || sel.Sel.IsExported() {
			continue
		}
		if id, _ := rootOf(sel.X); isVariable(id) {
			names = append(names, "."+sel.Sel.Name)
		}
	}
	return names
}

// isVariable reports whether x is a variable, and not a package.
func isVariable(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Obj != nil
}
