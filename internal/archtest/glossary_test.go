package archtest

import (
	"go/ast"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestGlossaryHasTheStates compares the states of fibers and of requests in docs/glossary.md with the constants.
func TestGlossaryHasTheStates(t *testing.T) {
	text, err := os.ReadFile("../../" + glossary)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, typ string }{{"agent", "FiberStatus"}, {"chat", "Status"}} {
		p, _, err := docOf("../..", c.dir)
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, ty := range p.Types {
			if ty.Name == c.typ {
				states = stringsOf(t, ty.Consts[0].Decl)
			}
		}
		row := "| " + strings.Join(states, ", ") + " |"
		if !strings.Contains(string(text), "\n"+row) {
			t.Errorf("%s has no row that begins with %s, the states of %s.%s", glossary, row, c.dir, c.typ)
		}
	}
}

// stringsOf returns the values of constants that are string literals.
func stringsOf(t *testing.T, decl *ast.GenDecl) (values []string) {
	for _, spec := range decl.Specs {
		literal, ok := spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%v is not a literal", spec.(*ast.ValueSpec).Names)
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}
