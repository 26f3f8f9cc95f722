package archtest

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// errorTextPackages are the packages whose errors name them, by the names of their folders. Errors of the command line
// name a flag. Errors of chat/uimessage name chat, since programs use its types as those of chat.
var errorTextPackages = map[string]string{
	".": "dohost", "agent": "agent", "chat": "chat", "chat/anthropic": "anthropic", "chat/extract": "extract",
	"chat/openai": "openai", "chat/uimessage": "chat", "dohosttest": "dohosttest", "ledger": "ledger", "web": "web",
}

// errorTexts finds errors of exported functions and variables with a text that does not begin with the name of the
// package. It follows the names of the package's variables, but no calls.
func errorTexts(t *tree) (findings []string) {
	packages := t.packages()
	for _, dir := range t.sortedPackages() {
		name, ok := errorTextPackages[dir]
		if !ok {
			continue
		}
		vars := map[string]ast.Expr{} // values of the package's variables
		var exported []ast.Expr
		for _, f := range packages[dir] {
			if f.test {
				continue
			}
			for _, d := range f.syntax.Decls {
				switch d := d.(type) {
				case *ast.GenDecl:
					exported = append(exported, errorVars(d, vars)...)
				case *ast.FuncDecl:
					exported = append(exported, returned(d)...)
				}
			}
		}
		for _, e := range exported {
			if id, ok := e.(*ast.Ident); ok && vars[id.Name] != nil {
				e = vars[id.Name]
			}
			if text, ok := errorText(e); ok && !strings.HasPrefix(text, name+": ") {
				findings = append(findings, t.at(e.Pos(), "the text of an error is %q: begin it with %q", text, name+": "))
			}
		}
	}
	return findings
}

// errorVars adds the values of variables to vars, and returns those of the exported ones.
func errorVars(d *ast.GenDecl, vars map[string]ast.Expr) (exported []ast.Expr) {
	for _, spec := range d.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || d.Tok != token.VAR || len(v.Values) != len(v.Names) {
			continue
		}
		for i, n := range v.Names {
			vars[n.Name] = v.Values[i]
			if n.IsExported() {
				exported = append(exported, v.Values[i])
			}
		}
	}
	return exported
}

// returned returns the results of the return statements of an exported function, or of an exported method of an
// exported type.
func returned(d *ast.FuncDecl) (results []ast.Expr) {
	if !d.Name.IsExported() || d.Body == nil || d.Recv != nil && !ast.IsExported(receiver(d)) {
		return nil
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			results = append(results, r.Results...)
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
	return results
}

// errorText returns the text, or the format, of an error that a call of errors.New or fmt.Errorf makes. A format that
// begins with an error that is not a kind has the text of that error.
func errorText(e ast.Expr) (text string, ok bool) {
	call, isCall := e.(*ast.CallExpr)
	if !isCall || len(call.Args) == 0 {
		return "", false
	}
	if f := selector(call.Fun); f != "errors.New" && f != "fmt.Errorf" {
		return "", false
	}
	lit, isLit := call.Args[0].(*ast.BasicLit)
	if !isLit {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return "", false
	}
	wraps := strings.HasPrefix(text, "%w") && len(call.Args) > 1
	return text, !wraps || strings.HasPrefix(selector(call.Args[1]), "dohost.Err")
}

// selector returns the text of a selection from a package, or "".
func selector(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return x.Name + "." + s.Sel.Name
		}
	}
	return ""
}
