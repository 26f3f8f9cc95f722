package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

var testName = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Z]\\w*)`")

// namedTests requires the tests that documents name to exist: without its test, a promise
// of a document is not checked.
func namedTests(t *tree) (found []string) {
	exists := make(map[string]bool)
	for _, f := range t.files {
		for _, decl := range f.syntax.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && f.test && d.Recv == nil {
				exists[d.Name.Name] = true
			}
		}
	}
	for _, document := range documentNames {
		for i, line := range strings.Split(t.documents[document], "\n") {
			for _, m := range testName.FindAllStringSubmatch(line, -1) {
				if !exists[m[1]] {
					found = append(found, fmt.Sprintf("%s:%d: there is no test %s", document, i+1, m[1]))
				}
			}
		}
	}
	return found
}
