package archtest

import (
	"fmt"
	"go/ast"
	"go/doc"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// enginePackages are the names of the packages that programs do not import. A public package has aliases for their types.
var enginePackages = []string{"alarm", "eviction", "kernel", "objectstore", "runtime", "uimessage"}

// TestAPISignaturesNameNoEnginePackage reads the declarations as go doc prints them: a reader of a signature finds each
// type of the module in a public package.
func TestAPISignaturesNameNoEnginePackage(t *testing.T) {
	for _, dir := range publicPackages {
		named, err := engineNames("../..", dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range named {
			t.Errorf("%s: use an alias in a public package", n)
		}
	}
}

// engineNames returns the exported declarations of a package that name an engine package, each with the name of the
// type, and not the aliases and constants.
func engineNames(root, dir string) (found []string, err error) {
	p, _, err := docOf(root, dir)
	if err != nil {
		return nil, err
	}
	add := func(name string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(enginePackages, x.Name) {
					found = append(found, fmt.Sprintf("%s: %s names %s.%s", dir, name, x.Name, sel.Sel.Name))
				}
			}
			return true
		})
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			for _, spec := range v.Decl.Specs {
				if s := spec.(*ast.ValueSpec); s.Type != nil {
					add(s.Names[0].Name, s.Type)
				}
			}
		}
	}
	funcs := func(fs []*doc.Func, receiver string) {
		for _, f := range fs {
			add(receiver+f.Name, f.Decl.Type)
		}
	}
	values(p.Vars)
	funcs(p.Funcs, "")
	for _, ty := range p.Types {
		values(ty.Vars)
		funcs(ty.Funcs, "")
		funcs(ty.Methods, ty.Name+".")
		for _, spec := range ty.Decl.Specs {
			if s := spec.(*ast.TypeSpec); !s.Assign.IsValid() {
				add(s.Name.Name, s.Type)
			}
		}
	}
	return found, nil
}

func TestEngineNamesAreFound(t *testing.T) {
	dir := t.TempDir()
	const text = `package dohost

type (
	Alias = runtime.Pin
	Wrapped struct {
		Pin runtime.Pin
		in  runtime.Pin
	}
	hidden struct{ Slot alarm.Slot }
)

const Mode = eviction.EndFence

var ErrGone = runtime.ErrGone

var Slot alarm.Slot

func F(*Alias) []eviction.Mode { return kernel.Modes() }

func (*Wrapped) M(func(objectstore.Store)) {}

func f(runtime.Pin) {}
`
	if err := os.WriteFile(filepath.Join(dir, "d.go"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := engineNames(dir, ".")
	want := []string{
		".: Slot names alarm.Slot", ".: F names eviction.Mode",
		".: Wrapped.M names objectstore.Store", ".: Wrapped names runtime.Pin",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\nfound\n%s\nwant\n%s", err, lines(got), lines(want))
	}
}
